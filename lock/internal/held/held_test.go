package held

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// service answers what it is told to, and notes what it is asked for.
type service struct {
	renew, give []error // the answers to come; then nil
	keeps       []time.Time
}

func next(answers *[]error) (err error) {
	if len(*answers) > 0 {
		err, *answers = (*answers)[0], (*answers)[1:]
	}
	return err
}

func (s *service) Renew(context.Context) error { return next(&s.renew) }

func (s *service) GiveUp(_ context.Context, keep time.Time) error {
	s.keeps = append(s.keeps, keep)
	return next(&s.give)
}

// granted returns a lock that was just granted.
func granted(t *testing.T, minHold time.Duration) *Lock {
	t.Helper()
	l := &Lock{TTL: time.Minute, MinHold: minHold, Validity: lease.NewValidity(t.Context())}
	l.Grant(7)
	l.Validity.Extend(lease.Now(), l.TTL)
	t.Cleanup(func() { l.Validity.End(context.Canceled) })
	return l
}

var errDown = errors.New("down")

// A release says the same each time once the service has answered, and asks again until then.
func TestRelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		give   []error
		before func(l *Lock)
		want   []error // of the releases
		asked  int
	}{
		"released":                 {nil, nil, []error{nil, nil}, 1},
		"taken":                    {[]error{lease.ErrTaken}, nil, []error{lease.ErrTaken, lease.ErrTaken}, 1},
		"no answer at first":       {[]error{errDown}, nil, []error{errDown, nil, nil}, 2},
		"it had ended":             {nil, func(l *Lock) { l.Validity.End(lease.ErrLost) }, []error{lease.ErrExpired, lease.ErrExpired}, 1},
		"it had ended, was taken":  {[]error{lease.ErrTaken}, func(l *Lock) { l.Validity.End(lease.ErrLost) }, []error{lease.ErrTaken}, 1},
		"it had ended, no answer":  {[]error{errDown}, func(l *Lock) { l.Validity.End(lease.ErrLost) }, []error{lease.ErrExpired, lease.ErrExpired}, 2},
		"taken, after no answer":   {[]error{errDown, lease.ErrTaken}, nil, []error{errDown, lease.ErrTaken, lease.ErrTaken}, 2},
		"expired, though in time":  {[]error{lease.ErrExpired}, nil, []error{lease.ErrExpired}, 1},
		"still no answer any time": {[]error{errDown, errDown}, nil, []error{errDown, errDown}, 2},
	} {
		l, s := granted(t, 0), &service{give: c.give}
		if c.before != nil {
			c.before(l)
		}
		for i, want := range c.want {
			if err := l.ReleaseBy(t.Context(), s); !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("%s: release %d: %v, want %v", name, i+1, err, want)
			}
			if l.Context().Err() == nil {
				t.Errorf("%s: the context goes on", name)
			}
		}
		if len(s.keeps) != c.asked {
			t.Errorf("%s: the service was asked %d times, want %d", name, len(s.keeps), c.asked)
		}
	}
}

// While the service hangs, releases don't queue up: they share one call.
func TestReleasesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := granted(t, 0)
		s := &hanging{for_: 5 * time.Second}
		begun := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := l.ReleaseBy(t.Context(), s); !errors.Is(err, errDown) || time.Since(begun) > 5*time.Second {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
			})
			all.Go(l.DropMinHold)
		}
		all.Wait()
		if s.asked != 1 {
			t.Errorf("the service was asked %d times at once", s.asked)
		}
		if err := l.ReleaseBy(t.Context(), s); !errors.Is(err, errDown) || s.asked != 2 { // nobody knows the outcome, so it asks again
			t.Errorf("asked %d times: %v", s.asked, err)
		}
	})
}

// hanging is a service that doesn't answer for a time, and then fails.
type hanging struct {
	service
	for_  time.Duration
	asked int
}

func (h *hanging) GiveUp(context.Context, time.Time) error {
	h.asked++
	time.Sleep(h.for_) // in a bubble
	return errDown
}

// If a service panics, those who wait for its release go on.
func TestReleaseThatPanics(t *testing.T) {
	t.Parallel()
	l := granted(t, 0)
	func() {
		defer func() { _ = recover() }()
		_ = l.ReleaseBy(t.Context(), nil)
	}()
	if err := l.ReleaseBy(t.Context(), &service{}); err != nil {
		t.Error(err)
	}
}

func TestReleaseKeepsForMinHold(t *testing.T) {
	t.Parallel()
	l, s := granted(t, time.Minute), &service{give: []error{errDown}}
	since := time.Now()
	_ = l.ReleaseBy(t.Context(), s)
	l.DropMinHold()
	_ = l.ReleaseBy(t.Context(), s)
	if len(s.keeps) != 2 || s.keeps[0].IsZero() || s.keeps[0].After(since.Add(time.Minute)) || !s.keeps[1].IsZero() {
		t.Errorf("kept until %v", s.keeps)
	}
}

// A lost lock is never resurrected, and no answer loses none.
func TestExtend(t *testing.T) {
	t.Parallel()
	l, s := granted(t, 0), &service{renew: []error{nil, errDown, lease.ErrTaken}}
	for i, want := range []error{nil, errDown, lease.ErrTaken, lease.ErrLost} {
		if err := l.ExtendBy(t.Context(), s); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("extension %d: %v, want %v", i+1, err, want)
		}
		if ended := l.Context().Err() != nil; ended != errors.Is(want, lease.ErrLost) {
			t.Errorf("extension %d: the context has ended: %v", i+1, ended)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := granted(t, 0).ExtendBy(over, s); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// Nothing is measured unless somebody measures.
func TestAskedWithoutMeasuring(t *testing.T) {
	t.Parallel()
	l := granted(t, 0)
	l.Asked(telemetry.Acquire{}, telemetry.NewLockMetrics(nil), nil)
	if l.holding.Load() != nil {
		t.Error("it is measured")
	}
	l.Asked(telemetry.Acquire{}, telemetry.NewLockMetrics(nil), spec.ErrHeld)
	if l.Context().Err() == nil {
		t.Error("after a failed acquire the context goes on")
	}
}

// A repeated release counts on the one before it as long as the lease can't have ended by itself.
func TestEarlierRelease(t *testing.T) {
	t.Parallel()
	l := granted(t, 0)
	l.Validity.End(context.Canceled) // by the release
	if err := l.Earlier(lease.ErrTaken); err != nil {
		t.Errorf("within the TTL: %v", err)
	}
	short := &Lock{TTL: time.Minute, Validity: lease.NewValidity(t.Context())}
	short.Validity.Extend(lease.Now(), 10*time.Millisecond)
	<-short.Context().Done()
	if err := short.Earlier(lease.ErrTaken); !errors.Is(err, lease.ErrTaken) {
		t.Errorf("after the TTL: %v", err)
	}
}
