package pglock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

// What a waiter's error says when its context ends: that the lock is held, that PostgreSQL is silent, or neither.
func TestWhatAWaiterHasSeen(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ended := fmt.Errorf("the waiter: %w", lease.Ended(over))
	down := errors.New("down")
	const never = -1
	for name, c := range map[string]struct {
		ctx             context.Context
		err             error
		came            time.Duration // how long ago the waiter came
		answered, asked time.Duration // how long ago the lock was last seen held, and the call was sent that has no answer yet
		held, silent    bool
	}{
		"nothing is known":                          {over, ended, 0, never, never, false, false},
		"it was seen held":                          {over, ended, time.Second, 100 * time.Millisecond, never, true, false},
		"it was seen held, and is asked for again":  {over, ended, time.Second, 600 * time.Millisecond, 50 * time.Millisecond, true, false},
		"it was seen held, then nothing is heard":   {over, ended, time.Minute, 10 * time.Second, 9 * time.Second, false, true},
		"it was seen held before the waiter came":   {over, ended, 50 * time.Millisecond, time.Minute, 10 * time.Millisecond, false, true},
		"no answer yet":                             {over, ended, 50 * time.Millisecond, never, 50 * time.Millisecond, false, true},
		"PostgreSQL has failed":                     {over, down, time.Second, 100 * time.Millisecond, never, false, false},
		"PostgreSQL has failed, the context hasn't": {t.Context(), down, time.Second, 100 * time.Millisecond, never, false, false},
		"it got the lock":                           {over, nil, time.Second, 100 * time.Millisecond, never, false, false},
	} {
		now := time.Now()
		ago := func(d time.Duration) time.Time {
			if d == never {
				return time.Time{}
			}
			return now.Add(-d)
		}
		p := &Locker{lines: map[string]*line{"k": {answered: ago(c.answered), asked: ago(c.asked)}}}
		err := p.ended(c.ctx, "k", &waiter{since: ago(c.came)}, c.err)
		if !errors.Is(err, c.err) || errors.Is(err, lock.ErrHeld) != c.held {
			t.Errorf("%s: %v; want that it wraps %v, and ErrHeld: %v", name, err, c.err, c.held)
		}
		if said := !c.held && !errors.Is(c.err, err); said != c.silent {
			t.Errorf("%s: %v; want that it says that PostgreSQL is silent: %v", name, err, c.silent)
		}
	}
}

// Which errors say that the server changed nothing, and which that the statement may succeed the next time.
func TestWhatAnErrorSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err              error
		answer, conflict bool
	}{
		{nil, false, false},
		{io.ErrUnexpectedEOF, false, false},
		{&pgconn.PgError{Code: "57P01"}, false, false}, // the server shuts down, and may have committed
		{&pgconn.PgError{Code: "08006"}, false, false}, // a pooler has lost its connection to the server
		{&pgconn.PgError{Code: "55P03"}, true, false},
		{&pgconn.PgError{Code: "40001"}, true, true},
		{&pgconn.PgError{Code: "40P01"}, true, true},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("wrapped: %w", err)
		}
		if answer, conflict := isAnswer(err), isConflict(err); answer != c.answer || conflict != c.conflict {
			t.Errorf("%v: an answer: %v, want %v; a conflict: %v, want %v", err, answer, c.answer, conflict, c.conflict)
		}
	}
}
