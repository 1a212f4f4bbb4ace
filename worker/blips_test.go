package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/health"
)

// serverless returns a client whose server nothing may ask.
func serverless(t *testing.T) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Stuck handlers that keep all slots break a worker when Redis was there for a minute meanwhile, however often it was away in between.
func TestStuckHandlersOnABadNetwork(t *testing.T) {
	t.Parallel()
	away := func(of, each time.Duration) func(q *queue, at time.Duration) {
		return func(q *queue, at time.Duration) {
			switch at % each {
			case 0:
				q.contact.failed("claim", time.Now(), refusal("LOADING"))
			case of:
				q.contact.answered(time.Now())
			}
		}
	}
	lost := func(q *queue, at time.Duration) {
		if at%(10*time.Second) == 0 {
			q.contact.failed("claim", time.Now(), io.EOF)
			q.contact.answered(time.Now())
		}
	}
	for name, tc := range map[string]struct {
		happens     func(q *queue, at time.Duration) // each second
		after, most time.Duration                    // when the worker is broken; 0: never
	}{
		"nothing happens":           {func(*queue, time.Duration) {}, brokenAfter, brokenAfter + 2*time.Second},
		"a reply is lost each 10 s": {lost, brokenAfter, brokenAfter + 2*time.Second},
		"away for 1 s of 20 s":      {away(time.Second, 20*time.Second), brokenAfter + 3*time.Second, brokenAfter + 7*time.Second},
		"away for 15 s of 20 s":     {away(15*time.Second, 20*time.Second), 3 * brokenAfter, 5 * brokenAfter},
		"away all the time":         {away(2*time.Hour, 3*time.Hour), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := stillOn(t, serverless(t), 2)
				getStuck(q, 2)
				var broken time.Duration
				for at := time.Duration(0); at < time.Hour && broken == 0; at += 500 * time.Millisecond {
					if at%time.Second == 0 {
						tc.happens(q, at)
					}
					q.guard.reportStuck()
					if found(q, health.HandlersStuck, time.Now()) == health.Broken {
						broken = at
					}
					time.Sleep(500 * time.Millisecond) // of the bubble's clock
				}
				if broken < tc.after || broken > tc.most {
					t.Errorf("broken after %v, want %v to %v", broken, tc.after, tc.most)
				}
			})
		})
	}
}

// A reply that was lost with its connection is no outage if the call is answered when it is made again. It is logged once a minute, and the worker stays ready.
// A second failure in a row makes both an outage.
func TestALostReplyIsNoOutage(t *testing.T) {
	t.Parallel()
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	type failure struct {
		err   error
		after time.Duration // the end of the call before; negative: both were under way together
	}
	const soon, together = 10 * time.Millisecond, -10 * time.Millisecond
	for name, tc := range map[string]struct {
		failures []failure
		outage   bool
	}{
		"one":                           {[]failure{{io.EOF, soon}}, false},
		"one that was reset":            {[]failure{{fmt.Errorf("call: %w", reset), soon}}, false},
		"all calls that were under way": {[]failure{{io.EOF, soon}, {reset, together}, {io.EOF, together}}, false},
		"one, and one more":             {[]failure{{io.EOF, soon}, {io.EOF, soon}}, true},
		"one, and Redis is gone":        {[]failure{{io.EOF, soon}, {refused, soon}}, true},
		"Redis is gone":                 {[]failure{{refused, soon}}, true},
		"a dial that is reset":          {[]failure{{&net.OpError{Op: "dial", Err: syscall.ECONNRESET}, soon}}, true},
		"a timeout":                     {[]failure{{os.ErrDeadlineExceeded, soon}}, true},
		"Redis refuses":                 {[]failure{{refusal("LOADING"), soon}}, true},
		"one, and Redis refuses":        {[]failure{{io.EOF, soon}, {refusal("READONLY"), together}}, true},
		// While Redis writes for nobody, no job starts anywhere.
		"a replica":             {[]failure{{refusal("READONLY You can't write against a read only replica."), soon}}, true},
		"no memory":             {[]failure{{refusal("OOM command not allowed when used memory > 'maxmemory'."), soon}}, true},
		"no disk":               {[]failure{{refusal("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), soon}}, true},
		"too few replicas":      {[]failure{{refusal("NOREPLICAS Not enough good replicas to write."), soon}}, true},
		"a replica that is cut": {[]failure{{refusal("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), soon}}, true},
		"no slot":               {[]failure{{refusal("CLUSTERDOWN Hash slot not served"), soon}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := stillOn(t, serverless(t), 1)
				var log bytes.Buffer
				q.w.log = slog.New(slog.NewTextHandler(&log, nil))
				q.log = q.w.log
				const times = 50
				for n := range times {
					time.Sleep(time.Second) // of the bubble's clock
					for _, f := range tc.failures {
						began := time.Now()
						time.Sleep(max(f.after, 0))
						if f.after > 0 {
							began = time.Now()
						}
						q.contact.failed("claim", began.Add(min(f.after, 0)), f.err)
					}
					if got := found(q, health.RedisAway, time.Now()); (got == health.Unready) != tc.outage {
						t.Fatalf("failure %d: the report says %v", n+1, got)
					}
					time.Sleep(time.Second)
					q.contact.answered(time.Now())
					if got := found(q, health.RedisAway, time.Now()); got != health.OK {
						t.Fatalf("failure %d: when the call was answered, the report says %v", n+1, got)
					}
					select {
					case <-q.w.link.again:
					default:
						t.Fatal("nobody looks whether it is the same Redis")
					}
				}
				want := 0
				if tc.outage {
					want = times
				}
				for _, line := range []string{"Redis is away", "Redis is back"} {
					if n := strings.Count(log.String(), line); n != want {
						t.Errorf("%q is logged %d times, want %d", line, n, want)
					}
				}
				if n := strings.Count(log.String(), "a call to Redis failed"); !tc.outage && (n < 2 || n > 4) { // in 100 s, for each kind
					t.Errorf("the failures are logged %d times", n)
				}
			})
		})
	}
}

// When a call hangs after a reply was lost, that is an outage.
func TestHangAfterALostReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := stillOn(t, serverless(t), 1)
		q.contact.failed("claim", time.Now(), errors.Join(io.EOF))
		time.Sleep(time.Second) // of the bubble's clock
		q.contact.waits[0].begin(q, time.Now())
		time.Sleep(hungAfter)
		q.contact.reportHang(hungAfter)
		if got := found(q, health.RedisAway, time.Now()); got != health.Unready {
			t.Errorf("the report says %v", got)
		}
		q.contact.answered(time.Now())
		if got := found(q, health.RedisAway, time.Now()); got != health.OK {
			t.Errorf("when the call was answered, the report says %v", got)
		}
	})
}
