package main

import (
	"errors"
	"os"
	"testing"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// On every locker a holder that was stopped writes late. That undoes what others have written, unless the guard refuses
// it. The long form of this is make effects.
func TestLockers(t *testing.T) {
	t.Parallel()
	db, stop, err := startDatabase(t.Context(), "postgres")
	var missing servertest.ErrMissing
	skip := func(t *testing.T, err error) {
		t.Helper()
		if errors.As(err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	skip(t, err)
	t.Cleanup(stop)
	for _, locker := range lockers {
		t.Run(locker, func(t *testing.T) {
			t.Parallel()
			c := choices{seed: 1, size: size{
				increments: 30, faults: 4, members: 1,
				kinds: []fault{{at: held, guarded: true}, {at: read}},
			}}
			r, err := runLocker(t.Context(), locker, c, db)
			skip(t, err)
			if r.guarded != (verdict{acked: c.size.increments}) {
				t.Errorf("guarded: %+v", r.guarded)
			}
			if r.refused == 0 {
				t.Error("the guard refused no stale holder")
			}
			if r.unguarded.lost == 0 {
				t.Errorf("unguarded: %+v; nothing was shown", r.unguarded)
			}
		})
	}
}
