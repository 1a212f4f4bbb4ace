package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/signalbox-go/signalbox/lock/etcdlock"
)

// etcdContests compare package lock/etcdlock with etcd's own package concurrency. Both run on one etcd that bench starts.
// It writes each grant and each release to the disk.
func etcdContests() []contest {
	return []contest{
		{
			peer:   "etcd's concurrency",
			ours:   side{onEtcd(ourEtcdLocks, keysOf(1)), 2_000, 400},
			theirs: side{onEtcd(etcdMutexes, keysOf(1)), 2_000, 400},
			cases:  []testCase{{name: "lock-etcd", unit: "cycles/s", target: 0.8}},
		},
		{
			peer:   "etcd's concurrency",
			ours:   side{onEtcd(ourEtcdLocks, keysOf(64)), 10_000, 2_000},
			theirs: side{onEtcd(etcdMutexes, keysOf(64)), 10_000, 2_000},
			cases:  []testCase{{name: "lock-etcd-c64", unit: "cycles/s", target: 0.6}},
		},
		{
			peer:   "etcd's concurrency",
			ours:   side{onEtcd(ourEtcdLocks, contended), 1_600, 480},
			theirs: side{onEtcd(etcdMutexes, contended), 1_600, 480},
			cases: []testCase{
				{name: "lock-etcd-contended-16", unit: "cycles/s", series: cyclesPerSecond, target: 1},
				{name: "lock-etcd-contended-16-p99", unit: "ms", less: true, series: waits, quantile: 0.99, target: 1},
			},
		},
	}
}

// keysOf runs cycles in so many goroutines, each with a key of its own.
func keysOf(goroutines int) func(library) measure {
	return func(open library) measure { return lockCycles(open, goroutines) }
}

// onEtcd measures on a new etcd instead of the Redis.
func onEtcd(open library, what func(library) measure) measure {
	return func(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
		e, err := startEtcd(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, e.close()) }()
		return what(open)(ctx, &server{addr: e.addr}, n)
	}
}

// ourEtcdLocks has default options.
func ourEtcdLocks(addrs []string) (grab, func() error, error) {
	client, err := etcdClient(addrs)
	if err != nil {
		return nil, nil, err
	}
	locker, err := etcdlock.New(client, etcdlock.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return grabOurs(locker), client.Close, nil
}

// etcdMutexes uses a session for each lock that is held or waited for, since two mutexes of one session share a lock.
// Sessions are used again.
func etcdMutexes(addrs []string) (grab, func() error, error) {
	client, err := etcdClient(addrs)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var idle, all []*concurrency.Session
	take := func() (*concurrency.Session, error) {
		mu.Lock()
		if n := len(idle); n > 0 {
			defer mu.Unlock()
			s := idle[n-1]
			idle = idle[:n-1]
			return s, nil
		}
		mu.Unlock()
		s, err := concurrency.NewSession(client, concurrency.WithTTL(int(lockTTL/time.Second)))
		if err == nil {
			mu.Lock()
			all = append(all, s)
			mu.Unlock()
		}
		return s, err
	}
	return func(ctx context.Context, key string) (func() error, error) {
			s, err := take()
			if err != nil {
				return nil, err
			}
			m := concurrency.NewMutex(s, key)
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return func() error {
				err := m.Unlock(ctx)
				mu.Lock()
				idle = append(idle, s)
				mu.Unlock()
				return err
			}, nil
		}, func() error {
			for _, s := range all {
				s.Orphan() // its keep-alives end; the etcd ends soon
			}
			return client.Close()
		}, nil
}

func etcdClient(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// An etcdServer is an etcd of one member, with its data on the disk.
type etcdServer struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

func startEtcd(ctx context.Context) (*etcdServer, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, fmt.Errorf("%w: install etcd (Debian's package is etcd-server), or leave its cases out with -case", err)
	}
	var ports [2]string
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	dir, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return nil, err
	}
	e := &etcdServer{addr: ports[0], dir: dir, ended: make(chan struct{})}
	peer := "http://" + ports[1]
	e.cmd = exec.Command(path, "--name", "bench", "--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", "http://"+e.addr, "--advertise-client-urls", "http://"+e.addr,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench="+peer)
	if err := e.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(e.ended)
		_ = e.cmd.Wait() // close kills it
	}()
	if err := e.ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("etcd on %s: %w", e.addr, err), e.close())
	}
	return e, nil
}

// ready waits until the etcd writes.
func (e *etcdServer) ready(ctx context.Context) error {
	client, err := etcdClient([]string{e.addr})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		if _, err = client.Put(ctx, "ready", ""); err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-e.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}

func (e *etcdServer) close() error {
	_ = e.cmd.Process.Kill() // an error means that it has ended
	<-e.ended
	return os.RemoveAll(e.dir)
}
