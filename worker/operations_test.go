package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// aclRules are the rules of docs/operations/access.md, by the name of the user.
func aclRules(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "operations", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string][]string)
	for line := range strings.Lines(string(page)) {
		if words := strings.Fields(line); len(words) > 3 && words[0] == "ACL" && words[1] == "SETUSER" {
			rules[words[2]] = words[3:]
		}
	}
	return rules
}

// commandsOf returns the commands that a rule allows, but for those of any client's handshake and checks.
func commandsOf(rule []string) []string {
	var commands []string
	for _, word := range rule {
		name, ok := strings.CutPrefix(word, "+")
		if ok && !slices.Contains([]string{"hello", "ping", "info", "client|setname"}, name) {
			commands = append(commands, name)
		}
	}
	return commands
}

// lockCommands are the commands in the scripts of package lock, or of package redlock, and in what both share.
func lockCommands(t *testing.T, redlock bool) (commands []string) {
	t.Helper()
	var files []string
	homes := []string{filepath.Join("..", "lock", "internal", "lua"), filepath.Join("..", "lock", "scripts")}
	if redlock {
		homes[1] = filepath.Join("..", "lock", "redlock", "scripts")
	}
	for _, home := range homes {
		found, err := filepath.Glob(filepath.Join(home, "*.lua"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no scripts in %s: %v", home, err)
		}
		files = append(files, found...)
	}
	call := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, strings.ToLower(m[1]))
		}
	}
	return commands
}

// TestAccessRulesAreComplete: the rules of docs/operations/access.md allow what the scripts call, and nothing else.
func TestAccessRulesAreComplete(t *testing.T) {
	t.Parallel()
	rules := aclRules(t)
	subscribes := []string{"subscribe", "unsubscribe"}
	for user, want := range map[string][]string{
		"producer": server.Commands(server.Producer),
		"worker":   server.Commands(server.Worker),
		"reporter": server.Commands(server.Reporter),
		"operator": server.Commands(server.Operator),
		"viewer":   server.Commands(server.Viewer),
		"relayer":  server.Commands(server.Relayer),
		"locks":    slices.Concat(lockCommands(t, false), subscribes, []string{"eval", "evalsha"}),
		"redlock":  slices.Concat(lockCommands(t, true), []string{"eval", "evalsha"}),

		"reporting-producer": server.Commands(server.Producer, server.Reporter),
		"worker-with-locks":  slices.Concat(server.Commands(server.Worker), lockCommands(t, false), subscribes),
	} {
		for i := range want {
			want[i] = strings.ToLower(want[i])
		}
		want = slices.DeleteFunc(want, func(c string) bool { return slices.Contains([]string{"hello", "ping", "info"}, c) })
		slices.Sort(want)
		want = slices.Compact(want)
		got := slices.Sorted(slices.Values(commandsOf(rules[user])))
		if !slices.Equal(got, want) {
			t.Errorf("the rule of %s in docs/operations/access.md should end with\n\t+%s\nit has\n\t+%s", user, strings.Join(want, " +"), strings.Join(got, " +"))
		}
	}
}

// TestWorkersMayDoMore: a worker's rule allows what a producer and a reporter call. docs/operations/access.md says so.
func TestWorkersMayDoMore(t *testing.T) {
	t.Parallel()
	worker := server.Commands(server.Worker)
	for _, command := range server.Commands(server.Producer, server.Reporter) {
		if !slices.Contains(worker, command) {
			t.Errorf("a worker's rule lacks %s", command)
		}
	}
}

// roles are a server on which the users of docs/operations/access.md are set up, and its clients.
type roles struct {
	*testing.T
	servers []*redistest.Server
	connect func(change func(*redis.UniversalOptions)) redis.UniversalClient
}

func (r *roles) allow() {
	r.Helper()
	for user, rule := range aclRules(r.T) {
		command := []any{"ACL", "SETUSER", user}
		for _, word := range rule {
			command = append(command, word)
		}
		for _, s := range r.servers {
			if err := s.Client().Do(r.Context(), command...).Err(); err != nil {
				r.Fatalf("the rule of %s: %v", user, err)
			}
		}
	}
}

// client logs in as a user.
func (r *roles) client(user string) redis.UniversalClient {
	r.Helper()
	return r.connect(func(o *redis.UniversalOptions) { o.Username, o.Password = user, "CHANGE-ME" })
}

// live has one user enqueue jobs and fire a tick, and another run them, under the lock of the job.
func (r *roles) live(producer, consumer, queue string) {
	r.Helper()
	log := &logbook{}
	s, err := scheduler.New(r.client(producer), scheduler.Config{Logger: slog.New(log)})
	if err != nil {
		r.Fatal(err)
	}
	if err := s.Cron("tick", "@every 1s", task{N: 3}, scheduler.Queue(queue)); err != nil {
		r.Fatal(err)
	}
	w, err := worker.New(r.client(consumer), worker.Config{Queues: worker.Queues{queue: {}}, Logger: slog.New(log)})
	if err != nil {
		r.Fatal(err)
	}
	seen := make(chan int, 100)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, in task) error {
		seen <- in.N
		if in.N == 2 && job.Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	}, worker.With(middleware.Lock(nil)), worker.Retry(worker.ExponentialJitter(time.Millisecond, time.Second)))
	ctx, stop := context.WithTimeout(r.Context(), patience)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- s.Run(ctx) }()
	go func() { ended <- w.Run(ctx) }()
	_, errNow := s.Enqueue(ctx, task{N: 1}, scheduler.Queue(queue), scheduler.ID("one"))
	_, errLater := s.EnqueueMany(ctx, []scheduler.Item{{Args: task{N: 2}}}, scheduler.Queue(queue), scheduler.After(time.Millisecond))
	if err := errors.Join(errNow, errLater); err != nil {
		r.Error(err)
	}
	for times := map[int]int{}; times[1] < 1 || times[2] < 2 || times[3] < 1; {
		select {
		case n := <-seen:
			times[n]++
		case <-ctx.Done():
			r.Errorf("runs by job: %v; log:\n%s", times, log.String())
			times = map[int]int{1: 1, 2: 2, 3: 1}
		}
	}
	stop()
	if err := errors.Join(<-ended, <-ended); err != nil {
		r.Error(err)
	}
	if text := log.String(); strings.Contains(text, "NOPERM") || strings.Contains(text, "permission") {
		r.Errorf("somebody lacked a permission:\n%s", text)
	}
	r.undenied(producer, consumer)
}

// undenied fails if a server has denied one of the users something. Each denial is an entry of its ACL LOG, which people watch for attacks.
func (r *roles) undenied(users ...string) {
	r.Helper()
	for _, s := range r.servers {
		entries, err := s.Client().ACLLog(r.Context(), 100).Result()
		if err != nil {
			r.Fatal(err)
		}
		for _, e := range entries {
			// go-redis tells servers its name. Those since 7.2 have the command, and the rights can't name it, since Redis 7.0 doesn't know it.
			if slices.Contains(users, e.Username) && e.Object != "client|setinfo" {
				r.Errorf("Redis has denied %s %d times: %s %s (%s)", e.Username, e.Count, e.Reason, e.Object, e.Context)
			}
		}
	}
}

// reported reports the depths of a queue as a user, and returns whether it could, and what was logged.
func (r *roles) reported(user, queue string) (depth bool, said string) {
	r.Helper()
	log := &logbook{}
	reader := sdkmetric.NewManualReader()
	stop, err := worker.ReportDepths(r.Context(), r.client(user), worker.ReportConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Logger: slog.New(log)}, queue)
	if err != nil {
		r.Fatal(err)
	}
	defer stop()
	depth, _ = collector(r.T, reader)()
	return depth, log.String()
}

// reports has each user that may report the depths of a queue do so, and one that may not.
func (r *roles) reports(queue string) {
	r.Helper()
	for _, user := range []string{"reporter", "reporting-producer", "worker"} {
		if depth, said := r.reported(user, queue); !depth || said != "" {
			r.Errorf("depths reported by the user %s: %v; log:\n%s", user, depth, said)
		}
	}
	const advice = "user producer may not call DEL, HSCAN, LINDEX, ZCOUNT, ZLEXCOUNT, which a reporter calls; allow it with: ACL SETUSER producer +del +hscan +lindex +zcount +zlexcount"
	if depth, said := r.reported("producer", queue); depth || !strings.Contains(said, advice) {
		r.Errorf("depths reported by the user producer: %v; log:\n%s", depth, said)
	}
}

// relays makes all calls of a relay of an outbox as a user.
func (r *roles) relays(user, queue string) {
	r.Helper()
	q := store.New(r.client(user), "", queue)
	if err := q.Presence().Register(r.Context()); err != nil {
		r.Error(err)
	}
	job := &signalbox.Job{ID: "from-an-outbox", Kind: "task", Queue: queue, MaxAttempts: 1, Payload: []byte("{}")}
	now, errNow := store.NewItem(job, store.When{})
	job.ID = "later"
	later, errLater := store.NewItem(job, store.When{At: time.Now().Add(time.Hour)})
	if err := errors.Join(errNow, errLater); err != nil {
		r.Fatal(err)
	}
	parcel, err := now.Parcel()
	if err != nil {
		r.Fatal(err)
	}
	batch := &store.Batch{Place: store.Place{Seq: 1, Nonce: "a"}, Items: []store.Item{now, later}}
	_, errRelay := q.Outboxes().Relay(r.Context(), "box", 0, batch)
	_, errVoid := q.Outboxes().Relay(r.Context(), "box", 0, &store.Batch{Place: store.Place{Seq: 2, Nonce: "b"}, After: batch.Place})
	if !errors.Is(errVoid, store.ErrVoid) && errVoid != nil {
		r.Error(errVoid)
	}
	_, _, errRoom := q.Room(r.Context())
	last, errLast := q.Outboxes().Relayed(r.Context(), "box", 0)
	has, errHas := q.Outboxes().Has(r.Context(), []store.Parcel{parcel})
	errSet := q.Outboxes().Set(r.Context(), "box", "{}", time.Minute)
	_, errGet := q.Outboxes().All(r.Context())
	if err := errors.Join(errRelay, errRoom, errLast, errHas, errSet, errGet); err != nil || last[0].Seq != 2 || !has[0] {
		r.Errorf("a relay as the user %s: %v; the last batch is %v, its job is there: %v", user, err, last, has)
	}
}

// handOver has clients of a user hold a lock, and wait for it.
func (r *roles) handOver(user, key string) {
	r.Helper()
	ctx, stop := context.WithTimeout(r.Context(), patience)
	defer stop()
	first, second := newLocker(r.client(user)), newLocker(r.client(user))
	held, err := first.Acquire(ctx, key)
	if err != nil {
		r.Fatal(err)
	}
	if err := held.Extend(ctx); err != nil {
		r.Error(err)
	}
	waited := make(chan error, 1)
	go func() {
		next, err := second.Acquire(ctx, key)
		if err == nil {
			err = next.Release(ctx)
		}
		waited <- err
	}()
	if info, err := first.Inspect(ctx, key); err != nil || !info.Held {
		r.Errorf("Inspect = %+v, %v", info, err)
	}
	if _, err := second.TryAcquire(ctx, key); !errors.Is(err, lock.ErrHeld) {
		r.Errorf("TryAcquire of a held lock: %v", err)
	}
	if err := errors.Join(held.Release(ctx), <-waited); err != nil {
		r.Error(err)
	}
}

// TestAccessOnOneServer: each role does its work as the user that docs/operations/access.md gives it.
func TestAccessOnOneServer(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := &roles{T: t, servers: []*redistest.Server{srv}, connect: srv.ClientWith}
	r.allow()
	r.live("producer", "worker", redistest.Name(t))
	r.live("worker-with-locks", "worker-with-locks", redistest.Name(t)+"2") // a worker's handlers may enqueue
	r.handOver("locks", "signalbox:lock:orders")
	r.handOver("worker-with-locks", "signalbox:lock:orders")
	r.reports(redistest.Name(t))
	r.relays("relayer", redistest.Name(t)+"3")
}

// TestAccessOnRedlock does so on three masters.
func TestAccessOnRedlock(t *testing.T) {
	t.Parallel()
	r := &roles{T: t}
	var nodes []*redis.Options
	for range 3 {
		srv := redistest.New(t)
		r.servers = append(r.servers, srv)
		nodes = append(nodes, &redis.Options{Addr: srv.Addr(), Username: "redlock", Password: "CHANGE-ME"})
	}
	r.allow()
	locker, err := redlock.New(nodes, redlock.Config{NoRestartDelay: true, NodeTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := locker.Check(ctx); err != nil {
		t.Error(err)
	}
	held, err := locker.Acquire(ctx, "signalbox:lock:orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(held.Extend(ctx), held.Release(ctx)); err != nil {
		t.Error(err)
	}
}

// TestAccessInACluster adds what docs/operations/access.md says of a Cluster.
func TestAccessInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	r := &roles{T: t, servers: slices.Concat(cluster.Masters(), cluster.Replicas()), connect: cluster.ClientWith}
	r.allow()
	page, err := os.ReadFile(filepath.Join("..", "docs", "operations", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	more := regexp.MustCompile("In a Cluster add `([^`]*)`").FindSubmatch(page)
	if more == nil {
		t.Fatal("docs/operations/access.md doesn't say what to add in a Cluster")
	}
	for user := range aclRules(t) {
		command := []any{"ACL", "SETUSER", user}
		for word := range strings.FieldsSeq(string(more[1])) {
			command = append(command, word)
		}
		for _, s := range r.servers {
			if err := s.Client().Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 3 { // on several masters
		r.live("producer", "worker", fmt.Sprint(redistest.Name(t), i))
		r.relays("relayer", fmt.Sprint(redistest.Name(t), "outbox", i))
	}
	r.handOver("locks", "signalbox:lock:orders")
	r.reports(redistest.Name(t))
}
