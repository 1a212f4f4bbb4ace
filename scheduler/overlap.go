package scheduler

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// clearedPerCall bounds the entries whose jobs one goroutine cancels.
const clearedPerCall = 100

// A clearing cancels the jobs that newer ones of their entries have replaced. The enqueue that put the newer one in has noted the others in
// Redis, so every scheduler that hears of the tick can do it, and it can be done again.
type clearing struct {
	names  []string        // entries
	has    map[string]bool // the same
	flying bool            // a call is in flight
	fails  int             // in a row
	next   time.Time
}

// replaced has the jobs cancelled that the newest of an entry with CancelOther has replaced.
func (l *loop) replaced(e *ticking) {
	if e.overlap == store.OverlapCancel {
		l.clearing.add(e.name)
	}
}

func (c *clearing) add(name string) {
	if c.has == nil {
		c.has = make(map[string]bool)
	}
	if !c.has[name] {
		c.has[name] = true
		c.names = append(c.names, name)
	}
}

// clear makes the next call that cancels jobs, if it is time. It returns the time until then.
func (l *loop) clear(ctx context.Context, now time.Time) time.Duration {
	c := &l.clearing
	if c.flying || len(c.names) == 0 {
		return longestSleep
	}
	if due := c.next.Sub(now); due > 0 {
		return due
	}
	n := min(len(c.names), clearedPerCall)
	some := c.names[:n:n]
	c.names, c.flying = c.names[n:], true
	for _, name := range some {
		delete(c.has, name)
	}
	l.call(ctx, func(ctx context.Context) func() {
		var err error
		live := make([]int, len(some)) // how many jobs of each
		done := 0
		for ; done < len(some) && err == nil; done++ {
			live[done], err = l.server.CancelOverlapped(ctx, some[done])
		}
		if err != nil {
			done--
		}
		got := l.s.now()
		return func() {
			c.flying = false
			for i, n := range live[:done] {
				if n > 0 {
					l.s.log.Info("scheduler: cron: a tick has cancelled the jobs of the entry before it", "entry", some[i], "queue", l.queue, "jobs", n)
				}
			}
			if err == nil {
				c.fails = 0
				return
			}
			if c.fails == 0 {
				l.s.log.Warn("scheduler: cron: the jobs that a tick replaces could not be cancelled; it is tried again",
					"entry", some[done], "queue", l.queue, "error", explain(err))
			}
			c.next = got.Add(backoff(c.fails))
			c.fails++
			for _, name := range some[done:] {
				c.add(name)
			}
		}
	})
	return longestSleep
}
