package zklock

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		runChild(child)
		return
	}
	code := m.Run()
	shared.sharedCloser.close()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared is the server of all tests that break none. Sessions on it last 1 to 10 s.
var shared struct {
	once   sync.Once
	server *servertest.Server
	err    error
	sharedCloser
}

type sharedCloser struct{}

func (sharedCloser) close() {
	if shared.server != nil {
		shared.server.Close()
	}
}

// server returns the shared server.
func server(t testing.TB) *servertest.Server {
	t.Helper()
	shared.once.Do(func() {
		servers, err := servertest.NewZooKeeper(1, "tickTime=500")
		if shared.err = err; err == nil {
			shared.server = servers[0]
		}
	})
	if missing := (servertest.ErrMissing{}); errors.As(shared.err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// lockerOn returns a locker that is closed with the test.
func lockerOn(t testing.TB, c Config, addrs ...string) *Locker {
	t.Helper()
	l, err := New(addrs, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// locker returns one on the shared server.
func locker(t testing.TB, c Config) *Locker {
	t.Helper()
	return lockerOn(t, c, server(t).Addr())
}

const second = time.Second
