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
func (s *settings) readEnding(ctx context.Context) {
	ending, err := s.q.own.Ending(ctx)
	if err != nil {
		return
	}
	s.q.copier.copyAll(ending.Copies != "")
	s.sayCopies(ending.Copies)
	s.sayRetention(ending.Retention)
	now := ending.Completed
	s.q.handlers.keeps.Store(now != signalbox.Retention{})
	want := s.q.w.cfg.Queues[s.q.store.Name()].CompletedRetention
	if want == (signalbox.Retention{}) || now == s.keptCompleted {
		return
	}
	s.keptCompleted = now
	if store.Filled(want) != now {
		s.q.log.Info("signalbox: the queue's settings say another retention of completed jobs than this worker's Config, and count; inspect.SetCompletedRetention changes them",
			"jobs", now.Jobs, "bytes", now.Bytes, "age", now.Age.String())
	}
}

// sayRetention logs that other dead and cancelled jobs are kept than this worker's Config says: once for each value. Only the keeper calls it.
func (s *settings) sayRetention(now signalbox.Retention) {
	want := s.q.w.cfg.Queues[s.q.store.Name()].Retention
	if want == (signalbox.Retention{}) || now == s.kept {
		return
	}
	if s.kept = now; store.Filled(want) != now {
		s.q.log.Info("signalbox: the queue's settings say another retention than this worker's Config, and count; inspect.SetRetention changes them",
			"jobs", now.Jobs, "bytes", now.Bytes, "age", now.Age.String())
	}
}

// sayCopies logs that dead jobs are copied elsewhere than this worker's Config says: once for each queue that gets them. Only the keeper
// calls it.
func (s *settings) sayCopies(to string) {
	want := s.q.w.cfg.Queues[s.q.store.Name()].CopyDead
	if want == "" || s.copiesTo == to {
		return
	}
	s.copiesTo = to
	if to != want {
		s.q.log.Info("signalbox: the queue's settings say another queue for copies of dead jobs than this worker's Config, and count; inspect.SetCopyDead changes it", "to", to)
	}
}

// keepCompleted asks Redis to keep the job with the attempt that has completed it.
func (h *handlers) keepCompleted(r *store.Settlement, d *delivery, job *signalbox.Job) {
	r.Keep = store.Kept(h.attempt(d, job, nil))
}
