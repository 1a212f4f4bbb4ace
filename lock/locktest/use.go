package locktest

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

var errWork = errors.New("locktest: the work failed")

// lock.Do runs the function under the lock. It releases the lock in any case.
func doRunsUnderTheLock(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	for name, work := range map[string]func(){"returns": func() {}, "panics": func() { panic(errWork) }} {
		ran := false
		err := s.do(name, func() error {
			return lock.Do(s.Context(), a, key, func(ctx context.Context) error {
				ran = true
				if lease, ok := lock.FromContext(ctx); !ok || lease.Key() != key || lease.Token() <= 0 {
					s.Errorf("the function that %s has %s", name, told(lease))
				}
				s.refused(b, key, "while the function runs")
				work()
				return errWork
			})
		})
		if !ran || !errors.Is(err, errWork) {
			s.Errorf("the function that %s: ran %v, error %v; want %v", name, ran, err, errWork)
		}
		s.release(s.grant(b, key))
	}

	holder := s.grant(b, key)
	ctx, cancel := context.WithTimeout(s.Context(), 3*moment/2)
	defer cancel()
	err := s.do("that waits in vain", func() error {
		return lock.Do(ctx, a, key, func(context.Context) error {
			s.Error("the function runs though another holds the lock")
			return nil
		})
	})
	if !errors.Is(err, lock.ErrHeld) {
		s.Errorf("Do of a lock that another holds = %v; want ErrHeld", err)
	}
	s.release(holder)
}

// The lock is renewed while the function runs.
func doOutlivesTheTTL(s *suite) {
	a, b, key := s.locker(s.extended), s.locker(s.extended), newKey()
	err := s.do("outlives the TTL", func() error {
		return lock.Do(s.Context(), a, key, func(ctx context.Context) error {
			for end := time.Now().Add(s.extended * 6 / 5); time.Now().Before(end); {
				pause(s.extended / 5)
				s.refused(b, key, "while the function runs")
			}
			return ctx.Err()
		})
	})
	if err != nil {
		s.Errorf("a function that outlives the TTL: %v", err)
	}
}

// lock.Hold does the same with a lock that is already acquired.
func holdReleases(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	l := s.grant(a, key)
	err := s.do("is held", func() error {
		return lock.Hold(s.Context(), l, func(ctx context.Context) error {
			s.refused(b, key, "while the function runs")
			if lease, ok := lock.FromContext(ctx); !ok || lease.Token() != l.Token() {
				s.Errorf("the function has %s", told(lease))
			}
			return ctx.Err()
		})
	})
	if err != nil {
		s.Errorf("Hold = %v; want nil", err)
	}
	s.release(s.grant(b, key))
}

// do calls f on the test's goroutine, where f may use the test. It checks that f didn't take
// too long. A panic with errWork is returned as errWork. Any other panic fails the test:
// lock.Do panicked because of the locker's result.
func (s *suite) do(name string, f func() error) (err error) {
	s.Helper()
	start := time.Now()
	defer func() {
		s.Helper()
		switch p := recover(); p {
		case nil:
		case errWork:
			err = errWork
		default:
			s.Errorf("the function that %s: panic: %v\n%s", name, p, debug.Stack())
		}
		if took := time.Since(start); took > s.extended*6/5+s.slack {
			s.Errorf("the function that %s: took %v", name, took)
		}
	}()
	return f()
}
