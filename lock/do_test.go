package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

var errMine = errors.New("mine")

func TestDo(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	locker := newRedis(rdb)
	ctx := context.WithValue(t.Context(), valueKey{}, "value")
	var held context.Context
	err := Do(ctx, locker, key, func(ctx context.Context) error {
		held = ctx
		lease, ok := FromContext(ctx)
		if !ok || lease.Key() != key || lease.Token() == 0 || ctx.Value(valueKey{}) != "value" {
			t.Errorf("the context of fn has lease %v", lease)
		}
		if _, err := locker.TryAcquire(ctx, key); !errors.Is(err, ErrHeld) {
			t.Errorf("inside: %v", err)
		}
		return errMine
	})
	if !errors.Is(err, errMine) || errors.Is(err, ErrLost) {
		t.Errorf("Do: %v", err)
	}
	if held.Err() == nil || rdb.Exists(ctx, key).Val() != 0 {
		t.Error("the lock outlives Do")
	}
	holder := acquire(t, locker, key)
	_, err = patiently(t, nil, saysHeld, func(ctx context.Context) error {
		return Do(ctx, locker, key, func(context.Context) error { t.Error("fn ran without the lock"); return nil })
	})
	if !errors.Is(err, ErrHeld) {
		t.Errorf("Do of a held lock: %v", err)
	}
	release(t, holder)
}

func TestDoReleasesAfterAPanic(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	func() {
		defer func() {
			if v := recover(); v != "ouch" {
				t.Errorf("recovered %v", v)
			}
		}()
		_ = Do(t.Context(), newRedis(rdb), key, func(context.Context) error { panic("ouch") })
	}()
	if rdb.Exists(t.Context(), key).Val() != 0 {
		t.Error("the lock is still there")
	}
}

func TestDoEndsWithTheCallersContext(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Do(ctx, newRedis(rdb), key, func(ctx context.Context) error {
		cancel(errMine)
		if ctx.Err() == nil {
			t.Error("Err is late")
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, errMine) || errors.Is(err, ErrLost) {
		t.Errorf("Do: %v", err)
	}
	if rdb.Exists(t.Context(), key).Val() != 0 {
		t.Error("the lock is still there")
	}
	if err := Do(ctx, newRedis(rdb), key, func(context.Context) error { t.Error("fn ran"); return nil }); !errors.Is(err, errMine) {
		t.Errorf("with a context that had ended: %v", err)
	}
}

func TestDoRenews(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	const ttl = 6 * time.Second // four of them without a renewal end it
	err := Do(t.Context(), newRedis(s.Client(), Config{TTL: ttl}), key, func(ctx context.Context) error {
		lease, _ := FromContext(ctx)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(lease.Until())): // the work
			return ctx.Err()
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDoLosesTheLock(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	for _, fnErr := range []error{nil, errMine} {
		err := Do(t.Context(), newRedis(rdb, Config{TTL: 3 * time.Second}), key, func(ctx context.Context) error {
			rdb.Set(ctx, key, "theirs", time.Minute)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return fnErr
		})
		if !errors.Is(err, ErrLost) || fnErr != nil && !errors.Is(err, fnErr) {
			t.Errorf("fn returned %v: %v", fnErr, err)
		}
		if rdb.Get(t.Context(), key).Val() != "theirs" {
			t.Error("another's lock was deleted")
		}
		rdb.Del(t.Context(), key)
	}
}

// server is a Redis with one lock, in a time that is not real.
type server struct {
	mu    sync.Mutex
	begin time.Time
	log   []string // what was asked when
	fail  func(script *redis.Script) (time.Duration, error)
}

func newServer() *server { return &server{begin: time.Now()} }

func (s *server) locker(ttl time.Duration) *Redis {
	return newRedis(fakeRedis{run: s.run}, Config{TTL: ttl})
}

func (s *server) run(script *redis.Script, _ []any) (any, error) {
	name := map[*redis.Script]string{acquireScript: "acquire", extendScript: "extend", releaseScript: "release"}[script]
	s.mu.Lock()
	s.log = append(s.log, name+"@"+time.Since(s.begin).String())
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		delay, err := fail(script)
		time.Sleep(delay)
		if err != nil {
			return nil, err
		}
	}
	if script == acquireScript {
		return []any{int64(1), "7"}, nil
	}
	if script == releaseScript {
		return []any{int64(1), int64(0)}, nil
	}
	return int64(1), nil
}

func (s *server) asked() string { s.mu.Lock(); defer s.mu.Unlock(); return strings.Join(s.log, " ") }

// Renewals that outlive the release, leak or miss.
func TestRenewalAtAThird(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServer()
		err := Do(t.Context(), s.locker(10*time.Second), "key", func(context.Context) error {
			time.Sleep(8 * time.Second)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		// The validity is 9.898 s.
		if want := "acquire@0s extend@3.299333333s extend@6.598666666s release@8s"; s.asked() != want {
			t.Errorf("asked %s\n want %s", s.asked(), want)
		}
	})
}

func TestRenewalSurvivesFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServer()
		start := time.Now()
		well := start.Add(9 * time.Second)
		s.fail = func(script *redis.Script) (time.Duration, error) {
			if script == extendScript && time.Now().Before(well) {
				return 100 * time.Millisecond, errMine
			}
			return 0, nil
		}
		err := Do(t.Context(), s.locker(10*time.Second), "key", func(ctx context.Context) error {
			time.Sleep(15 * time.Second)
			return context.Cause(ctx)
		})
		if err != nil {
			t.Errorf("%v; asked %s", err, s.asked())
		}
	})
}

// No renewal comes through: the context ends before the TTL does.
func TestRenewalFailsUntilTheEnd(t *testing.T) {
	const ttl = 10 * time.Second
	for name, hang := range map[string]time.Duration{"refused": 0, "hangs": time.Hour} {
		bubble(t, func(t *testing.T) {
			s := newServer()
			s.fail = func(script *redis.Script) (time.Duration, error) {
				if script == extendScript {
					return hang, errMine
				}
				return 0, nil
			}
			start := time.Now()
			err := Do(t.Context(), s.locker(ttl), "key", func(ctx context.Context) error {
				<-ctx.Done()
				if got := time.Since(start); got != drifted(ttl) {
					t.Errorf("%s: it ended after %v, want %v", name, got, drifted(ttl))
				}
				return context.Cause(ctx)
			})
			if !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			if n := strings.Count(s.asked(), "extend"); n < 3 || n > 50 {
				t.Errorf("%s: %d extensions: %s", name, n, s.asked())
			}
			if time.Since(start) != drifted(ttl) {
				t.Errorf("%s: Do returned after %v", name, time.Since(start))
			}
			time.Sleep(2 * time.Hour) // what hangs must end within the test
		})
	}
}

// An error of the release must be told, and bounds nothing but the release.
func TestReleaseFails(t *testing.T) {
	for name, c := range map[string]struct {
		hang time.Duration
		want string
	}{
		"refused": {0, errMine.Error()},
		"hangs":   {time.Hour, "no answer from Redis within 5s"},
	} {
		bubble(t, func(t *testing.T) {
			s := newServer()
			s.fail = func(script *redis.Script) (time.Duration, error) {
				if script == releaseScript {
					return c.hang, errMine
				}
				return 0, nil
			}
			start := time.Now()
			ran := errors.New("ran")
			err := Do(t.Context(), s.locker(0), "key", func(context.Context) error { return ran })
			if !errors.Is(err, ran) || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > callTimeout {
				t.Errorf("%s: it took %v", name, took)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// With a short TTL the grant may be worth nothing when it comes.
func TestGrantWithNoValidityLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServer()
		s.fail = func(script *redis.Script) (time.Duration, error) {
			if script == acquireScript {
				return 19 * time.Millisecond, nil
			}
			return 0, nil
		}
		_, err := s.locker(20*time.Millisecond).TryAcquire(t.Context(), "key")
		if !errors.Is(err, ErrLost) || errors.Is(err, ErrHeld) {
			t.Errorf("%v", err)
		}
		if want := "acquire@0s release@19ms"; s.asked() != want {
			t.Errorf("asked %s, want %s", s.asked(), want)
		}
	})
}

// Replies that no script of ours gives are errors, not grants and not panics.
func TestStrangeReplies(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "1", int64(1), int64(-1),
		[]any{},
		[]any{int64(1)},
		[]any{int64(1), "x"},
		[]any{int64(1), nil},
		[]any{int64(2), "7"},
		[]any{"1", "7"},
		[]any{int64(1), int64(7)},
		[]any{int64(0), "7"},
		[]any{int64(1), "7", "8"},
		[]any{int64(1), "99999999999999999999"},
	} {
		l, err := newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) { return reply, nil }}).TryAcquire(t.Context(), "key")
		if l != nil || err == nil || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "unexpected reply") {
			t.Errorf("%#v: %v, %v", reply, l, err)
		}
	}
	for _, reply := range []any{nil, "1", int64(2), []any{int64(1)}} {
		if err := parseExtended(reply); err == nil || errors.Is(err, ErrLost) {
			t.Errorf("%#v: extended: %v", reply, err)
		}
		if g, err := parseReleased(reply); g != (gift{}) || err == nil || errors.Is(err, ErrLost) {
			t.Errorf("%#v: released: %v, %v", reply, g, err)
		}
	}
}

func TestNoTwoHoldersByARenewalThatIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServer()
		s.fail = func(script *redis.Script) (time.Duration, error) {
			if script == extendScript {
				return 700 * time.Millisecond, nil // slow, but no failure
			}
			return 0, nil
		}
		const ttl = time.Second
		l, err := s.locker(ttl).Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		if err := l.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.Until().Sub(start); got != drifted(ttl) {
			t.Errorf("the validity counts %v from before the call, want %v", got, drifted(ttl))
		}
		time.Sleep(200 * time.Millisecond) // the answer to the next comes after the end
		if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("an extension that came after the end: %v", err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Release: %v", err)
		}
	})
}

// slowLock extends as long as it is let, and takes note if it is released meanwhile.
type slowLock struct {
	*redisLock
	extending chan struct{} // holds one while an extension runs
	begun     chan struct{}
	together  bool
}

func (l *slowLock) Extend(ctx context.Context) error {
	l.extending <- struct{}{}
	close(l.begun)
	<-ctx.Done()
	time.Sleep(time.Second)
	<-l.extending
	return ctx.Err()
}

func (l *slowLock) Release(context.Context) error {
	l.together = len(l.extending) > 0
	l.Validity.End(nil)
	return nil
}

// The extension under way has ended before the release begins.
func TestNoRenewalOutlivesTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &slowLock{
			redisLock: &redisLock{places: []place{{lock: "key"}}, Lock: held.Lock{Validity: lease.NewValidity(t.Context())}},
			extending: make(chan struct{}, 1), begun: make(chan struct{}),
		}
		l.Validity.Extend(lease.Now(), time.Minute)
		err := Hold(t.Context(), l, func(context.Context) error {
			<-l.begun
			return nil
		})
		if err != nil || l.together || len(l.extending) > 0 {
			t.Errorf("%v; released during an extension: %v; extending after it: %v", err, l.together, len(l.extending) > 0)
		}
	})
}
