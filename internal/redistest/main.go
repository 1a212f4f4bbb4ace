package redistest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, ends the servers that they shared and then fails
// if a goroutine is left. It exits the process:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Options are for goroutines that are somebody else's; give the reason beside each.
func Main(m *testing.M, ignore ...goleak.Option) {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "redistest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		var err error
		poll(patience, func() bool { // goleak waits for half a second, which is little on a busy machine
			err = goleak.Find(ignore...)
			return err == nil
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}
