package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var quiet = embedded.Logger(slog.New(slog.DiscardHandler))

// start starts a server and a client. Both end with the test.
func start(t testing.TB, opts ...embedded.Option) (*embedded.Server, *redis.Client) {
	t.Helper()
	srv, err := embedded.Start(append(opts, quiet)...)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() {
		_ = rdb.Close()
		if err := srv.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return srv, rdb
}

func ExampleStart() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()

	fmt.Println(rdb.Ping(context.Background()).Result())
	// Output: PONG <nil>
}

func TestStartIsLoud(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	for _, want := range []string{"level=WARN", "for development", "keeps nothing", srv.Addr()} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &log)
		}
	}
}

func TestAddrIsLoopback(t *testing.T) {
	t.Parallel()
	srv, _ := start(t)
	if host, port, err := net.SplitHostPort(srv.Addr()); err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("Addr() = %q, %v", srv.Addr(), err)
	}
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:1", "6379", srv.Addr()} {
		if other, err := embedded.Start(quiet, embedded.Addr(addr)); err == nil {
			t.Errorf("a server started on %q", addr)
			other.Close()
		}
	}
}

func TestRestartAtAddr(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	at := embedded.Addr(redistest.Address(t))
	srv, rdb := start(t, at)
	if err := rdb.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	// A child process that is forked but not yet executed holds the old listener for a
	// moment.
	var again *embedded.Server
	var err error
	redistest.Eventually(t, func() bool {
		again, err = embedded.Start(quiet, at)
		return !errors.Is(err, syscall.EADDRINUSE)
	}, "the address is free")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n, err := rdb.Exists(ctx, "k").Result(); n != 0 || err != nil {
		t.Errorf("after a restart EXISTS = %d, %v; want an empty server", n, err)
	}
}

func TestCloseEndsBlockedClients(t *testing.T) {
	t.Parallel()
	srv, other := start(t)
	if err := other.Set(context.Background(), "mine", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, PoolSize: 20})
	defer rdb.Close()
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			v, err := rdb.BLPop(context.Background(), 0, "wake").Result()
			if err == nil {
				t.Errorf("BLPOP = %v from a server that closes", v)
			}
		})
	}
	redistest.Eventually(t, func() bool {
		return strings.Contains(other.Info(context.Background(), "clients").Val(), "connected_clients:21")
	}, "20 blocked clients and this one")
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := srv.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	closers.Wait()
	clients.Wait()
	// Another server may have the port by now, but not the key.
	if v, err := rdb.Get(context.Background(), "mine").Result(); err == nil {
		t.Errorf("the server still answers: %q", v)
	}
}

func TestManyClients(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	srv, _ := start(t)
	const workers, each = 32, 50
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 2 * workers})
	defer rdb.Close()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint(w, "-", i)
				if err := rdb.RPush(ctx, "in", id).Err(); err != nil {
					t.Error(err)
				}
				if err := rdb.Set(ctx, "k"+id, 1, time.Duration(i+1)*time.Millisecond).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := make([]string, workers*each)
	for i := range workers {
		wg.Go(func() {
			for j := range each {
				v, err := rdb.BLPop(ctx, 10*time.Second, "in").Result()
				if err != nil {
					t.Error(err)
					return
				}
				seen[i*each+j] = v[1]
			}
		})
	}
	wg.Wait()
	unique := map[string]bool{}
	for _, id := range seen {
		unique[id] = true
	}
	if len(unique) != workers*each {
		t.Errorf("%d different ids popped, want %d", len(unique), workers*each)
	}
}
