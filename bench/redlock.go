package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

const masters = 5

// ourRedlock has default options. The servers were just started, so they would not count for
// the first 30 s.
func ourRedlock(addrs []string) (grab, func() error, error) {
	nodes := make([]*redis.Options, len(addrs))
	for i, addr := range addrs {
		nodes[i] = &redis.Options{Addr: addr}
	}
	r, err := redlock.New(nodes, redlock.Config{NoRestartDelay: true})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) (func() error, error) {
		var l lock.Lock
		err := patiently(func() (err error) {
			l, err = r.Acquire(ctx, key)
			return err
		})
		if err != nil {
			return nil, err
		}
		return func() error { return patiently(func() error { return l.Release(ctx) }) }, nil
	}, r.Close, nil
}

// patiently asks again if too few nodes answered: where other programs use the processors too, the
// servers can take longer than a node has. It is part of what is measured.
func patiently(do func() error) error {
	for try := 1; ; try++ {
		err := do()
		var q *lock.QuorumError
		if !errors.As(err, &q) || try == 10 {
			return err
		}
	}
}

// redlockCycles runs n cycles on five masters, in so many goroutines, each with a key of its own.
func redlockCycles(open library, goroutines int) measure {
	return func(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
		servers, err := startMasters(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, servers.close()) }()
		return cycles(ctx, open, servers.addrs(), goroutines, n)
	}
}

// redlockTwoDown takes a lock n times while two of the masters are stopped: they accept connections
// and requests, and don't answer. The samples are how long each acquire took, ms.
func redlockTwoDown(open library) measure {
	return func(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
		servers, err := startMasters(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, servers.close()) }()
		acquire, closeAll, err := open(servers.addrs())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		if err := cycle(ctx, acquire, lockKey); err != nil {
			return nil, err
		}
		for _, s := range servers[:2] {
			if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				return nil, err
			}
		}
		var waited []float64
		for i := range n {
			begin := time.Now()
			release, err := acquire(ctx, fmt.Sprint(lockKey, i))
			if err != nil {
				return nil, err
			}
			waited = append(waited, float64(time.Since(begin))/float64(time.Millisecond))
			if err := release(); err != nil {
				return nil, err
			}
		}
		return [][]float64{waited}, nil
	}
}

type servers []*server

// startMasters starts five servers that know nothing of each other.
func startMasters(ctx context.Context) (servers, error) { return startServers(ctx, masters, false) }

// startServers starts n servers at the same time.
func startServers(ctx context.Context, n int, nodes bool) (servers, error) {
	all := make(servers, n)
	err := each(n, func(i int) (err error) {
		all[i], err = startServer(ctx, nodes)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, all.close())
	}
	return all, nil
}

func (s servers) addrs() []string {
	list := make([]string, len(s))
	for i := range s {
		list[i] = s[i].addr
	}
	return list
}

func (s servers) close() error {
	return each(len(s), func(i int) error {
		if s[i] == nil {
			return nil
		}
		_ = s[i].cmd.Process.Signal(syscall.SIGCONT) // else it doesn't end
		return s[i].close()
	})
}
