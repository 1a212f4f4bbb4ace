package middleware

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

func TestOwnLease(t *testing.T) {
	t.Parallel()
	ctx, _ := delivery(t, time.Hour)
	want := &signalbox.Job{ID: "1"}
	err := run(ctx, want, Lock(nil), func(got context.Context, job *signalbox.Job) error {
		lease, _ := lock.FromContext(got)
		if got != ctx || job != want || lease.Key() != "own" {
			t.Errorf("called with %v, %v", got, job)
		}
		return errMine
	})
	if err != errMine {
		t.Errorf("%v", err)
	}
}

func TestOwnLeaseRefusesToStart(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), &signalbox.Job{}, Lock(nil), handlerMustNotRun(t)); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("without a lease: %v", err)
	}
	for _, cause := range []error{lock.ErrLost, signalbox.ErrShutdown, errMine} {
		ctx, v := delivery(t, time.Hour)
		v.End(cause)
		if err := run(ctx, &signalbox.Job{}, Lock(nil), handlerMustNotRun(t)); !errors.Is(err, cause) {
			t.Errorf("ended by %v: %v", cause, err)
		}
	}
	// The lease is over, and no timer has fired yet.
	synctest.Test(t, func(t *testing.T) {
		v := lease.NewValidity(t.Context())
		v.Extend(lease.Now(), time.Second)
		ctx := lock.NewContext(v.Context(), own{v})
		time.Sleep(time.Until(v.Until()))
		if err := run(ctx, &signalbox.Job{}, Lock(nil), handlerMustNotRun(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("over by the clock: %v", err)
		}
	})
}

func TestOwnLeaseLostInTheHandler(t *testing.T) {
	t.Parallel()
	for _, returned := range []error{nil, errMine, lock.ErrLost, signalbox.Snooze(time.Hour), signalbox.Cancel(errMine), context.Canceled} {
		ctx, v := delivery(t, time.Hour)
		err := run(ctx, &signalbox.Job{}, Lock(nil), func(context.Context, *signalbox.Job) error {
			v.End(lock.ErrLost)
			return returned
		})
		var snooze *signalbox.SnoozeError
		var cancel *signalbox.CancelError
		said := returned == nil || errors.As(returned, &snooze) || errors.As(returned, &cancel)
		if said && err != returned || !said && (!errors.Is(err, lock.ErrLost) || !errors.Is(err, returned) || !strings.Contains(err.Error(), "the job's lease")) {
			t.Errorf("the handler returned %v: %v", returned, err)
		}
	}
	// If the context ends for another reason, the lease was not lost.
	ctx, v := delivery(t, time.Hour)
	err := run(ctx, &signalbox.Job{}, Lock(nil), func(context.Context, *signalbox.Job) error {
		v.End(signalbox.ErrShutdown)
		return nil
	})
	if err != nil {
		t.Errorf("completed during a shutdown: %v", err)
	}
}

func TestNamedLock(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	locker := newLocker(rdb)
	job := &signalbox.Job{ID: "a:fence", Queue: redistest.Name(t)}
	for want, opts := range map[string][]LockOption{
		"signalbox:lock:" + key:          {LockName(key)},
		"signalbox:lock:{" + key + "}:t": {LockName("{" + key + "}:t")}, // the hash tag keeps its meaning
		"signalbox:lock:" + key + "-f":   {LockNameFunc(func(*signalbox.Job) string { return key + "-f" })},
		key:                              {RawKey(key)},
		key + "-f":                       {RawKeyFunc(func(*signalbox.Job) string { return key + "-f" })},
		"signalbox:job-lock:" + job.ID + ":{" + job.Queue + "}": nil,
	} {
		ctx, _ := delivery(t, time.Hour)
		ctx = context.WithValue(ctx, valueKey{}, "value")
		err := run(ctx, job, Lock(locker, opts...), func(ctx context.Context, _ *signalbox.Job) error {
			lease, ok := lock.FromContext(ctx)
			if !ok || lease.Key() != want || lease.Token() <= 1 || ctx.Value(valueKey{}) != "value" {
				t.Errorf("%s: lease %v", want, lease)
			}
			if rdb.Exists(ctx, want).Val() != 1 {
				t.Errorf("%s: not locked", want)
			}
			return errMine
		})
		if !errors.Is(err, errMine) {
			t.Errorf("%s: %v", want, err)
		}
		if rdb.Exists(ctx, want).Val() != 0 {
			t.Errorf("%s: still locked", want)
		}
	}
}

func TestNamedLockHeldElsewhere(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	ctx, _ := delivery(t, time.Hour)
	held, err := newLocker(rdb).Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	delays := map[time.Duration]bool{}
	for range 20 {
		err := run(ctx, &signalbox.Job{}, Lock(newLocker(rdb), RawKey(key), RetryIn(time.Minute)), handlerMustNotRun(t))
		var snooze *signalbox.SnoozeError
		if !errors.As(err, &snooze) || snooze.Delay < 30*time.Second || snooze.Delay >= 90*time.Second {
			t.Fatalf("%v", err)
		}
		delays[snooze.Delay] = true
	}
	if len(delays) < 15 {
		t.Errorf("20 delays, of which %d are different", len(delays))
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
}

func TestNamedLockMistakes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, c := range map[string]struct {
		mw   signalbox.Middleware
		want error
	}{
		"a key without a locker":    {Lock(nil, LockName("x")), signalbox.ErrInvalid},
		"a policy without a locker": {Lock(nil, WhenHeld(PolicyDrop)), signalbox.ErrInvalid},
		"an empty name":             {Lock(newLocker(rdb), LockName("")), lock.ErrInvalid},
		"a name that is empty":      {Lock(newLocker(rdb), LockNameFunc(func(*signalbox.Job) string { return "" })), lock.ErrInvalid},
		"an empty key":              {Lock(newLocker(rdb), RawKey("")), lock.ErrInvalid},
	} {
		ctx, _ := delivery(t, time.Hour)
		if err := run(ctx, &signalbox.Job{Queue: "q", ID: "1"}, c.mw, handlerMustNotRun(t)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, v := delivery(t, time.Hour)
	v.End(signalbox.ErrShutdown)
	if err := run(ctx, &signalbox.Job{}, Lock(newLocker(rdb), LockName("x")), handlerMustNotRun(t)); !errors.Is(err, signalbox.ErrShutdown) {
		t.Errorf("the delivery has ended: %v", err)
	}
	// The handler doesn't start even if the locker doesn't notice.
	named := lease.NewValidity(t.Context())
	defer named.End(nil)
	named.Extend(lease.Now(), time.Hour)
	if err := run(ctx, &signalbox.Job{}, Lock(fakeLocker{validity: named}), handlerMustNotRun(t)); !errors.Is(err, signalbox.ErrShutdown) {
		t.Errorf("the delivery had ended when the lock came: %v", err)
	}
}

// fakeLocker grants one lock, whose release fails.
type fakeLocker struct {
	lock.Locker
	validity *lease.Validity
	release  error
}

func (f fakeLocker) TryAcquire(context.Context, string) (lock.Lock, error) { return f, nil }
func (fakeLocker) Key() string                                             { return "fake" }
func (fakeLocker) Token() int64                                            { return 2 }
func (f fakeLocker) Until() time.Time                                      { return f.validity.Until() }

func (f fakeLocker) Context() context.Context { return f.validity.Context() }

func (fakeLocker) Extend(context.Context) error { return errors.New("down") }

func (f fakeLocker) Release(context.Context) error {
	f.validity.End(context.Canceled)
	return f.release
}

// The handler's context ends if either lease is over, and Err knows it without a timer.
func TestNamedLockAndOwnLease(t *testing.T) {
	t.Parallel()
	for name, ttls := range map[string][2]time.Duration{
		"the own lease is over":  {time.Second, time.Hour},
		"the named lock is over": {time.Hour, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			job, named := lease.NewValidity(t.Context()), lease.NewValidity(t.Context())
			job.Extend(lease.Now(), ttls[0])
			named.Extend(lease.Now(), ttls[1])
			ctx := lock.NewContext(job.Context(), own{job})
			mw := signalbox.Chain(Lock(nil), Lock(fakeLocker{validity: named}), Timeout(10*time.Hour))
			err := run(ctx, &signalbox.Job{}, mw, func(ctx context.Context, _ *signalbox.Job) error {
				time.Sleep(988*time.Millisecond - time.Nanosecond)
				if ctx.Err() != nil {
					t.Errorf("%s: %v too early", name, ctx.Err())
				}
				time.Sleep(time.Nanosecond)
				if ctx.Err() == nil || !errors.Is(context.Cause(ctx), lock.ErrLost) {
					t.Errorf("%s: Err %v, cause %v", name, ctx.Err(), context.Cause(ctx))
				}
				return ctx.Err()
			})
			want := map[bool]string{true: "the job's lease was lost", false: `the lock "signalbox:job-lock:`}[ttls[0] < ttls[1]]
			if !errors.Is(err, lock.ErrLost) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
			job.End(nil)
			named.End(nil)
		})
	}
}

// The handler's result stands if the named lock was lost, as with its own lease: a retry would
// do the work again. The trace shows the loss, and so does an ordinary error.
func TestNamedLockLostInTheHandler(t *testing.T) {
	t.Parallel()
	for _, returned := range []error{nil, errMine, lock.ErrLost, signalbox.Snooze(time.Hour), signalbox.Cancel(errMine), context.Canceled} {
		ctx, _ := delivery(t, time.Hour)
		named := lease.NewValidity(t.Context())
		named.Extend(lease.Now(), time.Hour)
		var err error
		spans := traced(t, ctx, &signalbox.Job{}, func(ctx context.Context, job *signalbox.Job) error {
			err = run(ctx, job, Lock(fakeLocker{validity: named}), func(ctx context.Context, _ *signalbox.Job) error {
				named.End(lock.ErrLost)
				if ctx.Err() == nil || !errors.Is(context.Cause(ctx), lock.ErrLost) {
					t.Errorf("the handler's context: %v, %v", ctx.Err(), context.Cause(ctx))
				}
				return returned
			})
			return err
		})
		var snooze *signalbox.SnoozeError
		var cancel *signalbox.CancelError
		said := returned == nil || errors.As(returned, &snooze) || errors.As(returned, &cancel)
		if said && err != returned || !said && (!errors.Is(err, lock.ErrLost) || !errors.Is(err, returned) || !strings.Contains(err.Error(), `the lock "signalbox:job-lock:`)) {
			t.Errorf("the handler returned %v: %v", returned, err)
		}
		if !hasEvent(spans, "signalbox.lock.lost") {
			t.Errorf("the handler returned %v: no event in the trace", returned)
		}
	}
}

// A failed release is not the handler's failure, even if the lock turns out to be lost.
func TestNamedLockReleaseFails(t *testing.T) {
	t.Parallel()
	for _, release := range []error{errMine, lock.ErrExpired, lock.ErrTaken} {
		for _, returned := range []error{nil, context.Canceled} {
			ctx, _ := delivery(t, time.Hour)
			named := lease.NewValidity(t.Context())
			named.Extend(lease.Now(), time.Hour)
			ran := false
			err := run(ctx, &signalbox.Job{}, Lock(fakeLocker{validity: named, release: release}), func(context.Context, *signalbox.Job) error {
				ran = true
				return returned
			})
			wantLost := returned != nil && errors.Is(release, lock.ErrLost)
			if !ran || !errors.Is(err, returned) || errors.Is(err, lock.ErrLost) != wantLost || errors.Is(err, errMine) {
				t.Errorf("release %v, handler %v: ran %v, %v", release, returned, ran, err)
			}
			named.End(nil)
		}
	}
}

// newLocker is lock.New with an optional Config, which must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
