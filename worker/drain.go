package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// drain waits for running handlers, until Config.DrainTimeout has passed or halted has ended. Then it ends their contexts and
// continues to wait.
func (q *queue) drain(halted context.Context) error {
	q.mu.Lock()
	q.dispatch.stopping = true
	q.stopping = time.Now()
	q.tell(telemetry.EventShutdown, nil)
	running := 0
	for _, s := range q.sessions {
		running += s.running
	}
	q.alarm.stop()
	if q.busy() {
		q.dispatch.probe = true // the last call takes back the request to be woken
	}
	q.mu.Unlock()
	close(q.draining) // not earlier: a job that a handler hands over now must not be claimed here again
	q.dispatch.changed.Broadcast()
	if running > 0 {
		q.log.Info("signalbox: stopping; handlers may end what they do", "jobs", running, "within", max(q.w.cfg.DrainTimeout, 0).String())
	}

	over := time.AfterFunc(max(q.w.cfg.DrainTimeout, 0), func() { q.shutDown(signalbox.ErrShutdown) })
	defer over.Stop()
	defer context.AfterFunc(halted, func() { q.shutDown(signalbox.ErrShutdown) })()

	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy() {
		q.settled.Wait()
	}
	q.drained = true
	q.dispatch.changed.Broadcast()
	if q.abandoned > 0 {
		return unheard(q.store.Name(), q.abandoned)
	}
	return nil
}

// unheard returns the error of a queue with so many deliveries whose end never reached Redis.
func unheard(queue string, n int) error {
	what, again := "the delivery of 1 job", "it runs"
	if n != 1 {
		what, again = fmt.Sprintf("the deliveries of %d jobs", n), "they run"
	}
	return fmt.Errorf("worker: queue %q: Redis didn't answer when %s ended; %s again", queue, what, again)
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
func (q *queue) shutDown(cause error) {
	q.mu.Lock()
	sessions := append([]*session(nil), q.sessions...)
	q.mu.Unlock()
	for _, s := range sessions {
		s.end(cause)
	}
}

// close ends the sessions. They have no deliveries left.
func (q *queue) close(lanes []*store.Lane) {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions = nil
	q.claimUnder(nil)
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
		leave := q.leave
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
		if !q.returned.IsZero() {
			most = max(most, hurryAfter-time.Since(q.returned))
		}
		q.mu.Unlock()
	}
	return most
}
