package worker

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
)

// What the guard's rounds show of a standstill. A gap of up to two rounds is none: the guard comes a little late.
func TestStandstill(t *testing.T) {
	t.Parallel()
	const usual = time.Hour // so that a test that takes long is no gap
	for name, tc := range map[string]struct {
		gap  time.Duration
		want time.Duration
	}{
		"steady":     {usual, 0},
		"a bit late": {2*usual - time.Minute, 0},
		"still":      {3 * usual, 3 * usual},
	} {
		p := pace{usual: usual}
		if d := p.stoodSince(time.Now()); d != 0 {
			t.Errorf("%s: %v before the first round", name, d)
		}
		before := lease.Now().Add(-tc.gap)
		p.guarded(before, true)
		if d := p.stoodSince(time.Now()).Round(usual); d != tc.want {
			t.Errorf("%s: before the next round %v, want %v", name, d, tc.want)
		}
		p.guarded(lease.Now(), true)
		if d := p.stoodSince(before.Time()).Round(usual); d != tc.want {
			t.Errorf("%s: %v since the round before, want %v", name, d, tc.want)
		}
		if d := p.stoodSince(time.Now()); d != 0 {
			t.Errorf("%s: %v since now", name, d)
		}
	}
}

// A call that was under way while the process stood still has no answer that anybody has read. That is no outage: the next one shows it.
func TestStandstillIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call func(q *queue, now time.Time)
		gone bool
	}{
		"it hangs": {func(q *queue, now time.Time) { q.contact.waits[0].begin(q, now.Add(-time.Hour)) }, false},
		"it hangs, and has for long since": {func(q *queue, now time.Time) {
			q.contact.waits[0].begin(q, now.Add(-time.Hour))
			q.w.pace.woke = now.Add(-3 * time.Second)
		}, true},
		"it timed out":                      {func(q *queue, now time.Time) { q.contact.failed("claim", now.Add(-time.Hour), os.ErrDeadlineExceeded) }, false},
		"a later one timed out":             {func(q *queue, now time.Time) { q.contact.failed("claim", now.Add(time.Minute), os.ErrDeadlineExceeded) }, true},
		"it was refused, as all others are": {func(q *queue, now time.Time) { q.contact.failed("claim", now.Add(-time.Hour), refusal("LOADING")) }, true},
	} {
		var log strings.Builder
		q := still(t, 1)
		q.log = slog.New(slog.NewTextHandler(&log, nil))
		now := time.Now()
		q.contact.born = now.Add(-2 * time.Hour)
		q.w.pace = pace{usual: time.Hour, woke: now, stood: time.Hour}
		tc.call(q, now)
		q.contact.reportHang(hungAfter)
		if _, _, gone := q.w.link.absence(q); gone != tc.gone {
			t.Errorf("%s: Redis is away: %v", name, gone)
		}
		if !tc.gone && log.Len() > 0 {
			t.Errorf("%s: %s", name, &log)
		}
	}
}

// Which cause a lost lease has: a standstill counts if it took at least half of the TTL. Else whatever else it was lasted longer.
func TestCauseOfALostLease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stood time.Duration
		ago   time.Duration // when it was over
		want  string
	}{
		"half of it":                {30 * time.Minute, 0, `cause="the process stood still for 30m0s"`},
		"less":                      {29 * time.Minute, 0, "cause=boom"},
		"before the latest renewal": {time.Hour, time.Hour + time.Minute, "cause=boom"},
	} {
		var log strings.Builder
		q := still(t, 1) // with a TTL of an hour
		q.log = slog.New(slog.NewTextHandler(&log, nil))
		now := time.Now()
		q.w.pace = pace{usual: time.Hour, woke: now.Add(-tc.ago), stood: tc.stood}
		s := q.session
		s.running, s.failure, s.renewedUntil = 1, errors.New("boom"), now
		q.mu.Lock()
		q.keeper.lose(s)
		q.mu.Unlock()
		if !strings.Contains(log.String(), tc.want) {
			t.Errorf("%s: the log says %s, want %s", name, &log, tc.want)
		}
	}
}

// The first handler that returns since the lease is over has it noticed. So the log counts all whose contexts ended.
func TestLossCountsAll(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	q := still(t, 2)
	q.log = slog.New(slog.NewTextHandler(&log, nil))
	s := q.session
	s.validity = lease.NewValidity(t.Context())
	s.validity.Extend(lease.Now(), 50*time.Millisecond)
	slots := q.slots.take(2)
	first := running(s, slots[0])
	slots[0].now, slots[1].now, s.running = first, running(s, slots[1]), 2
	<-first.Done()
	var r store.Settlement
	q.handlers.judge(&r, first, first.claimed.Job, first.Err())
	if r.Outcome != store.Return || strings.Count(log.String(), "the lease was lost") != 1 || !strings.Contains(log.String(), " jobs=2 ") {
		t.Errorf("%v, and the log says %s", r.Outcome, &log)
	}
}
