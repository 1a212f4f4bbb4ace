package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// scriptedLocker answers as the test says.
type scriptedLocker struct {
	try, acquire func(ctx context.Context) (lock.Lock, error)
}

func (s scriptedLocker) TryAcquire(ctx context.Context, _ string) (lock.Lock, error) {
	return s.try(ctx)
}

func (s scriptedLocker) Acquire(ctx context.Context, _ string) (lock.Lock, error) {
	return s.acquire(ctx)
}

var errDown = errors.New("no quorum")

// quorumError is the error of a Redlock on five nodes, of which these failed.
func quorumError(nodes ...error) error {
	q := &lock.QuorumError{Op: "acquire", Key: "k", Need: 3, Held: 5 - len(nodes)}
	for i, err := range nodes {
		q.Nodes = append(q.Nodes, lock.NodeError{Node: fmt.Sprintf("node-%d:6379", i), Err: err})
	}
	return q
}

// says returns a function that always returns err.
func says(err error) func(context.Context) (lock.Lock, error) {
	return func(context.Context) (lock.Lock, error) { return nil, err }
}

// grants returns a lock with an hour left.
func grants(context.Context) (lock.Lock, error) {
	v := lease.NewValidity(context.Background())
	v.Extend(lease.Now(), time.Hour)
	return fakeLocker{validity: v}, nil
}

func hasEvent(spans map[string]tracetest.SpanStub, name string, attrs ...attribute.KeyValue) bool {
	for _, span := range spans {
		for _, e := range span.Events {
			if e.Name == name && !slices.ContainsFunc(attrs, func(a attribute.KeyValue) bool { return !slices.Contains(e.Attributes, a) }) {
				return true
			}
		}
	}
	return false
}

// Each policy applies in each of the ways in which a lock can't be had. The test sets the other
// option to another policy, which must have no effect.
func TestPolicies(t *testing.T) {
	t.Parallel()
	held := fmt.Errorf("lock: acquire: %w", lock.ErrHeld)
	// Two of five nodes are down, and one is set up wrongly. That is an outage: the lock can be
	// had when one of the two is back.
	outage := quorumError(errDown, errDown, lock.ErrInvalid)
	late := func(context.Context) (lock.Lock, error) {
		v := lease.NewValidity(context.Background())
		v.End(lock.ErrLost)
		return fakeLocker{validity: v}, nil
	}
	for _, c := range []struct {
		name    string
		try     func(context.Context) (lock.Lock, error)
		option  func(Policy) LockOption
		other   func(Policy) LockOption
		want    error // of PolicyFail
		outcome string
	}{
		{"held", says(held), WhenHeld, WhenDown, lock.ErrHeld, "held"},
		{"down", says(errDown), WhenDown, WhenHeld, errDown, "error"},
		{"down, after a timeout of its own", says(context.DeadlineExceeded), WhenDown, WhenHeld, context.DeadlineExceeded, "error"},
		{"too few nodes", says(outage), WhenDown, WhenHeld, errDown, "error"},
		{"granted too late", late, WhenDown, WhenHeld, lock.ErrLost, "error"},
	} {
		for policy := PolicySnooze; policy <= PolicyRunAnyway; policy++ {
			t.Run(c.name+"/"+policy.String(), func(t *testing.T) {
				t.Parallel()
				other := (policy + 1) % (PolicyRunAnyway + 1)
				mw := Lock(scriptedLocker{try: c.try}, LockName("k"), RetryIn(time.Minute), c.option(policy), c.other(other))
				ctx, _ := delivery(t, time.Hour)
				ran := false
				var err error
				spans := traced(t, ctx, &signalbox.Job{}, func(ctx context.Context, job *signalbox.Job) error {
					err = run(ctx, job, mw, func(got context.Context, _ *signalbox.Job) error {
						lease, _ := lock.FromContext(got)
						ran = true
						if got != ctx || lease.Key() != "own" {
							t.Errorf("runs under %q", lease.Key())
						}
						return errMine
					})
					return err
				})
				var snooze *signalbox.SnoozeError
				putBack := errors.As(err, &snooze) && snooze.Delay >= 30*time.Second && snooze.Delay < 90*time.Second
				if ran != (policy == PolicyRunAnyway) || putBack != (policy == PolicySnooze) {
					t.Errorf("ran %v, %v", ran, err)
				}
				switch policy {
				case PolicySnooze:
					if !errors.Is(err, c.want) || outcomeOf(ctx, err) != snoozed {
						t.Errorf("%v, %v", err, outcomeOf(ctx, err))
					}
				case PolicyFail:
					if !errors.Is(err, c.want) || !outcomeOf(ctx, err).isFailure() {
						t.Errorf("%v", err)
					}
				case PolicyDrop:
					if err != nil {
						t.Errorf("%v", err)
					}
				case PolicyRunAnyway:
					if err != errMine {
						t.Errorf("%v", err)
					}
				}
				if !hasEvent(spans, "signalbox.lock.unavailable",
					attribute.String("signalbox.lock.outcome", c.outcome), attribute.String("signalbox.lock.policy", policy.String())) {
					t.Errorf("the trace doesn't tell: %v", spans)
				}
			})
		}
	}
}

// No policy applies to a mistake, which fails the attempt, or to the end of the delivery, which
// is reported with its cause.
func TestPoliciesDoNotApply(t *testing.T) {
	t.Parallel()
	for policy := PolicySnooze; policy <= PolicyRunAnyway; policy++ {
		opts := []LockOption{LockName("k"), WhenHeld(policy), WhenDown(policy), MaxWait(time.Minute)}
		for _, invalid := range []error{lock.ErrInvalid, quorumError(errDown, lock.ErrInvalid, lock.ErrInvalid, lock.ErrInvalid)} {
			ctx, _ := delivery(t, time.Hour)
			err := run(ctx, &signalbox.Job{}, Lock(scriptedLocker{try: says(invalid)}, opts...), handlerMustNotRun(t))
			if !errors.Is(err, lock.ErrInvalid) || outcomeOf(ctx, err) != failed {
				t.Errorf("%v, invalid: %v", policy, err)
			}
		}
		for _, cause := range []error{signalbox.ErrShutdown, lock.ErrLost} {
			for _, answer := range []error{context.Canceled, lock.ErrHeld, errDown} {
				for _, waited := range []bool{false, true} {
					ctx, v := delivery(t, time.Hour)
					end := func(context.Context) (lock.Lock, error) {
						v.End(cause)
						return nil, answer
					}
					locker := scriptedLocker{try: end}
					if waited {
						locker = scriptedLocker{try: says(lock.ErrHeld), acquire: end}
					}
					err := run(ctx, &signalbox.Job{}, Lock(locker, opts...), handlerMustNotRun(t))
					if !errors.Is(err, cause) || outcomeOf(ctx, err) == snoozed {
						t.Errorf("%v, ended by %v, the locker says %v: %v", policy, cause, answer, err)
					}
				}
			}
		}
	}
}

func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	ctx, _ := delivery(t, time.Hour)
	var snooze *signalbox.SnoozeError
	if err := run(ctx, &signalbox.Job{}, Lock(scriptedLocker{try: says(lock.ErrHeld)}), handlerMustNotRun(t)); !errors.As(err, &snooze) {
		t.Errorf("held: %v", err)
	}
	if err := run(ctx, &signalbox.Job{}, Lock(scriptedLocker{try: says(errDown)}), handlerMustNotRun(t)); err != errDown {
		t.Errorf("down: %v", err)
	}
}

func TestLockOptionMistakes(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]LockOption{
		"WhenHeld is Policy(4)":      {WhenHeld(PolicyRunAnyway + 1)},
		"WhenDown is Policy(-1)":     {WhenDown(-1)},
		"MaxWait is -1ns":            {MaxWait(-1)},
		"MaxWait is 1h0m0.000000001": {MaxWait(time.Hour + 1)},
		"RetryIn is 9.999999ms":      {RetryIn(10*time.Millisecond - 1)},
		"RetryIn is 24h0m0.00":       {RetryIn(24*time.Hour + 1)},
		"Lock: LockNameFunc is nil":  {LockNameFunc(nil)},
		"RawKeyFunc is nil":          {RawKeyFunc(nil)},
		"there is no LockName":       {WhenHeld(PolicyDrop)},
	} {
		mw := Lock(scriptedLocker{try: grants}, opts...)
		err := run(t.Context(), &signalbox.Job{}, mw, handlerMustNotRun(t))
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// All mistakes are reported at once.
	err := run(t.Context(), &signalbox.Job{}, Lock(scriptedLocker{}, WhenHeld(9), WhenDown(9), MaxWait(-1), RetryIn(0), LockNameFunc(nil)), handlerMustNotRun(t))
	for _, part := range []string{"WhenHeld", "WhenDown", "MaxWait", "RetryIn", "LockNameFunc"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not in %v", part, err)
		}
	}
	// The bounds themselves are allowed.
	ctx, _ := delivery(t, time.Hour)
	for _, opts := range [][]LockOption{{MaxWait(0), RetryIn(10 * time.Millisecond)}, {MaxWait(time.Hour), RetryIn(24 * time.Hour)}} {
		if err := run(ctx, &signalbox.Job{}, Lock(scriptedLocker{try: grants}, opts...), func(context.Context, *signalbox.Job) error { return nil }); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	hangs := func(ctx context.Context) (lock.Lock, error) { // a locker may hang without an error
		<-ctx.Done()
		return nil, ctx.Err()
	}
	after := func(d time.Duration, then func(context.Context) (lock.Lock, error)) func(context.Context) (lock.Lock, error) {
		return func(ctx context.Context) (lock.Lock, error) {
			time.Sleep(d)
			return then(ctx)
		}
	}
	for name, c := range map[string]struct {
		try, acquire func(context.Context) (lock.Lock, error)
		took         time.Duration
		ran          bool
		want         error
	}{
		"free":                     {grants, nil, 0, true, nil},
		"free in time":             {says(lock.ErrHeld), after(patience/2, grants), patience / 2, true, nil},
		"held all the time":        {says(lock.ErrHeld), hangs, patience, false, lock.ErrHeld},
		"the try took a while":     {after(time.Second, says(lock.ErrHeld)), hangs, patience, false, lock.ErrHeld},
		"the try took all of it":   {after(patience, says(lock.ErrHeld)), nil, patience, false, lock.ErrHeld},
		"goes down":                {says(lock.ErrHeld), after(patience/2, says(errDown)), patience / 2, false, errDown},
		"down from the start":      {says(errDown), nil, 0, false, errDown},
		"hangs, with its timeout":  {after(time.Second, says(errDown)), nil, time.Second, false, errDown},
		"invalid from the start":   {says(lock.ErrInvalid), nil, 0, false, lock.ErrInvalid},
		"a bound on its own tries": {says(lock.ErrHeld), after(patience/2, says(lock.ErrHeld)), patience / 2, false, lock.ErrHeld},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, v := delivery(t, time.Hour)
			start, ran := time.Now(), false
			mw := Lock(scriptedLocker{c.try, c.acquire}, MaxWait(patience), WhenHeld(PolicyFail), WhenDown(PolicyFail))
			err := run(ctx, &signalbox.Job{}, mw, func(context.Context, *signalbox.Job) error {
				ran = true
				return nil
			})
			if took := time.Since(start); ran != c.ran || took != c.took || !errors.Is(err, c.want) || errors.Is(err, lock.ErrHeld) != (c.want == lock.ErrHeld) {
				t.Errorf("%s: ran %v after %v, %v", name, ran, took, err)
			}
			v.End(nil)
		})
	}
	// The wait ends with the delivery.
	synctest.Test(t, func(t *testing.T) {
		ctx, v := delivery(t, time.Hour)
		start := time.Now()
		time.AfterFunc(time.Second, func() { v.End(signalbox.ErrShutdown) })
		err := run(ctx, &signalbox.Job{}, Lock(scriptedLocker{says(lock.ErrHeld), hangs}, MaxWait(patience)), handlerMustNotRun(t))
		if !errors.Is(err, signalbox.ErrShutdown) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// tellingLocker signals when a call begins to wait.
type tellingLocker struct {
	lock.Locker
	waits chan struct{}
}

func (l tellingLocker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	close(l.waits)
	return l.Locker.Acquire(ctx, key)
}

func TestWaitOnRedis(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	holder, err := newLocker(rdb).Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, _ := delivery(t, time.Hour)
	// Here the wait is in vain.
	waits := make(chan struct{})
	for d, waited := 50*time.Millisecond, false; !waited; d *= 2 { // on a busy machine the time may be over before the wait begins
		err = run(ctx, &signalbox.Job{}, Lock(tellingLocker{newLocker(rdb), waits}, RawKey(key), MaxWait(d), WhenHeld(PolicyFail), WhenDown(PolicyDrop)), handlerMustNotRun(t))
		if !errors.Is(err, lock.ErrHeld) {
			t.Errorf("held: %v", err)
		}
		select {
		case <-waits:
			waited = true
		default:
			if d > time.Minute {
				t.Fatal("it does not wait")
			}
		}
	}
	// Here the lock is released during the wait.
	waits = make(chan struct{})
	released := make(chan error, 1)
	go func() {
		<-waits
		released <- holder.Release(context.Background())
	}()
	ran := false
	err = run(ctx, &signalbox.Job{}, Lock(tellingLocker{newLocker(rdb), waits}, RawKey(key), MaxWait(time.Minute), WhenHeld(PolicyFail)), func(ctx context.Context, _ *signalbox.Job) error {
		lease, _ := lock.FromContext(ctx)
		ran = lease.Key() == key && lease.Token() > holder.Token()
		return nil
	})
	if err != nil || !ran {
		t.Errorf("released: ran %v, %v", ran, err)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
}

// The same with a Redlock: first the lock is held, and then too few nodes answer.
func TestPoliciesOnRedlock(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	var nodes []*redis.Options
	for range 3 {
		s := redistest.New(t)
		servers, nodes = append(servers, s), append(nodes, &redis.Options{Addr: s.Addr()})
	}
	redlock, err := redlock.New(nodes, redlock.Config{NoRestartDelay: true, NodeTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := redlock.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, _ := delivery(t, time.Hour)
	key := redistest.Name(t)
	mw := Lock(redlock, RawKey(key), WhenHeld(PolicyFail), WhenDown(PolicyRunAnyway))
	under := func(key string, then func() error) error {
		return run(ctx, &signalbox.Job{}, mw, func(ctx context.Context, _ *signalbox.Job) error {
			if lease, _ := lock.FromContext(ctx); lease.Key() != key {
				t.Errorf("runs under %q, want %q", lease.Key(), key)
			}
			return then()
		})
	}
	err = under(key, func() error { // and, while it is held, another job
		return under("none", func() error {
			t.Error("two under the lock")
			return nil
		})
	})
	if !errors.Is(err, lock.ErrHeld) {
		t.Errorf("held: %v", err)
	}
	servers[0].Kill()
	servers[1].Kill()
	if err := under("own", func() error { return errMine }); err != errMine {
		t.Errorf("down: %v", err)
	}
}
