package redistest

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// NewWithClock is New for a server whose wall clock can be moved: shift sets it ahead of the machine's clock by d,
// which may be negative. It needs what [servertest.Clock] does, and a real server (see [Env]).
func NewWithClock(t testing.TB, args ...string) (srv *Server, shift func(d time.Duration)) {
	t.Helper()
	path := needReal(t)
	env, shift := servertest.Clock(t)
	p, err := startWith(env, path, t.TempDir(), "", "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return adopt(t, p), shift
}
