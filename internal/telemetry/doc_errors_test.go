package telemetry_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/scheduler"
)

// settlements are the spans that the table of errors calls "settlements".
var settlements = []string{"ack", "retry", "snooze", "dead_letter"}

// checkErrors compares the table of errors with the failures. Each value must occur on the spans that the table
// names, and on no others. A value that isn't in the table must be a Go type.
func (s *story) checkErrors(t *testing.T, doc string) {
	type place struct{ value, on string }
	emitted := make(map[place]bool)
	values := make(map[string]bool)
	for _, sp := range s.ours() {
		if v := value(sp, "error.type"); v != "" {
			on := short(s.name(sp))
			if on == "enqueue of a bulk" {
				on = "enqueue" // the table's name for both
			}
			emitted[place{v, on}], values[v] = true, true
		}
	}
	for _, m := range s.metrics {
		_, points := dissect(m)
		for _, set := range points {
			if v, ok := set.Value("error.type"); ok {
				values[v.AsString()] = true
			}
		}
	}
	documented := make(map[place]bool)
	known := make(map[string]bool)
	for _, row := range table(t, doc, "error.type", 3) {
		v := list(row[0])[0]
		known[v] = true
		for _, on := range list(row[1]) {
			some := emitted[place{v, on}]
			documented[place{v, on}] = true
			if on == "settlements" {
				for _, on := range settlements {
					documented[place{v, on}] = true
					some = some || emitted[place{v, on}]
				}
			}
			if !some && on != "tick" { // its cases are those of enqueue
				t.Errorf("in docs/tracing, and never emitted: error.type %s on %s", v, on)
			}
		}
	}
	for p := range emitted {
		if known[p.value] && !documented[p] {
			t.Errorf("emitted, and not in docs/tracing: error.type %s on %s", p.value, p.on)
		}
	}
	for v := range values {
		if !known[v] && !goType.MatchString(v) {
			t.Errorf("emitted, and not in docs/tracing: error.type %s", v)
		}
	}
	if len(known) < 10 {
		t.Errorf("%d values are in docs/tracing", len(known))
	}
}

// failures has failures of the network, of Redis and of callers.
func failures(p *part) {
	dial := func(ctx context.Context) error {
		_, err := (&net.Dialer{}).DialContext(ctx, "tcp", nobody)
		return err
	}
	locker := newLocker(p.rdb, lock.Config{MeterProvider: p.mp})
	key := p.name + "-held" // the key that the error names
	held, err := locker.TryAcquire(p.Context(), key)
	if err != nil {
		p.Fatal(err)
	}
	once := scheduler.MaxAttempts(1)
	for _, kind := range []string{"connection", "cancelled", "held"} {
		p.put(p.Context(), kind, once)
	}
	p.work(p.rdb, 3, 5*time.Second, handlers{
		"connection": func(ctx context.Context, _ *signalbox.Job) error { return dial(ctx) },
		"cancelled":  func(ctx context.Context, _ *signalbox.Job) error { return stopped(ctx).Err() },
		"held": func(ctx context.Context, _ *signalbox.Job) error {
			_, err := locker.TryAcquire(ctx, key)
			return err
		},
	}, nil)
	p.await("connection", "cancelled", "held")
	if err := held.Release(p.Context()); err != nil {
		p.Error(err)
	}

	// All at the same time, since a scheduler tries for five seconds.
	var all sync.WaitGroup
	for name, how := range map[string]failure{
		"connection": {spoil: func(proxy *redistest.Proxy, _ redis.UniversalClient) { proxy.Refuse(true); proxy.Sever() }},
		"timeout":    {within: 200 * time.Millisecond, spoil: func(proxy *redistest.Proxy, _ redis.UniversalClient) { proxy.Pause() }},
		"cancelled":  {within: -1},
		"closed":     {spoil: func(_ *redistest.Proxy, rdb redis.UniversalClient) { _ = rdb.Close() }},
		"uncertain":  {spoil: func(proxy *redistest.Proxy, _ redis.UniversalClient) { proxy.Reply(scripts, "+what is that", -1) }},
		"OOM":        {reply: "-OOM command not allowed when used memory > 'maxmemory'."},
		"reply":      {reply: "-what is that"},
	} {
		all.Go(func() { how.happen(p, name) })
	}
	all.Wait()
}

func scripts(cmd []string) bool {
	return len(cmd) > 0 && strings.HasPrefix(strings.ToLower(cmd[0]), "eval")
}

// A failure happens to a caller that enqueues a job and asks for a lock.
type failure struct {
	within time.Duration // how long the caller waits; negative: its context has ended already
	reply  string        // the reply of Redis to everything, if not ""
	spoil  func(*redistest.Proxy, redis.UniversalClient)
}

func (f failure) happen(p *part, name string) {
	proxy := redistest.NewProxy(p, p.server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	sched, err := scheduler.New(rdb, scheduler.Config{Logger: silent, TracerProvider: p.tp, MeterProvider: p.mp})
	if err != nil {
		p.Error(err)
		return
	}
	ctx, span := p.tp.Tracer("caller").Start(p.Context(), "caller")
	defer span.End()
	switch {
	case f.within < 0:
		ctx = stopped(ctx)
	case f.within > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.within)
		defer cancel()
	}
	if f.spoil != nil {
		f.spoil(proxy, rdb)
		defer proxy.Resume()
	}
	if f.reply != "" {
		proxy.Reply(redistest.Any, f.reply, -1)
	}
	if _, err := newLocker(rdb).TryAcquire(ctx, p.lockKey+"-"+name); err == nil {
		p.Errorf("%s: a lock was granted", name)
	}
	if _, err := sched.Enqueue(ctx, job{"never", canary}, scheduler.Queue(p.name)); err == nil {
		p.Errorf("%s: a job was enqueued", name)
	}
}

// nobody is an address without a listener.
const nobody = "127.0.0.1:1"

// stopped returns a context that has ended.
func stopped(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	stop()
	return ctx
}

// newLocker is lock.New with an optional Config, which must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
