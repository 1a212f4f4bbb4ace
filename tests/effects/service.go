package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/etcdlock"
	"github.com/signalbox-go/signalbox/lock/pglock"
	"github.com/signalbox-go/signalbox/lock/redlock"
	"github.com/signalbox-go/signalbox/lock/zklock"
)

var lockers = []string{"single", "redlock", "etcd", "zookeeper", "postgres"}

// A service is the servers of a lock, as the processes need to know them.
type service struct {
	Locker string
	Addrs  []string
	TTL    time.Duration
	Key    string // of the lock
}

// startService starts the servers of a locker. Stop them, even after an error.
func startService(ctx context.Context, locker string, how size) (s service, stop func(), err error) {
	s = service{Locker: locker, TTL: time.Second, Key: "counter:" + locker}
	if how.ttl > 0 {
		s.TTL = how.ttl
	}
	var servers []*servertest.Server
	switch locker {
	case "single":
		return startRedis(s, 1)
	case "redlock":
		return startRedis(s, 3)
	case "etcd":
		s.TTL = 2 * time.Second // etcd grants no shorter lease
		servers, err = servertest.NewEtcd(how.members, "--logger=zap", "--log-level=error")
	case "zookeeper":
		servers, err = servertest.NewZooKeeper(how.members, fmt.Sprintf("tickTime=%d", zkSession.Milliseconds()/2))
	case "postgres":
		server, err := servertest.NewPostgreSQL("fsync=off", "max_connections=200")
		if err != nil {
			return s, func() {}, err
		}
		s.Addrs = []string{servertest.PostgresURL(server.Addr())}
		return s, server.Close, createLocks(ctx, s.Addrs[0])
	default:
		err = fmt.Errorf("the locker %q; want one of %s", locker, strings.Join(lockers, ", "))
	}
	for _, server := range servers {
		s.Addrs = append(s.Addrs, server.Addr())
	}
	return s, func() {
		for _, server := range servers {
			server.Close()
		}
	}, err
}

// createLocks makes the table of locks.
func createLocks(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	schema, err := pglock.Schema(pglock.DefaultTable)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, schema)
	return err
}

// zkSession is the session's timeout. A waiter that died keeps its place in the queue for so long.
const zkSession = 2 * time.Second

// newLocker makes a process' locker.
func (s service) newLocker() (lock.Locker, func(), error) {
	switch s.Locker {
	case "single":
		rdb := redis.NewClient(&redis.Options{Addr: s.Addrs[0], ContextTimeoutEnabled: true})
		r, err := lock.New(rdb, lock.Config{TTL: s.TTL})
		return r, func() { _ = rdb.Close() }, err
	case "redlock":
		var nodes []*redis.Options
		for _, addr := range s.Addrs {
			nodes = append(nodes, &redis.Options{Addr: addr})
		}
		r, err := redlock.New(nodes, redlock.Config{TTL: s.TTL, NodeTimeout: 200 * time.Millisecond, NoRestartDelay: true})
		if err != nil {
			return nil, nil, err
		}
		return r, func() { _ = r.Close() }, nil
	case "etcd":
		client, err := clientv3.New(clientv3.Config{Endpoints: s.Addrs, DialTimeout: patience, Logger: zap.NewNop()})
		if err != nil {
			return nil, nil, err
		}
		l, err := etcdlock.New(client, etcdlock.Config{TTL: s.TTL})
		if err != nil {
			return nil, nil, errors.Join(err, client.Close())
		}
		return l, func() { _ = client.Close() }, nil
	case "zookeeper":
		l, err := zklock.New(s.Addrs, zklock.Config{TTL: s.TTL, SessionTimeout: zkSession})
		if err != nil {
			return nil, nil, err
		}
		return l, func() { _ = l.Close() }, nil
	case "postgres":
		pool, err := pgxpool.New(context.Background(), s.Addrs[0])
		if err != nil {
			return nil, nil, err
		}
		l, err := pglock.New(pool, pglock.Config{TTL: s.TTL})
		if err != nil {
			pool.Close()
			return nil, nil, err
		}
		return l, pool.Close, nil
	}
	return nil, nil, fmt.Errorf("the locker %q; want one of %s", s.Locker, strings.Join(lockers, ", "))
}
