package worker

import (
	"context"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// look has the keeper read what becomes of jobs that have ended. It doesn't block.
func (k *keeper) look() {
	select {
	case k.settingsNews <- struct{}{}:
	default: // it is about to
	}
}

// readEnding notes which completed jobs the queue keeps, and whether its dead jobs are copied, as its settings say. If they can't be
// read, what is known stays: a sweep tries again within a minute. Only the keeper calls it.
func (s *teller) readEnding(ctx context.Context) {
	ending, err := s.q.own.Settings().Ending(ctx)
	if err != nil {
		return
	}
	s.q.copier.copyAll(ending.Copies != "")
	s.q.handlers.keeps.Store(ending.Completed != signalbox.Retention{})
}

// keepCompleted asks Redis to keep the job with the attempt that has completed it and its result, and without what was saved: if somebody runs it again, it begins anew.
func (h *handlers) keepCompleted(r *store.Settlement, d *delivery, job *signalbox.Job, saved bool) {
	keep := store.Kept
	if saved {
		keep = store.KeptAnew
	}
	r.Keep = keep(h.attempt(d, job, nil), d.result())
}
