package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A session is the lease under which a worker holds the jobs of a queue. The queue's mu guards all fields but queue, id
// and validity.
type session struct {
	queue    *queue
	id       string
	validity *lease.Validity

	renewedUntil time.Time          // Redis keeps it at least until then, by its last reply
	opened       time.Time          // by Redis's clock
	written      time.Time          // when it was last renewed, by Redis's clock
	running      int                // deliveries whose handlers run
	completed    []store.Settlement // to be sent: jobs that are done
	others       []store.Settlement // and those that ended otherwise
	thens        []store.Completion // and those that are done and have follow-ups
	unconfirmed  int                // settlements that Redis hasn't confirmed, sent or not
	calls        int                // calls under way
	suspects     int                // suspects that run, or whose settlements were not sent yet
	barred       bool               // claims ask for no suspects: some run, and the last claim that asked got none
	lost         bool               // its loss is in metrics and traces
	failing      bool               // that it can't be renewed is in traces
	failure      error              // why it was not renewed, by the last call; nil: no call has failed

	toldStuck bool // Redis has a list of its stuck handlers
	progress  sessionProgress

	address string      // where its wake-ups are heard; "": nowhere yet
	unnoted []*delivery // those whose notes Redis doesn't have yet
}

// take takes as many settlements as go in one call, completed ones first. It leaves the next ones the room of a spare.
func (s *session) take(spares *[][]store.Settlement) []store.Settlement {
	batch := s.completed
	s.completed = nil
	if last := len(*spares) - 1; last >= 0 {
		s.completed, *spares = (*spares)[last], (*spares)[:last]
	}
	if n := store.Fit(batch); n < len(batch) {
		batch, s.completed = batch[:n:n], batch[n:]
	} else if len(s.others) > 0 {
		all := append(batch, s.others...)
		n = store.Fit(all)
		batch, s.others = all[:n:n], s.others[n-len(batch):]
		clear(all[n:]) // copies
	}
	for i := range batch {
		if batch[i].Suspect {
			s.suspects--
			s.barred = false // it is settled before this call claims
		}
	}
	return batch
}

// over reports whether the session's promised validity has ended.
func (s *session) over() bool { return s.validity.Err() != nil }

// late reports whether the session's last renewal is more than half of its TTL ago: one is due each third of it. The queue's mu is held.
func (s *session) late(now time.Time) bool {
	return now.After(s.renewedUntil.Add(-s.queue.w.cfg.SessionTTL / 2))
}

// prolong notes that Redis has renewed the session just now, or has opened it. If that was late, others may have been late, too. The queue's mu is
// held.
func (s *session) prolong(now time.Time) {
	q := s.queue
	if s.late(now) && (q.keeper.opened || !q.contact.outage.IsZero()) { // else it is the first one, at the first try
		q.contact.outage = now
	}
	s.renewedUntil = now.Add(q.w.cfg.SessionTTL)
}

// end ends the contexts of the session's handlers.
func (s *session) end(cause error) { s.validity.End(cause) }

// A running delivery writes a note to Redis: its span context. If the worker crashes, the next delivery links to that span. The note
// is sent in the first call that a lane makes after noteFrom. If there is none before noteBy, it gets its own call. In a busy queue
// most deliveries end before noteFrom and send no note.
const (
	noteFrom = 10 * time.Millisecond
	noteBy   = 50 * time.Millisecond
)

// note reports whether the note must be sent at the given time, or later. If both are false, it is never sent. q.mu is held.
func (d *delivery) note(at time.Time) (now, later bool) {
	traced := d.watch.Traced()
	switch {
	case d.returned, traced && !d.watch.SpanContext().IsSampled():
		return false, false
	case !traced, at.Sub(d.started) < noteFrom: // !traced: its span is about to begin
		return false, true
	}
	return true, false
}

// noteSoon makes a lane call Redis after noteBy, if there are still notes to send then. The queue's mu is held.
func (cl *claimer) noteSoon() {
	if cl.noting {
		return
	}
	cl.noting = true
	time.AfterFunc(noteBy, func() {
		cl.q.mu.Lock()
		defer cl.q.mu.Unlock()
		cl.noting = false
		at := time.Now()
		for _, s := range cl.q.sessions {
			for _, d := range s.unnoted {
				switch now, later := d.note(at); {
				case now:
					cl.q.dispatch.probeNow()
					return
				case later:
					cl.noteSoon()
				}
			}
		}
	})
}

// notes returns the notes to send with the session's next call. q.mu is held.
func (s *session) notes() []store.Note {
	if len(s.unnoted) == 0 {
		return nil
	}
	var notes []store.Note
	left, at := s.unnoted[:0], time.Now()
	for _, d := range s.unnoted {
		switch now, later := d.note(at); {
		case now && len(notes) < store.MaxNotes:
			notes = append(notes, store.Note{ID: d.id, Token: d.token, Span: telemetry.FormatSpan(d.watch.SpanContext())})
		case now, later:
			left = append(left, d)
		}
	}
	clear(s.unnoted[len(left):])
	s.unnoted = left
	return notes
}
