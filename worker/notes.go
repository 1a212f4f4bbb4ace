package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A delivery that runs leaves a note in Redis: its span context. After a crash the next delivery links to it. The note goes
// with the first call that a lane makes after noteFrom, or with a call of its own after noteBy. Most deliveries of a busy
// queue are over by then.
const (
	noteFrom = 10 * time.Millisecond
	noteBy   = 50 * time.Millisecond
)

// note reports whether the note is to be sent at a time, or later. If neither, it is never sent. q.mu is held.
func (d *delivery) note(at time.Time) (now, later bool) {
	traced := d.watch.Traced()
	switch {
	case d.returned, traced && !d.watch.SpanContext().IsSampled():
		return false, false
	case !traced, at.Sub(d.started) < noteFrom: // !traced: it is about to begin
		return false, true
	}
	return true, false
}

// noteSoon has a lane make a call after noteBy, if there are notes left to send then. q.mu is held.
func (q *queue) noteSoon() {
	if q.noting {
		return
	}
	q.noting = true
	time.AfterFunc(noteBy, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.noting = false
		at := time.Now()
		for _, s := range q.sessions {
			for _, d := range s.unnoted {
				switch now, later := d.note(at); {
				case now:
					q.dispatch.probeNow()
					return
				case later:
					q.noteSoon()
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
