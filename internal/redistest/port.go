package redistest

import (
	"testing"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// Address returns an address of loopback on which nothing listens. No other test gets it until t has
// ended.
func Address(t testing.TB) string {
	t.Helper()
	p := servertest.ReservePort()
	p.First.Close()
	t.Cleanup(p.Release)
	return p.Addr()
}
