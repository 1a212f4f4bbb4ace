package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
)

// patience bounds waits that take much less if all goes well.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childAddr) != "" {
		holdInChild()
		return
	}
	locktest.Child(func(addr string, ttl time.Duration) (lock.Locker, error) {
		return New([]string{addr}, Config{TTL: ttl, SessionTimeout: 2 * time.Second})
	})
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "16") // a test mostly waits
	}
	if _, err := start(); missing(err) {
		_ = flag.Set("test.skip", "^Example") // examples can't skip themselves
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
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
}

// start returns the address of the shared server, and starts it first.
func start() (addr string, err error) {
	shared.once.Do(func() {
		servers, err := servertest.NewZooKeeper(1, "tickTime=500")
		if shared.err = err; err == nil {
			shared.server = servers[0]
		}
	})
	if shared.err != nil {
		return "", shared.err
	}
	return shared.server.Addr(), nil
}

// missing reports whether ZooKeeper isn't installed, and need not be.
func missing(err error) bool {
	return errors.As(err, new(servertest.ErrMissing)) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required"
}

// server returns the address of the shared server. Without one the test is skipped.
func server(t testing.TB) string {
	t.Helper()
	addr, err := start()
	if missing(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// ServersOfExamples returns the address of the shared server.
func ServersOfExamples() []string {
	addr, err := start()
	if err != nil {
		panic(err)
	}
	return []string{addr}
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
	return lockerOn(t, c, server(t))
}

func newKey() string { return "test/" + rand.Text() }

// acquire must succeed.
func acquire(t testing.TB, l lock.Locker, key string) *zkLock {
	t.Helper()
	k := <-acquiring(t.Context(), l, key)
	if k.err != nil {
		t.Fatal(k.err)
	}
	return k.lock
}

type result struct {
	lock *zkLock
	err  error
	at   time.Time
}

// acquiring calls Acquire in the background.
func acquiring(ctx context.Context, l lock.Locker, key string) <-chan result {
	results := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		k, err := l.Acquire(ctx, key)
		r := result{err: err, at: time.Now()}
		if err == nil {
			r.lock = k.(*zkLock)
		}
		results <- r
	}()
	return results
}

func release(t testing.TB, k lock.Lock) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// eventually waits until f returns true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !f(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// seen returns how a locker sees a key.
func seen(t testing.TB, l *Locker, key string) view {
	t.Helper()
	path, err := pathOf(l.root, key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := l.lookNow(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// raw makes one call of the locker's client.
func raw[T any](t testing.TB, l *Locker, op func(*zk.Conn) (T, error)) T {
	t.Helper()
	v, err := ask(t.Context(), l.session, op)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// lost fails the test unless the context ends with cause lock.ErrLost.
func lost(t testing.TB, k lock.Lock) {
	t.Helper()
	select {
	case <-k.Context().Done():
	case <-time.After(patience):
		t.Fatal("the lock's context has not ended")
	}
	if cause := context.Cause(k.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Fatalf("the lock's context ended with %v", cause)
	}
}

func cancellable(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

func deletion(path string) func(*zk.Conn) (struct{}, error) {
	return func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) }
}
