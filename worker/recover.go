package worker

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A reclaimer takes back the jobs of sessions that have expired. Its goroutine is that of run.
type reclaimer struct {
	q       *queue
	expired chan []string // sessions to reclaim
}

// offer passes expired sessions to the reclaimer. It never waits: a session that isn't taken now is in the reply
// of the next call, too.
func (rc *reclaimer) offer(sessions []string) {
	select {
	case rc.expired <- sessions:
	default:
	}
}

// run takes back the jobs of sessions that are over.
func (rc *reclaimer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case sessions := <-rc.expired:
			if !rc.calm(ctx) {
				return
			}
			for _, s := range sessions {
				if !rc.owns(s) {
					rc.reclaimSession(ctx, s)
				}
			}
		}
	}
}

// calm waits until the workers of expired sessions have had the chance to give their jobs back. It returns false if ctx ends.
//
// After a call has failed or taken long, Redis may have been away, or have gone back to an older state. Each worker learns of that by its next
// renewal, so calm waits for a renewal interval. It waits once, however often calls fail meanwhile, as on a bad network: a worker that renews its own
// lease in time may expect that others do. While it can't, perhaps no worker can. Then calm waits until an interval after the renewal.
func (rc *reclaimer) calm(ctx context.Context) bool {
	interval := rc.q.w.cfg.SessionTTL / 3
	latest := time.Now().Add(interval)
	for {
		now := time.Now()
		rc.q.mu.Lock()
		end := rc.q.contact.outage.Add(interval)
		late := rc.q.session == nil || rc.q.session.late(now)
		rc.q.mu.Unlock()
		switch {
		case late:
			end, latest = now.Add(interval), now.Add(2*interval) // it may be renewed at any time until end
		case end.After(latest):
			end = latest
		}
		if !end.After(now) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(end.Sub(now)):
		}
	}
}

// owns reports whether the session is one of ours whose handlers still run. Its jobs are given
// back when they return.
func (rc *reclaimer) owns(id string) bool {
	rc.q.mu.Lock()
	defer rc.q.mu.Unlock()
	return slices.ContainsFunc(rc.q.sessions, func(s *session) bool { return s.id == id })
}

// reclaimAgain is how long after a failed call a lane asks for expired sessions again.
const reclaimAgain = 250 * time.Millisecond

func (rc *reclaimer) reclaimSession(ctx context.Context, id string) {
	recovery := rc.q.store.Sessions().Reclaim(id, rc.q.w.traces())
	for {
		began := time.Now()
		r, err := recovery.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				rc.q.contact.failed("reclaim", began, err)
			}
			// It is reported again by the next call.
			rc.q.mu.Lock()
			rc.q.armTimer(time.Now(), reclaimAgain)
			rc.q.mu.Unlock()
			return
		}
		rc.reclaimed(&r, began, time.Now())
		if len(r.Returned) > 0 {
			rc.q.log.Warn("signalbox: took back the jobs of a worker that died or lost its lease", "session", id, "jobs", len(r.Returned))
		}
		rc.q.hint(true) // for its jobs, and for the next session that expires
		if r.Done {
			return
		}
	}
}

// reclaimed writes to metrics, traces and the log what a call took back. Deliveries that run again are counted when
// they end.
func (rc *reclaimer) reclaimed(r *store.Reclaimed, began, ended time.Time) {
	for i := range r.Dead {
		job := r.Dead[i].Job
		rc.q.w.consumer.Settled(rc.q.base, rc.q.store.Name(), rc.q.w.kinds.metric(&r.Dead[i]), string(signalbox.OutcomeDead), string(signalbox.OutcomeDead), ended.Sub(began))
		span := rc.traceReclaim(&r.Dead[i], signalbox.OutcomeDead, r.At, began, ended)
		about := []any{"job", job.ID, "token", job.Token}
		if job.Kind != "" { // it could be read
			about = append(about, "kind", job.Kind, "attempt", job.Attempt)
		}
		about = append(about, telemetry.LogAttrs(span)...)
		rc.q.log.Error("signalbox: a job is dead: its worker died too often", about...)
		rc.q.announceCrash(job)
		rc.q.copier.died(job.ID)
	}
	if len(r.Dead) > 0 {
		rc.q.keeper.tender.wake()
	}
	for i := range r.Cancelled {
		d := &r.Cancelled[i]
		rc.q.w.consumer.Settled(rc.q.base, rc.q.store.Name(), rc.q.w.kinds.metric(d), string(signalbox.OutcomeReturned), string(signalbox.OutcomeCancelled), ended.Sub(began))
		span := rc.traceReclaim(d, signalbox.OutcomeCancelled, r.At, began, ended)
		about := append([]any{"job", d.Job.ID, "token", d.Job.Token, "kind", d.Job.Kind}, telemetry.LogAttrs(span)...)
		rc.q.log.Info("signalbox: a job is cancelled, as was asked for while it ran; its worker has died", about...)
	}
	for i := range r.Lost {
		rc.traceReclaim(&r.Lost[i], signalbox.OutcomeReturned, r.At, began, ended)
	}
}

// traceReclaim makes the span of taking a delivery back, by a call that began and ended by our
// clock and was made at a time of Redis's. It is connected with what created the job as a delivery
// here would be.
func (rc *reclaimer) traceReclaim(d *store.Delivery, how signalbox.Outcome, at, began, ended time.Time) trace.SpanContext {
	if !rc.q.w.traces() {
		return trace.SpanContext{}
	}
	job, mode := d.Job, rc.q.w.traceMode(rc.q.w.kinds.of(d.Job.Kind))
	ctx, links := telemetry.Creator(rc.q.base, telemetry.Propagator(rc.q.w.cfg.Propagator), job.Headers,
		mode.String(), rc.q.w.cfg.ParentFor > 0 && at.Sub(telemetry.Since(job.Headers, job.EnqueuedAt)) <= rc.q.w.cfg.ParentFor)
	if previous := telemetry.ParseSpan(d.Span); previous.IsValid() {
		links = append(links, trace.Link{SpanContext: previous})
	}
	span := rc.q.w.spans.StartReclaim(ctx, telemetry.Job{
		ID: job.ID, Kind: job.Kind, Queue: job.Queue, Attempt: job.Attempt, MaxAttempts: job.MaxAttempts,
	}, string(how), links, began)
	span.End(trace.WithTimestamp(ended))
	return span.SpanContext()
}

func without(list []*session, s *session) []*session {
	return slices.DeleteFunc(slices.Clone(list), func(x *session) bool { return x == s })
}
