package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
)

// Servers is the number of server processes, and of requests.
const Servers = 5

// Run runs the whole demonstration with these flags. An empty redisURL means a Redis in this process.
func Run(ctx context.Context, locks []Lock, args []string, redisURL string, out io.Writer) (Summary, error) {
	c, err := parse(locks, args, out)
	if err != nil {
		return Summary{}, err
	}
	return run(ctx, c, redisURL, out)
}

// run runs the whole demonstration. An empty redisURL means a Redis in this process.
func run(ctx context.Context, c choices, redisURL string, out io.Writer) (sum Summary, err error) {
	defer func() {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}()
	s := settings{redisURL: redisURL, lock: c.lock.Name, prefix: "{items-" + strings.ToLower(rand.Text()[:12]) + "}:"}
	where := "the server of " + envRedis
	if redisURL == "" {
		srv, err := embedded.Start()
		if err != nil {
			return Summary{}, err
		}
		defer srv.Close()
		s.redisURL, where = "redis://"+srv.Addr(), "a server inside this process"
	}
	opt, err := parseURL(s.redisURL)
	if err != nil {
		return Summary{}, err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	items := store{rdb, s.prefix + "items"}
	if _, err := items.count(ctx); err != nil {
		return Summary{}, fmt.Errorf("the store does not answer: %w", err)
	}
	if redisURL != "" {
		defer func() { err = errors.Join(err, deleteAll(rdb, s.prefix)) }()
	}
	fmt.Fprintf(out, "items: lock %s; the items are in %s on %s\n", c.lock.Name, items.key, where)

	// The lock's own nodes, if it has some. They are independent of the store.
	nodes, err := startNodes(ctx, c, &s, out)
	if nodes != nil {
		defer nodes.Close()
	}
	if err != nil {
		return Summary{}, err
	}

	if c.lock.Prepare != nil {
		undo, err1 := c.lock.Prepare(ctx, s.shared(nil))
		if err1 != nil {
			return Summary{}, fmt.Errorf("the lock can't be prepared: %w", err1)
		}
		defer func() {
			if c.kill == 0 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				err = errors.Join(err, undo(ctx))
			}
		}()
	}

	// The servers, each a process.
	crew, err := startCrew(ctx, s, Servers)
	defer crew.stop()
	if err != nil {
		return Summary{}, err
	}
	fmt.Fprintf(out, "items: %d servers, on %s\n", len(crew), strings.Join(crew.urls(), " "))
	if c.kill > 0 {
		nodes.Kill(c.kill)
		fmt.Fprintf(out, "items: %d %s are killed\n", c.kill, c.lock.Nodes.Name)
	}

	// The requests, all at once.
	sum = Summary{choices: c}
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
