package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// WaitReplicas makes the call return when n replicas of the Redis master have the job, 1 to 1,000. If they haven't within the timeout, 1 ms
// to 1 h, the error is a [*NotDurableError]: the job is in Redis, and runs. The timeout begins when Redis has the job, and is added to
// Config.EnqueueTimeout if ctx has no deadline. Its first two digits count, in whole ms: 4.987 s is 4.9 s.
//
// With that, a job survives the loss of the master if one of these replicas takes its place. That is likely and not certain: Redis promotes a
// replica that is behind if it knows no better one.
//
// Jobs that wait go in calls of their own, so others don't wait with them. If an option [WaitAOF] is given, too, the last one counts.
func WaitReplicas(n int, timeout time.Duration) BulkOption {
	return forBulk(func(o *options) {
		if n < 1 || n > maxReplicas {
			o.wrong("WaitReplicas", "%d; want 1 to %d", n, maxReplicas)
		}
		o.waitFor("WaitReplicas", store.Durability{Replicas: n, Timeout: timeout})
	})
}

// WaitAOF makes the call return when the job is on the disk of the Redis master, in its append-only file, and on the disks of so many replicas, 0
// to 1,000. The timeout and the error are those of [WaitReplicas]. The server must be Redis 7.2 or later, or Valkey, with appendonly yes. If it isn't,
// the error wraps [signalbox.ErrInvalid], and nothing is enqueued.
func WaitAOF(replicas int, timeout time.Duration) BulkOption {
	return forBulk(func(o *options) {
		if replicas < 0 || replicas > maxReplicas {
			o.wrong("WaitAOF", "%d replicas; want 0 to %d", replicas, maxReplicas)
		}
		o.waitFor("WaitAOF", store.Durability{Replicas: replicas, AOF: true, Timeout: timeout})
	})
}

const maxReplicas = 1000

func (o *options) waitFor(option string, d store.Durability) {
	if d.Timeout < time.Millisecond || d.Timeout > time.Hour {
		o.wrong(option, "a timeout of %v; want 1ms to 1h", d.Timeout)
	}
	d.Timeout = stepped(d.Timeout)
	o.durable = d
}

// stepped returns a timeout in whole ms with two digits, the others 0: 4.9s for 4.987s. Calls with the same timeout share lanes. So calls that wait until a
// deadline have a few lanes, and not one for each call.
func stepped(d time.Duration) time.Duration {
	step := time.Millisecond
	for d/step >= 100 {
		step *= 10
	}
	return d.Truncate(step)
}

// ErrNotDurable is wrapped by the error of an enqueue that has done its work but for [WaitReplicas] or [WaitAOF]: Redis has the job, but
// too few replicas or disks have confirmed it. See [NotDurableError].
var ErrNotDurable = errors.New("the job is enqueued, and not yet as durable as asked")

// A NotDurableError is the error of a job that Redis has, but not on as many replicas or disks as [WaitReplicas] or [WaitAOF] ask for. The job
// runs like any other. It may still be copied a moment later. If the master is lost before that, so is the job. It wraps
// [ErrNotDurable]. With its Again the call can be made again: it waits for the job that is there, or enqueues it if it was lost.
type NotDurableError struct {
	ID       string // of the job
	Replicas int    // that had the job when they were last heard of; with WaitAOF: on their disks
	Local    bool   // with WaitAOF: the master had it on its disk
	Err      error  // what happened; wraps ErrNotDurable

	incarnation uint64
}

func (e *NotDurableError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *NotDurableError) Unwrap() error { return e.Err }

// Again returns the option for making the call again. It sets the same ID, the same effect key, and [IfAbsent]. Give it after the options of
// the first call. If the job is there, New in the result is false, and the call waits until it is durable. If the job has
// completed meanwhile, it is enqueued again with the same [signalbox.Job.EffectKey]. With [Replace] or [Debounce] that isn't so: if the first call
// updated a job that was there, and that job has started since, the second call enqueues another one, with another effect key.
func (e *NotDurableError) Again() EnqueueOption {
	return (&UncertainError{ID: e.ID, incarnation: e.incarnation}).Again()
}

// undurable is the error of a call that Redis has run, before it is made a *NotDurableError for each job.
type undurable struct {
	reached store.Reached
	asked   store.Durability
	err     error // of the last try; nil if it had an answer
}

func (e *undurable) Error() string {
	text := fmt.Sprintf("%v: on %d of %d replicas after %v", ErrNotDurable, e.reached.Replicas, e.asked.Replicas, e.asked.Timeout)
	if e.asked.AOF {
		text = fmt.Sprintf("%v: on the master's disk: %t, on the disks of %d of %d replicas after %v", ErrNotDurable, e.reached.Local, e.reached.Replicas, e.asked.Replicas, e.asked.Timeout)
	}
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *undurable) Unwrap() []error { return []error{ErrNotDurable, e.err} }

// refusal returns an error if the server can't wait for its disk, as the calls are to. It asks once.
func (c *combiner) refusal() error {
	if c.fit.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := c.queue.Durable().HasAOF(ctx); err != nil {
		return fmt.Errorf(notEnqueued+"%w WaitAOF: the server can't wait for its disk; it must be Redis 7.2 or later, or Valkey, with appendonly yes: %w", signalbox.ErrInvalid, err)
	}
	c.fit.Store(true)
	return nil
}

// confirm waits until the call is durable. final is false if Redis has forgotten the call: then it must be made again. While it waits, each
// request has the outcome and the error that it gets if its caller leaves.
func (c *combiner) confirm(l *lane) (final bool, _ error) {
	if l.deadline.IsZero() {
		l.deadline = time.Now().Add(c.durable.Timeout)
	}
	for n := 0; ; n++ {
		left := c.durable
		left.Timeout = time.Until(l.deadline)
		reached, err := c.queue.Durable().Confirm(context.Background(), l.Lane, left)
		over := time.Until(l.deadline) <= 0 || store.CantWait(err)
		c.mu.Lock()
		switch {
		case errors.Is(err, store.ErrForgotten):
			l.in, l.doubt = false, true
			if l.busy = l.awaited > 0 && !over; l.busy {
				c.mu.Unlock()
				return false, err
			}
			c.mu.Unlock()
			return true, uncertain(err)
		case err == nil && reached.Meets(c.durable):
			l.in, l.busy = false, false
			c.mu.Unlock()
			return true, nil
		case over || l.awaited == 0:
			l.in, l.busy = false, false
			c.mu.Unlock()
			return true, &undurable{reached, c.durable, err}
		}
		for _, r := range l.requests {
			if !r.left {
				r.err = &undurable{reached, c.durable, err}
			}
		}
		c.mu.Unlock()
		if err != nil {
			time.Sleep(min(backoff(n), max(time.Until(l.deadline), 0)))
		}
	}
}

// enter notes that Redis has run the lane's call. Each request gets its outcome, and the error that it has if its caller leaves.
func (l *lane) enter(fates store.Fates, err error) {
	l.in = true
	l.handOver(fates)
	for _, r := range l.requests {
		if !r.left {
			r.err = err
		}
	}
}

// quit gives up a request whose outcome is known. The call doesn't touch it any more.
func (l *lane) quit(r *request) {
	r.left = true
	l.awaited--
}
