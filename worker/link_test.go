package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker logs when it is ready: its queues, its slots, and the Redis that it uses.
func TestLogWhenReady(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.New(t).Client())
	w := r.worker(7)
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "a job runs")
	r.log.says(t, "the worker is ready", `queues=\[`+r.name()+`\]`, "slots=7", "kinds=1", `redis=\d+\.\d+\.\d+`, "mode=standalone", "persistence=no AOF", "eviction=noeviction")
	if r.log.count("about this Redis") > 0 {
		t.Error("the log doubts a server that is set up well")
	}
}

// When Redis is back after an outage, the worker logs that and inspects Redis again.
func TestLogWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	cfg := r.config(1)
	w := r.workerOn(proxy.Client(), cfg)
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "a job runs")
	ctx := context.Background()
	for _, set := range [][2]string{{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}} {
		if err := r.rdb.ConfigSet(ctx, set[0], set[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Refuse(true)
	proxy.Sever()
	redistest.Eventually(t, func() bool { return r.log.count("WARN", "Redis is away") > 0 }, "the worker says that Redis is away")
	proxy.Refuse(false)
	r.log.says(t, "Redis is back", `after=[\d.]+m?s`)
	r.log.says(t, "should not be used any more: its maxmemory-policy is allkeys-lru")
	r.works(ran, "it goes on")
}

// For the whole worker, each outage is logged once when it begins, with its error, and once when it ends. That holds however soon it
// follows another one, and whether Redis is gone, refuses writes, or hangs.
func TestLogOfOutages(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	cfg := r.short(1)
	cfg.Queues[r.name()+"-two"] = worker.Queue{Concurrency: 1}
	// After as many dials have failed as a pool has connections, go-redis answers with the last failure for up to a second after Redis is back.
	w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 10_000 }), cfg)
	ran := r.reporter(w)
	r.start(w)
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	// The failure of a call that an outage has cut may come long after it. When both queues have heard of Redis since, it counts no more.
	works := func(what string) {
		t.Helper()
		r.works(ran, what)
		res, err := s.Enqueue(t.Context(), task{}, scheduler.Queue(r.name()+"-two"))
		if err != nil {
			t.Fatal(err)
		}
		for id := ""; id != res.ID; {
			id = get(t, ran, what+", and one of the other queue")
		}
	}
	// renewed waits until a renewal of each queue has come through. The worker's own client has few connections: when as many dials have failed, it
	// answers with the last failure for up to a second after Redis is back. That would be taken for the beginning of the next outage.
	renewed := func() {
		t.Helper()
		for name := range cfg.Queues {
			key := "signalbox:{default:" + name + "}:"
			of := func(cmd []string) bool {
				return len(cmd) > 4 && strings.EqualFold(cmd[0], "evalsha") && strings.HasPrefix(cmd[3], key+"lane:") && cmd[4] == key+"sessions"
			}
			before := proxy.Count(of)
			redistest.Eventually(t, func() bool { return proxy.Count(of) > before }, "a renewal of %s comes through", name)
		}
	}
	works("a job runs")
	for _, outage := range []struct {
		error      string
		begin, end func()
	}{
		{"connection refused", func() { proxy.Refuse(true); proxy.Sever() }, func() { proxy.Refuse(false) }},
		{"NOREPLICAS", func() { set(t, server, "min-replicas-to-write", "1") }, func() { set(t, server, "min-replicas-to-write", "0") }},
		{"no answer for", proxy.Pause, proxy.Resume},
		{"NOREPLICAS", func() { set(t, server, "min-replicas-to-write", "1") }, func() { set(t, server, "min-replicas-to-write", "0") }},
	} {
		before := r.log.count(" away", outage.error)
		outage.begin()
		redistest.Eventually(t, func() bool { return r.log.count("WARN", " away", outage.error) > before }, "the log says %s", outage.error)
		outage.end()
		if outage.error == "connection refused" {
			renewed()
		}
		works("a job runs when it is over")
		redistest.Eventually(t, func() bool { return r.log.count("Redis is away") == r.log.count("INFO", "Redis is back", "after=") }, "the log says that it is over")
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	away := false
	for _, e := range r.log.entries {
		began, ended := strings.Contains(e, "Redis is away"), strings.Contains(e, "Redis is back")
		if began && away || ended && !away {
			t.Errorf("not in pairs: %s", e)
		}
		away = began || away && !ended
	}
}

// If its Redis user lacks a command, a worker reports the command when it starts, instead of failing at each job.
func TestACommandIsDenied(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newRigOn(t, srv.Client())
	ctx := context.Background()
	login := func(rules ...any) redis.UniversalClient {
		rules = append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~signalbox:*", "&signalbox:*", "+hello", "+client"}, rules...)
		for _, c := range server.Commands(server.Worker) {
			if c != "HINCRBY" {
				rules = append(rules, "+"+c)
			}
		}
		if err := r.rdb.Do(ctx, rules...).Err(); err != nil {
			t.Fatal(err)
		}
		return srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "app", "secret" })
	}
	msg := r.refused(login())
	for _, part := range []string{"user app", "HINCRBY", "worker", "ACL SETUSER app +hincrby"} {
		if !strings.Contains(msg, part) {
			t.Errorf("the error doesn't say %q: %s", part, msg)
		}
	}
	w := r.workerOn(login("+hincrby"), r.config(1))
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "with that command it works")
	r.log.says(t, "doesn't say what its maxmemory-policy is")
	if n := r.log.count("maxmemory-policy"); n != 1 {
		t.Errorf("that is said %d times", n)
	}
}

// A running worker loses the right to subscribe. It logs that once and still runs jobs. When it has the right again, it subscribes again.
func TestARefusedSubscriptionIsLogged(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	ctx := context.Background()
	allow := func(rules ...any) {
		t.Helper()
		if err := r.rdb.Do(ctx, append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("on", ">secret", "~signalbox:*", "&signalbox:*", "+@all")
	w := r.workerOn(server.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "app", "secret" }), r.lease(1, time.Minute))
	ran := r.reporter(w)
	r.start(w)
	r.idle()
	const refused = "WARN signalbox: no subscription could be made"
	allow("resetchannels") // Redis closes connections that listen without the right
	redistest.Eventually(t, func() bool { return r.log.count(refused, "NOPERM") > 0 }, "the log says why no message comes")
	allow("&signalbox:*")
	r.works(ran, "it hears again")
	if n := r.log.count(refused); n != 1 {
		t.Errorf("that is said %d times", n)
	}
}
