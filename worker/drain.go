package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A drain is the end of a queue's work. It begins with the end of Run's context, in the goroutine of queue.run, and ends when no delivery is left. The
// queue's mu guards all its fields but q and sign.
type drain struct {
	q    *queue
	sign chan struct{} // closed when it begins: the handlers' sign

	since     time.Time  // when it began; zero: it hasn't
	settled   *sync.Cond // a delivery came to its end
	done      bool       // nothing is left to settle: the lanes end
	abandoned int        // settlements that never reached Redis
	failure   error      // why the latest of them didn't
	returned  time.Time  // when a handler last returned, since it began
	leave     func()     // ends the calls under way
}

func newDrain(q *queue) drain {
	return drain{q: q, sign: make(chan struct{}), settled: sync.NewCond(&q.mu)}
}

// run waits for running handlers, until Config.DrainTimeout has passed or halted has ended. Then it ends their contexts and
// continues to wait.
func (dr *drain) run(halted context.Context) error {
	dr.q.mu.Lock()
	dr.q.dispatch.stopping = true
	dr.q.dispatch.tell() // its share goes to others at once
	dr.since = time.Now()
	dr.q.tell(telemetry.EventShutdown, nil)
	running := 0
	for _, s := range dr.q.sessions {
		running += s.running
	}
	dr.q.alarm.stop()
	if dr.q.busy() {
		dr.q.dispatch.probe = true // the last call takes back the request to be woken
	}
	dr.q.mu.Unlock()
	close(dr.sign) // not earlier: a job that a handler hands over now must not be claimed here again
	dr.q.dispatch.changed.Broadcast()
	if running > 0 {
		dr.q.log.Info("signalbox: stopping; handlers may end what they do", "jobs", running, "within", max(dr.q.w.cfg.DrainTimeout, 0).String())
	}

	over := time.AfterFunc(max(dr.q.w.cfg.DrainTimeout, 0), func() { dr.shutDown(signalbox.ErrShutdown) })
	defer over.Stop()
	defer context.AfterFunc(halted, func() { dr.shutDown(signalbox.ErrShutdown) })()

	dr.q.mu.Lock()
	defer dr.q.mu.Unlock()
	for dr.q.busy() {
		dr.settled.Wait()
	}
	dr.done = true
	dr.q.dispatch.changed.Broadcast()
	if dr.abandoned > 0 {
		return unheard(dr.q.store.Name(), dr.abandoned, dr.failure)
	}
	return nil
}

// unheard returns the error of a queue with so many deliveries whose end never reached Redis, and why.
func unheard(queue string, n int, why error) error {
	what, again := "the delivery of 1 job", "it runs"
	if n != 1 {
		what, again = fmt.Sprintf("the deliveries of %d jobs", n), "they run"
	}
	return fmt.Errorf("worker: queue %q: Redis was not told how %s ended, and %s again: %w", queue, what, again, why)
}

// why returns why the calls at the end of the drain failed.
func (dr *drain) why() error {
	dr.q.mu.Lock()
	defer dr.q.mu.Unlock()
	return cmp.Or(dr.failure, errSilent)
}

// busy reports whether handlers run or calls are under way. q.mu is held.
func (q *queue) busy() bool {
	for _, s := range q.sessions {
		if s.running > 0 || s.unconfirmed > 0 || s.calls > 0 {
			return true
		}
	}
	return false
}

// shutDown ends the contexts of all handlers that still run.
func (dr *drain) shutDown(cause error) {
	dr.q.mu.Lock()
	sessions := append([]*session(nil), dr.q.sessions...)
	dr.q.mu.Unlock()
	for _, s := range sessions {
		s.end(cause)
	}
}

// close ends the sessions. They have no deliveries left.
func (q *queue) close(lanes []*store.Lane) {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions = nil
	q.keeper.claimUnder(nil)
	q.mu.Unlock()
	for _, s := range sessions {
		q.keeper.closeSession(s, true, lanes...)
	}
}

// hurryAfter limits the calls that end a drain: those that report outcomes and those that close sessions. With the default drain
// timeout Run then ends within 27.5 s, before an orchestrator kills the process at 30 s.
const hurryAfter = 2500 * time.Millisecond

// hurry ends calls that are still under way after the drain timeout, once no handler runs. It closes the worker's own client, which
// ends the calls that wait for a reply. It returns when done is closed.
func (w *Worker) hurry(ctx, halted context.Context, done <-chan struct{}, queues []*queue, release func()) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	drained := time.NewTimer(max(w.cfg.DrainTimeout, 0))
	defer drained.Stop()
	select {
	case <-done:
		return
	case <-halted.Done():
	case <-drained.C:
	}
	for wait := hurryAfter; wait > 0; wait = patience(queues) {
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
	}
	for _, q := range queues {
		q.mu.Lock()
		leave := q.drain.leave
		q.mu.Unlock()
		if leave != nil {
			leave()
		}
	}
	release()
}

// patience returns how much longer hurry waits for the calls of the queues.
func patience(queues []*queue) time.Duration {
	var most time.Duration
	for _, q := range queues {
		q.mu.Lock()
		for _, s := range q.sessions {
			if s.running > 0 {
				most = hurryAfter
			}
		}
		if !q.drain.returned.IsZero() {
			most = max(most, hurryAfter-time.Since(q.drain.returned))
		}
		q.mu.Unlock()
	}
	return most
}
