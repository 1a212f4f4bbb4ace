package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-go/signalbox/examples/internal/demo"
	"github.com/signalbox-go/signalbox/lock/etcdlock"
	"github.com/signalbox-go/signalbox/lock/pglock"
	"github.com/signalbox-go/signalbox/lock/zklock"
)

// ttl is how long a lock stays after its holder died. A holder that works longer renews it.
const ttl = 3 * time.Second

// locks are the values of -lock.
var locks = []demo.Lock{
	{Name: "etcd", Works: true, New: inEtcd, Nodes: &demo.NodeKind{
		Name: "members", Default: 3, Min: 1, Max: 5, Start: startEtcd, Env: "ETCD_ENDPOINTS",
	}},
	{Name: "zookeeper", Works: true, New: inZooKeeper, Nodes: &demo.NodeKind{
		Name: "members", Default: 3, Min: 1, Max: 5, Start: startZooKeeper, Env: "ZOOKEEPER_SERVERS",
	}},
	{Name: "postgres", Works: true, Prepare: withTable, New: inPostgreSQL, Nodes: &demo.NodeKind{
		Name: "databases", Default: 1, Min: 1, Max: 1, Start: startPostgreSQL, Env: "DATABASE_URL",
	}},
}

// inEtcd is a lock in etcd.
func inEtcd(s demo.Settings) (demo.Guard, func() error, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses(s.Nodes), DialTimeout: ttl, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	l, err := etcdlock.New(client, etcdlock.Config{TTL: ttl})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return demo.With(l, s.Key), client.Close, nil
}

// inZooKeeper is a lock in ZooKeeper.
func inZooKeeper(s demo.Settings) (demo.Guard, func() error, error) {
	l, err := zklock.New(addresses(s.Nodes), zklock.Config{TTL: ttl, SessionTimeout: 4 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	return demo.With(l, s.Key), l.Close, nil
}

// inPostgreSQL is a lock in PostgreSQL.
func inPostgreSQL(s demo.Settings) (demo.Guard, func() error, error) {
	pool, err := pgxpool.New(context.Background(), s.Nodes[0])
	if err != nil {
		return nil, nil, errDatabase
	}
	l, err := pglock.New(pool, pglock.Config{TTL: ttl, Table: table(s.Key)})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return demo.With(l, s.Key), func() error { pool.Close(); return nil }, nil
}

// errDatabase doesn't show the URL, since it may contain a password.
var errDatabase = errors.New("DATABASE_URL can't be read; want postgres://user:password@host:5432/database")

// addresses splits lists of addresses.
func addresses(lists []string) []string {
	var all []string
	for _, list := range lists {
		for addr := range strings.SplitSeq(list, ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				all = append(all, addr)
			}
		}
	}
	return all
}
