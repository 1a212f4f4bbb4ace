package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock/zklock"
)

// zooKeeperContests compare package lock/zklock with the Lock of go-zookeeper. Both run on one ZooKeeper that bench
// starts. It writes each grant and each release to the disk. The peer's lock has no lease, no context and no token.
func zooKeeperContests() []contest {
	return []contest{
		{
			peer:   "go-zookeeper's Lock",
			ours:   side{onZooKeeper(ourZooKeeperLocks, zooKeeperKeys(1)), 2_000, 400},
			theirs: side{onZooKeeper(zooKeeperLocks, zooKeeperKeys(1)), 2_000, 400},
			cases:  []testCase{{name: "lock-zookeeper", unit: "cycles/s", target: 0.7}},
		},
		{
			peer:   "go-zookeeper's Lock",
			ours:   side{onZooKeeper(ourZooKeeperLocks, zooKeeperKeys(64)), 10_000, 2_000},
			theirs: side{onZooKeeper(zooKeeperLocks, zooKeeperKeys(64)), 10_000, 2_000},
			cases:  []testCase{{name: "lock-zookeeper-c64", unit: "cycles/s", target: 0.7}},
		},
		{
			peer:   "go-zookeeper's Lock",
			ours:   side{onZooKeeper(ourZooKeeperLocks, contended), 1_600, 480},
			theirs: side{onZooKeeper(zooKeeperLocks, contended), 1_600, 480},
			cases: []testCase{
				{name: "lock-zookeeper-contended-16", unit: "cycles/s", series: cyclesPerSecond, target: 0.5},
				{name: "lock-zookeeper-contended-16-p99", unit: "ms", less: true, series: waits, quantile: 0.99, target: 0.5},
			},
		},
	}
}

// zooKeeperKeys runs cycles in so many goroutines, each with a key of its own.
func zooKeeperKeys(goroutines int) func(library) measure {
	return func(open library) measure { return lockCycles(open, goroutines) }
}

// onZooKeeper measures on a new ZooKeeper instead of the Redis.
func onZooKeeper(open library, what func(library) measure) measure {
	return func(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
		z, err := startZooKeeper(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, z.close()) }()
		return what(open)(ctx, &server{addr: z.addr}, n)
	}
}

// ourZooKeeperLocks has default options.
func ourZooKeeperLocks(addrs []string) (grab, func() error, error) {
	locker, err := zklock.New(addrs, zklock.Config{})
	if err != nil {
		return nil, nil, err
	}
	return grabOurs(locker), locker.Close, nil
}

// zooKeeperLocks uses one session for all locks.
func zooKeeperLocks(addrs []string) (grab, func() error, error) {
	conn, err := dialZooKeeper(addrs)
	if err != nil {
		return nil, nil, err
	}
	return func(_ context.Context, key string) (func() error, error) {
		l := zk.NewLock(conn, "/"+key, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}, func() error { conn.Close(); return nil }, nil
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}

func dialZooKeeper(addrs []string) (*zk.Conn, error) {
	conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(noLog{}), zk.WithLogInfo(false))
	return conn, err
}

const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// A zooKeeper is a server that stands alone, with its data on the disk.
type zooKeeper struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

func startZooKeeper(ctx context.Context) (*zooKeeper, error) {
	path, err := exec.LookPath("java")
	if err == nil {
		_, err = os.Stat(zooKeeperJar)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: install ZooKeeper (Debian's packages are zookeeper and default-jre-headless), or leave its cases out with -case", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return nil, err
	}
	z := &zooKeeper{addr: fmt.Sprintf("127.0.0.1:%d", port), dir: dir, ended: make(chan struct{})}
	config := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%d\nadmin.enableServer=false\nmaxClientCnxns=0\n", dir, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	z.cmd = exec.Command(path, "-Xmx512m", "-cp", zooKeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	if err := z.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(z.ended)
		_ = z.cmd.Wait() // close kills it
	}()
	if err := z.ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("ZooKeeper on %s: %w", z.addr, err), z.close())
	}
	return z, nil
}

// ready waits until the server has begun a session.
func (z *zooKeeper) ready(ctx context.Context) error {
	conn, err := dialZooKeeper([]string{z.addr})
	if err != nil {
		return err
	}
	defer conn.Close()
	timeout := time.After(time.Minute)
	for conn.State() != zk.StateHasSession {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-z.ended:
			return errors.New("it ended at once")
		case <-timeout:
			return errors.New("it does not answer")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (z *zooKeeper) close() error {
	_ = z.cmd.Process.Kill() // an error means that it has ended
	<-z.ended
	return os.RemoveAll(z.dir)
}
