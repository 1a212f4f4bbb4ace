package batch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// flights counts the pipelines of a client and the commands in them.
type flights struct {
	mu       sync.Mutex
	pipes    int
	commands int
}

func (f *flights) seen() (pipes, commands int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pipes, f.commands
}

func (f *flights) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}
func (f *flights) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *flights) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" || cmds[0].Name() == "eval" {
			f.mu.Lock()
			f.pipes++
			f.commands += len(cmds)
			f.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

var echo = redis.NewScript(`return ARGV[1]`)

const timeout = 5 * time.Second

// fakeRedis runs no scripts but a function.
type fakeRedis struct {
	Client
	run func(arg any) any
}

func (f fakeRedis) EvalSha(_ context.Context, _ string, _ []string, args ...any) *redis.Cmd {
	return redis.NewCmdResult(f.run(args[0]), nil)
}

// Calls that come while the flights are under way go together.
func TestCallsGather(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr())
	rdb, f := proxy.Client(), &flights{}
	rdb.AddHook(f)
	c := New(rdb, timeout)
	run := func(i int) error {
		want := fmt.Sprint(i)
		reply, err := c.Call(t.Context(), timeout, echo, []string{"{same}"}, []any{want}, nil)
		if err == nil && reply != want {
			err = fmt.Errorf("the reply to %s is %v", want, reply)
		}
		return err
	}
	if err := run(-1); err != nil { // a connection
		t.Fatal(err)
	}
	if err := s.Client().ScriptFlush(t.Context()).Err(); err != nil { // the scripts that a pipeline finds unknown are sent whole
		t.Fatal(err)
	}
	proxy.Pause()
	const n = 40
	var wg sync.WaitGroup
	c.mu.Lock() // until all of them are there
	for i := range n {
		wg.Go(func() {
			if err := run(i); err != nil {
				t.Error(err)
			}
		})
	}
	c.flights = maxFlights // busy
	c.mu.Unlock()
	redistest.Eventually(t, func() bool { pipes, _ := f.seen(); return pipes > 0 }, "the calls are under way")
	proxy.Resume()
	wg.Wait()
	if pipes, commands := f.seen(); commands < n/2 {
		t.Errorf("%d pipelines with %d commands for %d calls", pipes, commands, n)
	}
}

// Flights that are stuck hold nobody up for long, and who leaves before its call was sent
// has done nothing.
func TestStuckFlights(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 100)
	release := make(chan struct{})
	c := New(fakeRedis{run: func(arg any) any {
		sent <- arg.(string)
		if arg == "stuck" {
			<-release
		}
		return arg
	}}, timeout)
	c.alone = false
	var wg sync.WaitGroup
	defer close(release)
	orphans := make(chan any, maxFlights)
	for range maxFlights {
		wg.Go(func() {
			_, err := c.Call(t.Context(), 50*time.Millisecond, echo, nil, []any{"stuck"}, func(_ context.Context, reply any, _ error) { orphans <- reply })
			if err == nil {
				t.Error("it was not stuck")
			}
		})
		<-sent
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	orphaned := func(context.Context, any, error) { t.Error("an orphan that was never sent") }
	if _, err := c.Call(ctx, timeout, echo, nil, []any{"left"}, orphaned); !errors.Is(err, context.Canceled) {
		t.Errorf("a call with an ended context: %v", err)
	}
	if reply, err := c.Call(t.Context(), timeout, echo, nil, []any{"late"}, orphaned); reply != "late" || err != nil {
		t.Errorf("a call beside stuck ones: %v, %v", reply, err)
	}
	if got := <-sent; got != "late" {
		t.Errorf("%q was sent though its caller had left", got)
	}
	wg.Wait()
	for range maxFlights {
		release <- struct{}{}
		if reply := <-orphans; reply != "stuck" {
			t.Errorf("the orphan's reply is %v", reply)
		}
	}
}
