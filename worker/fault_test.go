package worker_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

func TestRunWaitsForRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Refuse(true)
	w := r.workerOn(proxy.Client(), r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.addOne(signalbox.Job{})
	r.start(w)
	redistest.Eventually(t, func() bool { return r.log.count("WARN", "waiting for Redis", "connection refused") > 0 }, "the worker says that it waits")
	proxy.Refuse(false)
	r.completed(1)
}

// TestRunSaysThatRedisIsSilent: a server accepts connections and doesn't answer. The log reports that before the client gives up.
func TestRunSaysThatRedisIsSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Pause()
	w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout, o.DialTimeout = time.Hour, time.Hour }), r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.addOne(signalbox.Job{})
	r.start(w)
	redistest.Eventually(t, func() bool { return r.log.count("WARN", "Redis has not answered yet", "address=127.0.0.1:") > 0 }, "the worker says that it waits")
	proxy.Resume()
	r.completed(1)
}

func TestRunStopsWhileItWaitsForRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerOn(unused(t), r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	redistest.Eventually(t, func() bool { return r.log.count("waiting for Redis") > 0 }, "the worker waits")
	run.stop()
}

// refused runs a worker that must refuse its Redis, and returns the error.
func (r *rig) refused(rdb redis.UniversalClient) string {
	r.Helper()
	w := r.workerOn(rdb, r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	err := r.start(w).wait()
	if err == nil {
		r.Fatal("Run = nil, want an error")
	}
	return err.Error()
}

func TestWrongRedisIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("eviction", func(t *testing.T) {
		t.Parallel()
		server := redistest.New(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		msg := newRigOn(t, server.Client()).refused(server.Client())
		if !strings.Contains(msg, "allkeys-lru") || !strings.Contains(msg, "noeviction") {
			t.Errorf("the error names neither what is set nor what to set: %s", msg)
		}
	})
	const password = "korrekt-pferd"
	server := redistest.New(t, "--requirepass", password)
	right := server.ClientWith(func(o *redis.UniversalOptions) { o.Password = password })
	for name, given := range map[string]string{"wrong password": "geheim-123", "no password": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := server.ClientWith(func(o *redis.UniversalOptions) { o.Password = given })
			msg := newRigOn(t, right).refused(wrong)
			if !strings.Contains(msg, "credentials") || strings.Contains(msg, "geheim") || strings.Contains(msg, password) {
				t.Errorf("want an error that says it is the credentials, and not which: %s", msg)
			}
		})
	}
}

// works checks that the worker runs new jobs without help.
func (r *rig) works(ran <-chan string, what string) {
	r.Helper()
	id := r.addSoon()
	for got := ""; got != id; {
		got = get(r.T, ran, what)
	}
}

// addSoon enqueues a job as soon as Redis accepts it.
func (r *rig) addSoon() string {
	r.Helper()
	job := signalbox.Job{ID: store.NewID(), Kind: "task", Payload: []byte("{}")}
	item, err := store.NewItem(&job, store.When{})
	if err != nil {
		r.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lane.Next()
	redistest.Eventually(r.T, func() bool {
		_, err := r.queue.Enqueue(context.Background(), r.lane, []store.Item{item})
		return err == nil
	}, "Redis takes a job")
	return job.ID
}

// reporter runs jobs and reports their IDs. It checks that tokens only rise.
func (r *rig) reporter(w *worker.Worker) <-chan string {
	ran := make(chan string, 10_000)
	var mu sync.Mutex
	last := make(map[string]int64)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		mu.Lock()
		defer mu.Unlock()
		if job.Token <= last[job.ID] {
			r.Errorf("job %s: token %d after %d", job.ID, job.Token, last[job.ID])
		}
		last[job.ID] = job.Token
		ran <- job.ID
		return nil
	})
	return ran
}

func TestRedisIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	t.Run("with AOF", func(t *testing.T) {
		t.Parallel()
		server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
		r := newRigOn(t, server.Client())
		w := r.workerWith(r.brief(4))
		ran := make(chan string, 1000)
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
			<-time.After(5 * time.Millisecond)
			ran <- job.ID
			return nil
		})
		r.start(w)
		r.add(make([]signalbox.Job, 300)...)
		for range 50 {
			get(t, ran, "jobs run")
		}
		server.Kill()
		server.Restart()
		r.completed(300)
		r.works(ran, "new jobs run too")
		r.completed(301)
	})
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		server := redistest.New(t)
		r := newRigOn(t, server.Client())
		w := r.workerWith(r.brief(4))
		ran := r.reporter(w)
		r.start(w)
		r.works(ran, "a job runs")
		server.Kill()
		server.Restart()
		r.works(ran, "a job runs after all was lost")
	})
}

func TestMemoryIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(ctx context.Context, rdb redis.UniversalClient) error{
		"FLUSHALL": func(ctx context.Context, rdb redis.UniversalClient) error { return rdb.FlushAll(ctx).Err() },
		"SCRIPT FLUSH": func(ctx context.Context, rdb redis.UniversalClient) error {
			return rdb.ScriptFlush(ctx).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := newRigOn(t, server.Client())
			w := r.workerWith(r.patient(4)) // no renewal helps
			var mu sync.Mutex
			var tokens []int64
			ran := make(chan string, 1000)
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
				mu.Lock()
				defer mu.Unlock()
				tokens = append(tokens, job.Token)
				ran <- job.ID
				return nil
			})
			r.start(w)
			for range 5 {
				r.works(ran, "a job runs")
				if err := lose(context.Background(), r.rdb); err != nil {
					t.Fatal(err)
				}
				r.works(ran, "a job runs after that")
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.IsSorted(tokens) {
				t.Errorf("tokens went back: %v", tokens)
			}
		})
	}
}

// All memory is lost while jobs are in flight. The outcomes of their handlers are refused, and no lost job comes back.
func TestMemoryIsLostUnderJobsInFlight(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	w := r.workerWith(r.short(10))
	running := make(chan struct{}, 10)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, a task) error {
		if job.ID == "after" {
			return nil
		}
		running <- struct{}{}
		<-ctx.Done() // the session is gone, and the next renewal shows it
		return []error{nil, errBoom, signalbox.Snooze(0), signalbox.Cancel(errBoom)}[a.N%4]
	})
	r.start(w)
	r.add(make([]signalbox.Job, 8)...)
	for range 8 {
		get(t, running, "the jobs run")
	}
	if err := r.rdb.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool { return r.log.count("superseded delivery was refused") == 8 }, "all settlements are refused")
	r.addOne(signalbox.Job{ID: "after"})
	r.completed(1)
	if c := r.counts(); c.Cancelled != 0 || c.Total.Retried+c.Total.Returned+c.Total.Delayed != 0 {
		t.Errorf("counts %+v", c)
	}
}

func TestDroppedConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.short(50))
	ran := r.reporter(w)
	const n = 1000
	ids := r.add(make([]signalbox.Job, n)...)
	r.start(w)
	seen := map[string]bool{get(t, ran, "a job runs"): true}
	cuts, since := 0, 0
	cut := time.NewTicker(10 * time.Millisecond)
	defer cut.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for len(seen) < n {
		select {
		case id := <-ran:
			seen[id] = true
			since++
			end.Reset(patience)
		case <-cut.C:
			if since == 0 { // on a busy machine no call may succeed in that time
				continue
			}
			proxy.Sever()
			cuts, since = cuts+1, 0
		case <-end.C:
			t.Fatalf("%d of %d jobs ran, and for %v none", len(seen), n, patience)
		}
	}
	r.completed(n)
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
		t.Error("other jobs ran than were put in")
	}
	t.Logf("%d cuts", cuts)
}

// A lost reply loses no job and doubles none: the call is repeated and recognised.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.config(5))
	ran := r.reporter(w)
	for k := range 30 {
		proxy.CutReply(r.isClaim(), k+1)
	}
	const n = 200
	r.start(w)
	seen := make(map[string]int)
	for range n {
		r.addOne(signalbox.Job{})
		seen[get(t, ran, "the job runs")]++
	}
	r.completed(n)
	if c := r.counts(); len(seen) != n || c.Total.Crashed+c.Total.Returned != 0 || len(ran) != 0 {
		t.Errorf("%d jobs of %d ran, %d ran twice; counts %+v", len(seen), n, len(ran), c)
	}
}

func TestErrorsOfRedis(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"loading":  "-LOADING Redis is loading the dataset in memory",
		"readonly": "-READONLY You can't write against a read only replica.",
		"oom":      "-OOM command not allowed when used memory > 'maxmemory'.",
		"rubbish":  "+what is this",
		"noscript": "-NOSCRIPT No matching script.",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			w := r.workerOn(proxy.Client(), r.brief(5))
			ran := r.reporter(w)
			r.start(w)
			r.works(ran, "a job runs")
			ours := func(cmd []string) bool { return r.isScript()(cmd) || strings.EqualFold(cmd[0], "SUBSCRIBE") }
			proxy.Reply(ours, line, 40)
			r.add(make([]signalbox.Job, 20)...)
			r.completed(21)
			r.works(ran, "new jobs run")
		})
	}
}

func TestWrongTypeOfAKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, kind := range []string{"sessions", "fence", "due", "idle", "stats", "dead", "cancelled", "ready:high", "ready:suspect"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.workerWith(r.brief(5))
			ran := r.reporter(w)
			r.start(w)
			r.works(ran, "a job runs")
			// At once, so that the worker doesn't make the key anew in between. There may be none to
			// put aside.
			_, _ = r.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Rename(ctx, r.key(kind), r.key("lane:aside"))
				if kind == "stats" { // a hash when it is right
					p.Set(ctx, r.key(kind), "something", 0)
				} else {
					p.HSet(ctx, r.key(kind), "some", "thing")
				}
				return nil
			})
			redistest.Eventually(t, func() bool { return r.log.count("WARN", "call to Redis failed", "WRONGTYPE") > 0 }, "the worker says what is wrong")
			_, _ = r.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Del(ctx, r.key(kind))
				p.Rename(ctx, r.key("lane:aside"), r.key(kind))
				return nil
			})
			r.works(ran, "a job runs when the key is right again")
		})
	}
}

// set changes a parameter of the server.
func set(t *testing.T, s *redistest.Server, name, value string) {
	t.Helper()
	if err := s.Client().ConfigSet(context.Background(), name, value).Err(); err != nil {
		t.Error(err)
	}
}

// failSaves makes the server fail to save its data. It then refuses all writes with MISCONF.
func failSaves(t *testing.T, s *redistest.Server) {
	t.Helper()
	ctx, rdb := context.Background(), s.Client()
	file := filepath.Join(rdb.ConfigGet(ctx, "dir").Val()["dir"], rdb.ConfigGet(ctx, "dbfilename").Val()["dbfilename"])
	if err := os.Mkdir(file, 0o700); err != nil { // no file can have its name
		t.Error(err)
	}
	set(t, s, "save", "3600 1000000")
	if err := rdb.BgSave(ctx).Err(); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, func() bool {
		err := rdb.Set(ctx, "any", "thing", time.Minute).Err()
		return err != nil && redis.HasErrorPrefix(err, "MISCONF")
	}, "the server refuses writes")
}

// If a Redis stands still, or refuses writes, for longer than the leases, no job gets a crash.
func TestOutageIsNobodysCrash(t *testing.T) {
	t.Parallel()
	const refused = 2 * shortTTL // the leases are lost long before it ends
	for name, outage := range map[string]func(t *testing.T, s *redistest.Server){
		"CLIENT PAUSE": func(t *testing.T, s *redistest.Server) {
			if err := s.Client().Do(context.Background(), "CLIENT", "PAUSE", "7000", "ALL").Err(); err != nil {
				t.Error(err)
			}
			<-time.After(7 * time.Second)
		},
		"SIGSTOP": func(_ *testing.T, s *redistest.Server) {
			s.Stop()
			<-time.After(7 * time.Second)
			s.Cont()
		},
		"too few replicas": func(t *testing.T, s *redistest.Server) {
			set(t, s, "min-replicas-to-write", "1")
			<-time.After(refused)
			set(t, s, "min-replicas-to-write", "0")
		},
		"the disk is full": func(t *testing.T, s *redistest.Server) {
			failSaves(t, s)
			<-time.After(refused)
			set(t, s, "stop-writes-on-bgsave-error", "no")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := newRigOn(t, server.Client())
			var mu sync.Mutex
			crashes := make(map[string]int)
			running := make(chan struct{}, 1000)
			over, end := r.gate()
			var runs []*run
			for i := range 2 {
				cfg := r.short(10)
				cfg.DrainTimeout = -1
				w := r.workerOn(server.Client(), cfg)
				worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
					mu.Lock()
					crashes[job.ID] = max(crashes[job.ID], job.Crashes)
					mu.Unlock()
					running <- struct{}{}
					<-ctx.Done()
					if i == 0 { // the other one has time to take these jobs, but must not
						<-over
						<-time.After(100 * time.Millisecond)
					}
					return ctx.Err()
				})
				runs = append(runs, r.start(w))
				r.add(make([]signalbox.Job, 10)...)
				for range 10 {
					get(t, running, fmt.Sprintf("worker %d is full", i))
				}
			}
			outage(t, server)
			end()
			for range 20 {
				get(t, running, "the jobs run again")
			}
			for _, run := range runs {
				run.cancel()
			}
			mu.Lock()
			defer mu.Unlock()
			for id, n := range crashes {
				if n > 0 {
					t.Errorf("job %s counts %d crashes", id, n)
				}
			}
		})
	}
}
