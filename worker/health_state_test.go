package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/lock"
)

// found returns the severity of a queue's problem of that code, at a time, or OK.
func found(q *queue, code health.Code, at time.Time) health.Severity {
	for _, p := range q.problems(q.w.link, at) {
		if p.Code == code {
			return p.Severity
		}
	}
	return health.OK
}

// A queue that takes no jobs is unready after 10 s, and broken after a minute: if jobs wait, it has free slots, and Redis answers.
func TestNotClaiming(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		more  bool
		after time.Duration
		but   func(q *queue)
		want  health.Severity
	}{
		"for a moment":              {true, notClaimingAfter - time.Second, nil, health.OK},
		"for a while":               {true, notClaimingAfter, nil, health.Unready},
		"for long":                  {true, brokenAfter, nil, health.Broken},
		"no job waits":              {false, brokenAfter, nil, health.OK},
		"no slot is free":           {true, brokenAfter, func(q *queue) { sl := q.slots.take(1)[0]; sl.now = running(q.session, sl) }, health.OK},
		"a claim hangs":             {true, brokenAfter, func(q *queue) { q.slots.take(1); q.claimer.expect(true) }, health.Broken},
		"the queue is paused":       {true, brokenAfter, func(q *queue) { q.orders.withheld.Paused = true }, health.OK},
		"the worker is quiet":       {true, brokenAfter, func(q *queue) { q.orders.withheld.Quiet = true }, health.OK},
		"the bound has no room":     {true, brokenAfter, func(q *queue) { q.dispatch.bound = newBound(1); q.dispatch.bound.take(q.dispatch, 1, false) }, health.OK},
		"it waits for its turn":     {true, brokenAfter, func(q *queue) { q.dispatch.bound, q.dispatch.inLine = newBound(1), true }, health.OK},
		"a claim has all the room":  {true, brokenAfter, func(q *queue) { q.dispatch.bound = newBound(1); q.dispatch.reserve(); q.claimer.expect(true) }, health.Broken},
		"Redis is away":             {true, brokenAfter, func(q *queue) { q.contact.gone("claim", time.Now(), errors.New("no answer")) }, health.OK},
		"Redis refuses":             {true, brokenAfter, func(q *queue) { q.contact.failed("claim", time.Now(), refusal("NOPERM")) }, health.OK},
		"a claim was answered":      {true, brokenAfter, func(q *queue) { answer(q, 1) }, health.OK},
		"only others were answered": {true, brokenAfter, func(q *queue) { answer(q, 0) }, health.Broken},
		"a renewal finds none":      {true, brokenAfter, func(q *queue) { q.claimer.expect(false) }, health.OK},
		"a renewal finds some":      {true, brokenAfter, func(q *queue) { q.claimer.expect(true) }, health.Broken},
	} {
		q := still(t, 1)
		q.claimer.expect(tc.more)
		since := time.Now()
		if tc.but != nil {
			tc.but(q)
		}
		if got := found(q, health.NotClaiming, since.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// answer has a call come back that asked for so many jobs, and got none.
func answer(q *queue, want int) {
	q.mu.Lock()
	c := &call{session: q.session, slots: q.slots.take(want)}
	c.Want = want
	q.session.calls++
	q.dispatch.calls++
	q.mu.Unlock()
	q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
}

// getStuck starts handlers that have been stuck for a while in n of the queue's slots.
func getStuck(q *queue, n int) {
	for _, sl := range q.slots.take(n) {
		sl.now = running(q.session, sl)
		sl.now.own.End(errors.New("over"))
		sl.now.over = time.Now().Add(-DefaultStuckAfter)
	}
}

// When stuck handlers keep all slots for a minute, only a restart helps. While the worker drains, it ends anyway. A restart doesn't
// bring Redis back.
func TestStuckHandlersBreakAWorker(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stuck int
		after time.Duration
		but   func(q *queue)
		want  health.Severity
	}{
		"one of two":                 {1, time.Hour, nil, health.Degraded},
		"both for a moment":          {2, 0, nil, health.Degraded},
		"both for a minute":          {2, brokenAfter, nil, health.Broken},
		"both while it drains":       {2, brokenAfter, func(q *queue) { q.drain.since = time.Now() }, health.Unready},
		"both while Redis is away":   {2, brokenAfter, func(q *queue) { q.contact.gone("renew", time.Now(), errors.New("no answer")) }, health.Degraded},
		"both after the lease ended": {2, brokenAfter, func(q *queue) { q.session.end(lock.ErrLost) }, health.Degraded},
		"both after it was lost":     {2, brokenAfter, func(q *queue) { q.mu.Lock(); q.keeper.lose(q.session); q.mu.Unlock() }, health.Degraded},
		"both, and Redis was away":   {2, brokenAfter, func(q *queue) { q.guard.stuck.idle += time.Second }, health.Degraded},
	} {
		q := still(t, 2)
		getStuck(q, tc.stuck)
		q.guard.reportStuck()
		if tc.but != nil {
			tc.but(q)
		}
		if got := found(q, health.HandlersStuck, time.Now().Add(tc.after)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Stuck handlers that keep all the room of the bound break a worker, whichever of its queues they are of.
func TestStuckHandlersKeepTheBound(t *testing.T) {
	t.Parallel()
	b := newBound(5)
	one, other := still(t, 50), still(t, 50)
	one.dispatch.bound, other.dispatch.bound = b, b
	getStuck(one, 3)
	for _, tc := range []struct {
		other int
		want  health.Severity
	}{{0, health.Degraded}, {1, health.Degraded}, {1, health.Broken}} {
		getStuck(other, tc.other)
		for range 2 { // as the guard does, again and again
			one.guard.reportStuck()
			other.guard.reportStuck()
		}
		if got := found(one, health.HandlersStuck, time.Now().Add(brokenAfter)); got != tc.want {
			t.Errorf("%d more: %v, want %v", tc.other, got, tc.want)
		}
	}
	for _, sl := range other.slots.all {
		if sl.now != nil {
			other.dispatch.release(sl)
		}
	}
	other.guard.reportStuck()
	one.guard.reportStuck()
	if got := found(one, health.HandlersStuck, time.Now().Add(brokenAfter)); got != health.Degraded {
		t.Errorf("the handlers of another queue have returned: %v", got)
	}
}

// Leases by the worker's clock.
func TestLeaseInTrouble(t *testing.T) {
	t.Parallel()
	q := still(t, 1) // for an hour
	now := time.Now()
	q.session.renewedUntil = now.Add(time.Hour)
	for _, tc := range []struct {
		after      time.Duration
		late, none health.Severity
	}{
		{29 * time.Minute, health.OK, health.OK},
		{31 * time.Minute, health.Degraded, health.OK},
	} {
		if late, none := found(q, health.LeaseLate, now.Add(tc.after)), found(q, health.NoLease, now.Add(tc.after)); late != tc.late || none != tc.none {
			t.Errorf("after %v: late %v, none %v", tc.after, late, none)
		}
	}
	q.session.validity.End(errors.New("over"))
	if none := found(q, health.NoLease, now); none != health.Unready {
		t.Errorf("the lease has ended: %v", none)
	}
	q.mu.Lock()
	q.keeper.lose(q.session)
	q.mu.Unlock()
	if none, starting := found(q, health.NoLease, now), found(q, health.Starting, now); none != health.Unready || starting != health.OK {
		t.Errorf("the lease is lost: %v, %v", none, starting)
	}
}

// Redis's clock is compared with this process's own. How long the replies took is no step.
func TestServerClock(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		passed time.Duration // by our clock, from the first reply to the second
		took   time.Duration // the second call
		showed time.Duration // by Redis's
		want   time.Duration
	}{
		"steady":              {10 * time.Second, 0, 10 * time.Second, 0},
		"a slow reply":        {10 * time.Second, 5 * time.Second, 10 * time.Second, 0},
		"slow on its way":     {10 * time.Second, 5 * time.Second, 15 * time.Second, 0},
		"drift":               {time.Hour, 0, time.Hour + 3*time.Second, 0},
		"ahead":               {10 * time.Second, 0, 70 * time.Second, time.Minute},
		"back":                {10 * time.Second, 0, -50 * time.Second, -time.Minute},
		"back by two seconds": {10 * time.Second, 0, 8 * time.Second, -2 * time.Second},
		"half a second":       {10 * time.Second, 0, 10*time.Second + 500*time.Millisecond, 0},
	} {
		var c serverClock
		if by := c.take(base, 0, 0); by != 0 {
			t.Errorf("%s: the first reply is a step of %v", name, by)
		}
		if by := c.take(base.Add(tc.showed), tc.passed, tc.passed+tc.took); by != tc.want {
			t.Errorf("%s: a step of %v, want %v", name, by, tc.want)
		}
		if by := c.take(base.Add(tc.showed+tc.took), tc.passed+tc.took, tc.passed+tc.took); by != 0 {
			t.Errorf("%s: the step is seen twice: %v", name, by)
		}
	}
}

// A step is reported for a while.
func TestClockStepped(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	q := still(t, 1)
	q.log = slog.New(slog.NewTextHandler(&log, nil))
	at := time.Now()
	q.keeper.noteClock(at, lease.Now(), lease.Now())
	if got := found(q, health.ClockStepped, time.Now()); got != health.OK || log.Len() > 0 {
		t.Errorf("nothing was set: %v, %s", got, &log)
	}
	q.keeper.noteClock(at.Add(time.Hour), lease.Now(), lease.Now())
	now := time.Now()
	if a, b := found(q, health.ClockStepped, now), found(q, health.ClockStepped, now.Add(steppedFor)); a != health.Degraded || b != health.OK {
		t.Errorf("after a step: %v, and later %v", a, b)
	}
	if strings.Count(log.String(), "the clock of Redis was set") != 1 || !strings.Contains(log.String(), "by=1h0m0s") && !strings.Contains(log.String(), "by=59m59") {
		t.Errorf("the log says %s", &log)
	}
}

// A report has no address and no name that an error may have.
func TestPublicReason(t *testing.T) {
	t.Parallel()
	secret := "10.0.0.7"
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.ParseIP(secret)}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "connection refused"},
		{&net.DNSError{Err: "no such host", Name: secret}, "no answer"},
		{fmt.Errorf("dial %s: %w", secret, os.ErrDeadlineExceeded), "timeout"},
		{refusal("OOM command not allowed"), "Redis answers OOM"},
		{refusal(secret + " is wrong"), "Redis answers with an error"},
		{errors.New(secret), "no answer"},
	} {
		if got := publicReason(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

// An old release's queue, and one that drains.
func TestProblemsOfAQueue(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.session.renewedUntil = time.Now().Add(time.Hour)
	if all := q.problems(q.w.link, time.Now()); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	q.mu.Lock()
	q.orders.heed(store.Hints{At: time.Now(), Withheld: store.Withheld{Layout: layout.Protocol + 1}}, time.Now())
	q.mu.Unlock()
	all := q.problems(q.w.link, time.Now())
	if len(all) != 1 || all[0].Code != health.Outdated || all[0].Severity != health.Unready || all[0].Since.IsZero() {
		t.Errorf("%+v", all)
	}
	q.drain.since = time.Now()
	if all := q.problems(q.w.link, time.Now()); slices.ContainsFunc(all, func(p health.Problem) bool { return p.Code == health.Outdated }) {
		t.Errorf("it drains: %+v", all)
	}
}
