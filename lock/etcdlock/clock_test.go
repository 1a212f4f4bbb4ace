package etcdlock

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// steppable starts an etcd whose wall clock can be moved. It sets the environment, so the test can't be parallel.
func steppable(t *testing.T) (s *servertest.Server, shift func(time.Duration)) {
	t.Helper()
	env, shift := servertest.Clock(t)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	t.Setenv("REDISTEST_CLOCK_VDSO", "1") // etcd is written in Go
	return servertest.Etcd(t, 1)[0], shift
}

// A step of the server's clock, in either direction, ends no live lease, and tokens grow: etcd counts a lease's time by a
// monotonic clock, and tokens are no times. Releases before 3.5 look for ended leases by the wall clock. So after a step
// back the lock of a dead holder stays held until the clock has caught up.
func TestServersClockSteps(t *testing.T) {
	s, shift := steppable(t)
	a, b, key := lockerOn(t, time.Minute, s.Addr()), lockerOn(t, time.Minute, s.Addr()), newKey()
	brief := lockerOn(t, time.Second, s.Addr())
	last := int64(0)
	for _, by := range []time.Duration{0, 10 * time.Hour, -10 * time.Hour} {
		l := acquire(t, a, key)
		if l.Token() <= last {
			t.Errorf("%v: token %d after %d", by, l.Token(), last)
		}
		last = l.Token()
		var dead lock.Lock
		if by < 0 {
			dead = acquire(t, brief, newKey())
		}
		shift(by)
		if ahead := time.Until(serverTime(t, s)); (ahead - by).Abs() > time.Hour {
			t.Fatalf("the server's clock is %v ahead, want %v; nothing was shown", ahead, by)
		}
		if by < 0 {
			results := waiting(t.Context(), t, b, dial(t, nil, s.Addr()), dead.Key(), 1)
			lost(t, dead)
			select {
			case r := <-results: // an etcd with the remedy
				results = given(r)
			case <-time.After(2500 * time.Millisecond):
				t.Log("the lock of a dead holder is still held")
			}
			shift(10 * time.Hour) // as when the lease was granted
			heir := granted(t, results)
			if heir.Token() <= dead.Token() {
				t.Errorf("token %d after %d", heir.Token(), dead.Token())
			}
			release(t, heir)
			shift(by)
		}
		refused(t, b, key)
		if err := l.Extend(t.Context()); err != nil {
			t.Errorf("%v: the holder extends: %v", by, err)
		}
		if by < 0 {
			s.Kill()
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			refused(t, b, key)
			if err := l.Extend(t.Context()); err != nil {
				t.Errorf("%v: the holder extends after a restart: %v", by, err)
			}
		}
		release(t, l)
	}
}

// given returns a channel with one result.
func given(r result) <-chan result {
	results := make(chan result, 1)
	results <- r
	return results
}

// serverTime returns the wall clock of a server.
func serverTime(t *testing.T, s *servertest.Server) time.Time {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr() + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	return now
}
