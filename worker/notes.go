package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

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
