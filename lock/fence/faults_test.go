package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

type stateError string

func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }

type codeError int

func (e codeError) Error() string { return fmt.Sprintf("code %d", int(e)) }
func (e codeError) Code() int     { return int(e) }

// The errors of drivers are recognised without them, also inside of other errors. Another database's codes mean nothing.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		dialect Dialect
		want    fault
	}{
		{stateError("40001"), PostgreSQL, faultReplay},
		{stateError("40P01"), PostgreSQL, faultReplay},
		{stateError("55P03"), PostgreSQL, faultBlocked},
		{stateError("25P02"), PostgreSQL, faultAborted},
		{stateError("42P01"), PostgreSQL, faultSchema},
		{stateError("23505"), PostgreSQL, faultOther},
		{stateError("40001"), MariaDB, faultOther},
		{errors.New("Error 1213 (40001): Deadlock found"), MariaDB, faultReplay},
		{errors.New("Error 1020 (HY000): Record has changed"), MariaDB, faultReplay},
		{errors.New("Error 1213: Deadlock found"), MariaDB, faultReplay},
		{errors.New("Error 1205 (HY000): Lock wait timeout"), MariaDB, faultBusy},
		{errors.New("Error 1062 (23000): Duplicate entry"), MariaDB, faultDuplicate},
		{errors.New("Error 1146 (42S02): Table"), MariaDB, faultSchema},
		{errors.New("Error 12130 (40001): no"), MariaDB, faultOther},
		{errors.New("Error 1213"), MariaDB, faultOther},
		{errors.New("Error "), MariaDB, faultOther},
		{errors.New("an Error 1213 (40001): no"), MariaDB, faultOther},
		{errors.New("Error 1213 (40001): Deadlock found"), PostgreSQL, faultOther},
		{codeError(5), SQLite, faultBusy},
		{codeError(517), SQLite, faultBusy},
		{codeError(261), SQLite, faultBusy},
		{codeError(6), SQLite, faultBusy},
		{codeError(19), SQLite, faultOther},
		{errors.New("database is locked"), SQLite, faultBusy},
		{errors.New("no such table: signalbox_once"), SQLite, faultSchema},
		{errors.New("no such table: mine"), SQLite, faultOther},
		{sql.ErrTxDone, SQLite, faultAborted},
		{nil, SQLite, faultOther},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err), errors.Join(errors.New("another"), fmt.Errorf("wrapped: %w", c.err))} {
			if c.err == nil {
				err = nil
			}
			if got := c.dialect.faultOf(err); got != c.want {
				t.Errorf("%v: %v is %d, want %d", c.dialect, err, got, c.want)
			}
		}
	}
}

// A transaction is replayed a bounded number of times, and not after its context has ended or after another error.
func TestReplay(t *testing.T) {
	t.Parallel()
	again, other := stateError("40001"), errors.New("other")
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx   context.Context
		fails []error
		tries int
		want  error
	}{
		"well":         {t.Context(), nil, 1, nil},
		"twice":        {t.Context(), []error{again, again}, 3, nil},
		"another":      {t.Context(), []error{again, other}, 2, other},
		"always":       {t.Context(), []error{again, again, again, again, again}, 4, again},
		"it has ended": {ended, []error{again}, 1, again},
	} {
		tries := 0
		err := replay(c.ctx, PostgreSQL, 4, func() error {
			tries++
			if tries <= len(c.fails) {
				return c.fails[tries-1]
			}
			return nil
		})
		if tries != c.tries || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v after %d tries", name, err, tries)
		}
	}
}

// What is kept of a holder isn't its value, which could release the lock.
func TestHolderIsHashed(t *testing.T) {
	t.Parallel()
	grants, err := grantsOf(t.Context(), []lock.Lease{testLease{"k", "redis", "secret", 1}})
	if err != nil || len(grants) != 1 || grants[0].holder != hashHolder("secret") || len(grants[0].holder) != 22 || hashHolder("secret") == hashHolder("Secret") {
		t.Errorf("%+v, %v", grants, err)
	}
}

// What has failed by waiting is replayed for 10 s only: in MariaDB one wait takes 50 s by default.
func TestReplayOfWaits(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{time.Second: 10, 4 * time.Second: 3, 50 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := replay(t.Context(), MariaDB, 10, func() error {
				tries++
				time.Sleep(wait)
				return errors.New("Error 1205 (HY000): Lock wait timeout exceeded")
			})
			if !errors.Is(err, ErrBlocked) || tries != want {
				t.Errorf("waits of %v: %d tries, want %d: %v", wait, tries, want, err)
			}
		})
	}
}
