package store

import (
	"context"
	"time"
)

// A Cron is a queue for those who have to do with its cron entries: schedulers, which say which entries they have and enqueue the jobs of ticks, and those who
// look at entries, and pause, run or forget them.
type Cron struct{ q *Queue }

// Cron returns the queue for its cron entries.
func (q *Queue) Cron() *Cron { return &Cron{q: q} }

// Now returns the server's clock.
func (c *Cron) Now(ctx context.Context) (time.Time, error) { return c.q.Now(ctx) }

// NewLane returns a lane for calls of EnqueueTicks.
func (c *Cron) NewLane() *Lane { return c.q.NewLane() }
