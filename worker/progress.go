package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/store"
)

// progressEvery is how long after the first report that Redis doesn't have those of all jobs are written.
const progressEvery = time.Second

// A longJob is what a delivery has of a handler that says how far it is, saves what later deliveries are to have, or has jobs follow. The zero value is ready.
type longJob struct {
	progress progress
	saves    atomic.Pointer[saver]    // nil: nobody has asked for it
	follows  atomic.Pointer[follower] // the same
	member   atomic.Pointer[member]   // the same
}

// A progress is what a handler has said last of how far its job is, and what the worker does about it. The zero value is ready.
type progress struct {
	last  atomic.Pointer[report] // nil: it has said nothing
	fresh atomic.Bool            // the keeper is to write it
}

type report struct {
	handlerctx.Report
	at time.Time
}

// Report implements [handlerctx.Reporter] for the handlers. Only the first report since the last write takes a lock.
func (d *delivery) Report(r handlerctx.Report) {
	d.long.progress.last.Store(&report{r, time.Now()})
	if d.long.progress.fresh.CompareAndSwap(false, true) {
		d.session.queue.keeper.reported(d.session)
	}
}

// reported has the keeper write the session's progress within progressEvery. It doesn't wait.
func (k *keeper) reported(s *session) {
	k.q.mu.Lock()
	defer k.q.mu.Unlock()
	s.progress.fresh = true
	if k.reporting {
		return
	}
	k.reporting = true
	time.AfterFunc(progressEvery, func() {
		select {
		case k.progressNews <- struct{}{}:
		default: // the keeper's goroutine has ended
		}
	})
}

// sessionProgress is what Redis has of the progress of a session's jobs. The queue's mu guards it.
type sessionProgress struct {
	fresh   bool      // there are reports since the last write
	told    bool      // Redis has some, until it expires
	written time.Time // when it was last written; zero if that failed
}

// writeAllProgress writes the progress of all sessions that has changed.
func (k *keeper) writeAllProgress(ctx context.Context) {
	k.q.mu.Lock()
	k.reporting = false // what is reported from here on is for the next write
	sessions := append([]*session(nil), k.q.sessions...)
	k.q.mu.Unlock()
	for _, s := range sessions {
		k.q.mu.Lock()
		due := s.progress.fresh && !s.failing && !s.over() // else the renewal comes first, and writes it
		k.q.mu.Unlock()
		if due {
			k.writeProgress(ctx, s)
		}
	}
}

// keepProgress is called after a renewal. It writes the session's progress again before it expires, and what could not be written.
func (k *keeper) keepProgress(ctx context.Context, s *session) {
	k.q.mu.Lock()
	due := s.progress.told && time.Since(s.progress.written) > k.q.w.cfg.SessionTTL/2 || s.progress.fresh && !k.reporting
	k.q.mu.Unlock()
	if due {
		k.writeProgress(ctx, s)
	}
}

// writeProgress writes how far the jobs of a session are, for as long as the session lasts without another renewal. Nothing depends on that. So
// it takes little of the time in which a renewal is due.
func (k *keeper) writeProgress(ctx context.Context, s *session) {
	k.q.mu.Lock()
	s.progress.fresh = false
	var jobs []store.Progress
	for d := range k.q.slots.running() {
		if d.session != s || d.returned {
			continue
		}
		d.long.progress.fresh.Store(false) // before the report is read
		if r := d.long.progress.last.Load(); r != nil {
			jobs = append(jobs, store.Progress{ID: d.id, Token: d.token, Done: r.Done, Total: r.Total, Note: r.Note, At: k.clock.server(r.at)})
		}
	}
	needed := len(jobs) > 0 || s.progress.told
	s.progress.told = len(jobs) > 0
	s.progress.written = time.Now()
	k.q.mu.Unlock()
	if !needed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, k.q.w.cfg.SessionTTL/6))
	defer cancel()
	if k.q.own.Sessions().WriteProgress(ctx, s.id, k.q.w.cfg.SessionTTL, jobs) != nil {
		k.q.mu.Lock()
		s.progress.told, s.progress.written = true, time.Time{} // the next renewal writes it
		k.q.mu.Unlock()
	}
}
