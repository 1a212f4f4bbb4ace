package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if isChild() {
		exitOn(child())
		return
	}
	redistest.Main(m)
}

// TestRun: one of two schedulers is killed. No tick is missed, none comes twice, and no key is left.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "", "REDIS_URL": "redis://" + redistest.Start(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			c, err := plan{out: &out, redisURL: url, schedulers: 2, lasts: 3 * time.Second}.run(t.Context())
			if got := c.String(); err != nil || got != "cron: ticks=3 runs=3 missed=0 doubled=0" || c.problem() != nil {
				t.Errorf("%s, %v\n%s", got, err, &out)
			}
			if !strings.Contains(out.String(), "one scheduler is killed") {
				t.Errorf("no scheduler was killed:\n%s", &out)
			}
			if url == "" {
				return
			}
			keys, err := redistest.Start(t).Client().Keys(context.Background(), "signalbox:{cron-*").Result()
			if err != nil || len(keys) > 0 {
				t.Errorf("left in Redis: %q, %v", keys, err)
			}
		})
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	c := count{ticks: 4, runs: make(map[time.Time]int)}
	for _, s := range []int{10, 11, 11, 13, 11} {
		if c.add(at(s)) {
			t.Errorf("%d is after the period", s)
		}
	}
	if !c.add(at(14)) {
		t.Error("14 is in the period")
	}
	if got := c.String(); got != "cron: ticks=4 runs=5 missed=1 doubled=2" || c.problem() == nil {
		t.Errorf("%s: %v", got, c.problem())
	}
}

func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for _, p := range []plan{{schedulers: 1, lasts: time.Minute}, {schedulers: 2, lasts: time.Second}} {
		p.out = io.Discard
		if _, err := p.run(t.Context()); err == nil {
			t.Errorf("%+v is no error", p)
		}
	}
	secret := plan{out: io.Discard, redisURL: "ftp://user:secret@127.0.0.1", schedulers: 2, lasts: 2 * time.Second}
	if _, err := secret.run(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong URL: %v", err)
	}
}
