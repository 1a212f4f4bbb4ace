package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
)

// A plan says what a run does.
type plan struct {
	out        io.Writer
	redisURL   string // "": a Redis in this process
	schedulers int
	lasts      time.Duration
	verbose    bool
}

// patience is how long a run may take longer than planned, on a slow machine.
const patience = 60 * time.Second

// run starts the processes, kills one of them, and returns what became of the ticks.
func (p plan) run(ctx context.Context) (c count, err error) {
	if p.schedulers < 2 || p.lasts < 2*period {
		return c, fmt.Errorf("-schedulers %d -for %v: want 2 schedulers or more, and 2s or more", p.schedulers, p.lasts)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.lasts+patience, errors.New("it takes too long"))
	defer cancel()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	url := p.redisURL
	if url == "" {
		srv, err := embedded.Start()
		if err != nil {
			return c, err
		}
		defer srv.Close()
		url = "redis://" + srv.Addr()
	}
	opt, err := parseURL(url)
	if err != nil {
		return c, err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	namespace := "cron-" + strings.ToLower(rand.Text()[:12])
	if p.redisURL != "" {
		defer func() { err = errors.Join(err, clean(rdb, namespace)) }()
	}
	fmt.Fprintf(p.out, "an entry that ticks every %v, in %d scheduler processes\n", period, p.schedulers)
	begin := time.Now()
	crew := newCrew(url, namespace, p.verbose)
	defer crew.stop()
	for range p.schedulers {
		if err := crew.start(); err != nil {
			return c, err
		}
	}

	// The worker is in this process, and says which ticks ran.
	ran := make(chan time.Time)
	working, stopWork := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- work(working, rdb, namespace, func(tick time.Time) {
			select {
			case ran <- tick:
			case <-working.Done():
			}
		})
	}()
	defer func() {
		stopWork()
		err = errors.Join(err, <-ended)
	}()
	c = count{ticks: int(p.lasts / period), runs: make(map[time.Time]int)}
	for killed := false; ; {
		select {
		case tick := <-ran:
			if c.add(tick) { // a later one has run: all that were to be counted are here
				return c, nil
			}
			fmt.Fprintf(p.out, "%5.1fs  tick %s ran\n", time.Since(begin).Seconds(), tick.UTC().Format(time.TimeOnly))
			if !killed && len(c.runs) > c.ticks/2 {
				killed = true
				fmt.Fprintf(p.out, "%5.1fs  one scheduler is killed\n", time.Since(begin).Seconds())
				if err := crew.kill(); err != nil {
					return c, err
				}
			}
		case err := <-crew.failed:
			return c, err
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}

// A count has the ticks of a period that begins with the first one that ran.
type count struct {
	ticks int // that the period has
	first time.Time
	runs  map[time.Time]int // by tick
}

// add counts a run. It reports whether its tick comes after the period.
func (c *count) add(tick time.Time) (after bool) {
	if c.first.IsZero() || tick.Before(c.first) {
		c.first = tick
	}
	if !tick.Before(c.first.Add(time.Duration(c.ticks) * period)) {
		return true
	}
	c.runs[tick]++
	return false
}

// sums returns how many jobs ran, how many ticks had none, and how many jobs ran for a tick that had one.
func (c *count) sums() (runs, missed, doubled int) {
	for _, n := range c.runs {
		runs += n
		doubled += n - 1
	}
	return runs, c.ticks - len(c.runs), doubled
}

// String returns the last line.
func (c count) String() string {
	runs, missed, doubled := c.sums()
	return fmt.Sprintf("cron: ticks=%d runs=%d missed=%d doubled=%d", c.ticks, runs, missed, doubled)
}

func (c count) problem() error {
	if _, missed, doubled := c.sums(); missed != 0 || doubled != 0 {
		return fmt.Errorf("%d ticks were missed, and %d came twice", missed, doubled)
	}
	return nil
}

// clean deletes the keys of a namespace. docs/wire.md lists them.
func clean(rdb *redis.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys := rdb.Scan(ctx, 0, "signalbox:{"+namespace+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := rdb.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// parseURL leaves the URL out of its error, since it may contain a password.
func parseURL(url string) (*redis.Options, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New(envRedis + " can't be read; want redis://host:6379/0, rediss://... or unix:///path/to.sock")
	}
	opt.ContextTimeoutEnabled = true // else go-redis ignores the deadlines of contexts
	return opt, nil
}
