package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
)

// servers is the number of server processes, and of requests.
const servers = 5

// run runs the whole demonstration. An empty redisURL means a Redis in this process.
func run(ctx context.Context, c choices, redisURL string, out io.Writer) (sum summary, err error) {
	defer func() {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}()
	s := settings{redisURL: redisURL, lock: c.lock, prefix: "{items-" + strings.ToLower(rand.Text()[:12]) + "}:"}
	where := "the server of " + envRedis
	if redisURL == "" {
		srv, err := embedded.Start()
		if err != nil {
			return summary{}, err
		}
		defer srv.Close()
		s.redisURL, where = "redis://"+srv.Addr(), "a server inside this process"
	}
	opt, err := parseURL(s.redisURL)
	if err != nil {
		return summary{}, err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	items := store{rdb, s.prefix + "items"}
	if _, err := items.count(ctx); err != nil {
		return summary{}, fmt.Errorf("the store does not answer: %w", err)
	}
	if redisURL != "" {
		defer func() { err = errors.Join(err, deleteAll(rdb, s.prefix)) }()
	}
	fmt.Fprintf(out, "items: lock %s; the items are in %s on %s\n", c.lock, items.key, where)

	// The masters, if the lock is Redlock. They are independent of each other and of the store.
	var nodes masters
	if c.lock == "redlock" {
		defer func() { nodes.kill(len(nodes)) }()
		if nodes, err = startMasters(ctx, c.masters); err != nil {
			return summary{}, err
		}
		s.masters = nodes.addrs()
		fmt.Fprintf(out, "items: %d masters, on %s\n", len(nodes), strings.Join(s.masters, " "))
	}

	// The servers, each a process.
	crew, err := startCrew(ctx, s, servers)
	defer crew.stop()
	if err != nil {
		return summary{}, err
	}
	fmt.Fprintf(out, "items: %d servers, on %s\n", len(crew), strings.Join(crew.urls(), " "))
	if c.kill > 0 {
		nodes.kill(c.kill)
		fmt.Fprintf(out, "items: %d masters are killed\n", c.kill)
	}

	// The requests, all at once.
	sum = summary{choices: c}
	for a := range post(ctx, crew.urls()) {
		if a.err != nil {
			return sum, a.err
		}
		fmt.Fprintf(out, "  server %d: %d %s\n", a.server, a.status, a.body)
		sum.add(a.status)
	}
	sum.stored, err = items.count(ctx)
	return sum, err
}
