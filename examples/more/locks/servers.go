package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/examples/internal/demo"
	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// electing bounds the time in which the servers that are left elect a leader.
const electing = 20 * time.Second

// servers are those that this process started.
type servers struct {
	all    []*servertest.Server
	addrs  []string
	serves func(*servertest.Server) bool
}

func (s servers) Addrs() []string { return s.addrs }

// Kill ends the first n like a crash. If the others are a majority, it returns when they serve: if a leader was killed,
// they first elect another one, which takes a few seconds.
func (s servers) Kill(n int) {
	for _, server := range s.all[:n] {
		server.Kill()
	}
	if len(s.all)-n <= len(s.all)/2 {
		return
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(electing)
	for _, server := range s.all[n:] {
		for !s.serves(server) && time.Now().Before(end) {
			<-tick.C
		}
	}
}

func (s servers) Close() {
	for _, server := range s.all {
		server.Close()
	}
}

func started(all []*servertest.Server, err error, serves func(*servertest.Server) bool) (demo.Nodes, error) {
	if err != nil {
		return servers{}, err // the package has closed those that did start
	}
	s := servers{all: all, serves: serves}
	for _, server := range all {
		s.addrs = append(s.addrs, server.Addr())
	}
	return s, nil
}

func startEtcd(_ context.Context, n int) (demo.Nodes, error) {
	all, err := servertest.NewEtcd(n)
	return started(all, err, etcdServes)
}

// etcdServes reports whether a member has a leader that answers.
func etcdServes(s *servertest.Server) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + s.Addr() + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func startZooKeeper(_ context.Context, n int) (demo.Nodes, error) {
	all, err := servertest.NewZooKeeper(n)
	return started(all, err, func(s *servertest.Server) bool { return servertest.ZooKeeperMode(s) != "" })
}

func startPostgreSQL(context.Context, int) (demo.Nodes, error) {
	server, err := servertest.NewPostgreSQL()
	if err != nil {
		return servers{}, err
	}
	return servers{all: []*servertest.Server{server}, addrs: []string{servertest.PostgresURL(server.Addr())}}, nil
}

// table returns the name of the table of locks of one run.
func table(key string) string {
	name := strings.TrimPrefix(key, "{items-")
	name, _, _ = strings.Cut(name, "}")
	return "items_lock_" + name
}

// withTable makes the table of locks. undo drops it.
func withTable(ctx context.Context, s demo.Settings) (undo func(context.Context) error, err error) {
	name := table(s.Key)
	schema, err := pglock.Schema(name)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, statement string) error {
		pool, err := pgxpool.New(ctx, s.Nodes[0])
		if err != nil {
			return errDatabase
		}
		defer pool.Close()
		_, err = pool.Exec(ctx, statement)
		return err
	}
	if err := run(ctx, schema); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return run(ctx, "DROP TABLE "+name) }, nil
}
