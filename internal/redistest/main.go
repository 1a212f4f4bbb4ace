package redistest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Main runs the tests of a package, ends the servers that they shared and then fails if a goroutine is left. On a
// real server eight tests run at a time, unless a flag sets another number. Main exits the process:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// ignore is for goroutines of other packages. Give the reason beside each.
func Main(m *testing.M, ignore ...goleak.Option) {
	said := &clientLog{}
	redis.SetLogger(said)
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if path, err := binary(); !parallel && err == nil && path != "" {
		// The tests mostly wait, for leases to end and for servers. With the embedded Redis they compute: it runs its
		// scripts in this process, and far more slowly.
		_ = flag.Set("test.parallel", "8")
	}
	code := m.Run()
	if code != 0 {
		said.print(os.Stderr)
	}
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "redistest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		var err error
		poll(patience, func() bool { // goleak waits half a second, which is short on a busy machine
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
