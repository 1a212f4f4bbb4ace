package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

func thePanickingHandler(context.Context, *signalbox.Job) error { panic(errMine) }

func TestRecover(t *testing.T) {
	t.Parallel()
	// The panic also passes through other middleware: none of them hides where it came
	// from.
	mw := signalbox.Chain(Recover(), Trace(), Log(slog.New(slog.DiscardHandler)), Timeout(time.Hour))
	err := run(t.Context(), &signalbox.Job{}, mw, thePanickingHandler)
	var p *signalbox.PanicError
	if !errors.As(err, &p) || p.Value != errMine || !errors.Is(err, errMine) {
		t.Fatalf("%#v", err)
	}
	if !strings.Contains(string(p.Stack), "thePanickingHandler") {
		t.Errorf("the handler is not in the stack:\n%s", p.Stack)
	}
	var none []int
	for name, h := range map[string]signalbox.HandlerFunc{
		"a runtime error": func(context.Context, *signalbox.Job) error { none[0] = 1; return nil },
		"nil":             func(context.Context, *signalbox.Job) error { panic(nil) },
	} {
		if err := run(t.Context(), &signalbox.Job{}, Recover(), h); !errors.As(err, &p) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, want := range []error{nil, errMine} {
		if err := run(t.Context(), &signalbox.Job{}, Recover(), func(context.Context, *signalbox.Job) error { return want }); err != want {
			t.Errorf("%v became %v", want, err)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ d, job, want time.Duration }{
		{time.Second, 0, time.Second},
		{time.Second, time.Minute, time.Second},
		{time.Minute, time.Second, time.Second},
		{0, time.Second, time.Second},
		{-1, time.Second, time.Second},
		{0, 0, 0},
		{time.Second, -1, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			job := &signalbox.Job{Timeout: c.job}
			err := run(t.Context(), job, Timeout(c.d), func(ctx context.Context, _ *signalbox.Job) error {
				if c.want == 0 {
					if _, ok := ctx.Deadline(); ok {
						t.Errorf("%+v: bounded", c)
					}
					return nil
				}
				<-ctx.Done()
				if time.Since(start) != c.want || !errors.Is(context.Cause(ctx), signalbox.ErrTimeout) {
					t.Errorf("%+v: after %v, cause %v", c, time.Since(start), context.Cause(ctx))
				}
				time.Sleep(time.Hour) // it cleans up: it must not count as ended
				return ctx.Err()
			})
			if c.want == 0 {
				if err != nil {
					t.Errorf("%+v: %v", c, err)
				}
				return
			}
			if !errors.Is(err, signalbox.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: %v", c, err)
			}
			if time.Since(start) != c.want+time.Hour {
				t.Errorf("%+v: Timeout returned before the handler", c)
			}
		})
	}
}

func TestTimeoutKeepsWhatTheHandlerDecided(t *testing.T) {
	for _, returned := range []error{nil, signalbox.Snooze(time.Minute), signalbox.Cancel(errMine)} {
		synctest.Test(t, func(t *testing.T) {
			err := run(t.Context(), &signalbox.Job{}, Timeout(time.Second), func(ctx context.Context, _ *signalbox.Job) error {
				<-ctx.Done()
				return returned
			})
			if err != returned {
				t.Errorf("%v became %v", returned, err)
			}
		})
	}
	// An error in time doesn't become a timeout.
	if err := run(t.Context(), &signalbox.Job{}, Timeout(time.Hour), func(context.Context, *signalbox.Job) error { return errMine }); err != errMine {
		t.Errorf("%v", err)
	}
}

func TestTimeoutContextReadsTheClockOfItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := lease.NewValidity(t.Context())
		v.Extend(lease.Now(), time.Second)
		err := run(v.Context(), &signalbox.Job{}, Timeout(time.Hour), func(ctx context.Context, _ *signalbox.Job) error {
			time.Sleep(time.Until(v.Until()))
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), lock.ErrLost) {
				t.Errorf("Err %v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			return ctx.Err()
		})
		if errors.Is(err, signalbox.ErrTimeout) {
			t.Errorf("a lost lease was told as a timeout: %v", err)
		}
	})
}

// The worker logs a failure with its error. In the record of Log it is one outcome among
// others.
func TestLog(t *testing.T) {
	t.Parallel()
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	for _, c := range []struct {
		ctx     context.Context
		err     error
		outcome string
		reason  any // nil: none
	}{
		{t.Context(), &signalbox.SnoozeError{Err: fmt.Errorf("lock: acquire \"k\": %w", lock.ErrHeld)}, "snoozed", "lock held"},
		{t.Context(), &signalbox.SnoozeError{Err: &downError{errors.New("hush-4111")}}, "snoozed", "lock service down"},
		{t.Context(), &signalbox.SnoozeError{Err: errors.New("hush-4111")}, "snoozed", nil},
		{t.Context(), nil, "completed", nil},
		{t.Context(), signalbox.Snooze(time.Second), "snoozed", nil},
		{t.Context(), signalbox.Cancel(errMine), "cancelled", nil},
		{t.Context(), errMine, "failed", nil},
		{t.Context(), signalbox.ErrTimeout, "timeout", nil},
		{t.Context(), lock.ErrLost, "lost", nil},
		{t.Context(), signalbox.ErrShutdown, "failed", nil}, // of a shutdown of something else
		{ended(signalbox.ErrShutdown), signalbox.ErrShutdown, "shutdown", nil},
		{t.Context(), &signalbox.PanicError{Value: 1}, "panic", nil},
		{ended(signalbox.ErrShutdown), context.Canceled, "shutdown", nil},
		{ended(signalbox.ErrTimeout), context.Canceled, "timeout", nil},
		{ended(signalbox.ErrTimeout), &signalbox.PanicError{Value: 1}, "panic", nil},
		{t.Context(), &signalbox.PanicError{Value: signalbox.ErrTimeout}, "panic", nil},
		{ended(lock.ErrLost), context.Canceled, "lost", nil},
		{ended(lock.ErrLost), nil, "completed", nil},
		{ended(signalbox.ErrCancelled), context.Canceled, "cancelled", nil},
		{ended(signalbox.ErrCancelled), errMine, "cancelled", nil},
		{ended(signalbox.ErrCancelled), nil, "completed", nil},
	} {
		var out bytes.Buffer
		job := &signalbox.Job{
			ID: "id1", Kind: "kind1", Queue: "queue1", Attempt: 3, Token: 42,
			Payload: []byte(`{"card":"hush-4111"}`), Headers: map[string]string{"authorization": "hush-4111"}, LastError: "hush-4111",
		}
		err := run(c.ctx, job, Log(slog.New(slog.NewJSONHandler(&out, nil))), func(context.Context, *signalbox.Job) error { return c.err })
		if err != c.err {
			t.Errorf("%v became %v", c.err, err)
		}
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil { // one record
			t.Fatalf("%v: %s", err, out.Bytes())
		}
		for key, want := range map[string]any{
			"level": "INFO", "outcome": c.outcome, "job": "id1", "kind": "kind1", "queue": "queue1", "attempt": 3.0, "token": 42.0, "reason": c.reason,
		} {
			if got[key] != want {
				t.Errorf("%v: %s is %v, want %v", c.err, key, got[key], want)
			}
		}
		text, _ := got["duration"].(string)
		if d, err := time.ParseDuration(text); err != nil || d < 0 || d > time.Minute || got["error"] != nil {
			t.Errorf("%v: %v", c.err, got)
		}
		if strings.Contains(out.String(), "hush-4111") {
			t.Errorf("a secret in the log: %s", out.String())
		}
	}
	var out bytes.Buffer
	_ = run(t.Context(), &signalbox.Job{}, signalbox.Chain(Recover(), Log(slog.New(slog.NewJSONHandler(&out, nil)))), thePanickingHandler)
	if !strings.Contains(out.String(), `"outcome":"panic"`) || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a panic: %s", out.String())
	}
}
