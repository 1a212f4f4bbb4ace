package worker

import (
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// drain waits for the handlers that run, for as long as Config says, then ends their contexts
// and waits on.
func (q *queue) drain() error {
	q.mu.Lock()
	q.stopping = true
	q.tell(telemetry.EventShutdown, nil)
	running := 0
	for _, s := range q.sessions {
		running += s.running
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.mu.Unlock()
	q.changed.Broadcast()
	q.listener.update()
	if running > 0 {
		q.log.Info("signalbox: stopping; handlers may end what they do", "jobs", running, "within", max(q.w.cfg.DrainTimeout, 0))
	}

	over := time.AfterFunc(max(q.w.cfg.DrainTimeout, 0), func() { q.shutDown(signalbox.ErrShutdown) })
	defer over.Stop()

	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy() {
		q.settled.Wait()
	}
	q.drained = true
	q.changed.Broadcast()
	if q.abandoned > 0 {
		return fmt.Errorf("worker: queue %q: Redis was not there to hear of %d finished jobs; they run again", q.store.Name(), q.abandoned)
	}
	return nil
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

// shutDown ends the contexts of the handlers that still run.
func (q *queue) shutDown(cause error) {
	q.mu.Lock()
	sessions := append([]*session(nil), q.sessions...)
	q.mu.Unlock()
	for _, s := range sessions {
		s.end(cause)
	}
}

// close ends the sessions, which have nothing left.
func (q *queue) close(lanes []*store.Lane) {
	q.mu.Lock()
	sessions := q.sessions
	q.sessions, q.session = nil, nil
	q.mu.Unlock()
	for _, s := range sessions {
		q.closeSession(s, lanes...)
	}
}
