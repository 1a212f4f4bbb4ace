package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A waiting is a scheduler whose calls wait for jobs, with a session that runs these. Nothing looks without being told.
type waiting struct {
	testing.TB
	s       *Scheduler
	q       *store.Queue
	rdb     redis.UniversalClient // of the session
	session string
	lane    *store.Lane
}

func newWaiting(t testing.TB, rdb, own redis.UniversalClient) *waiting {
	t.Helper()
	w := &waiting{TB: t, s: newScheduler(t, rdb), q: checked(t, own), rdb: own, session: store.NewSession("w")}
	w.s.endLook = time.Hour
	w.lane = w.q.NewLane()
	if _, _, err := w.q.Sessions().Open(t.Context(), w.session, time.Hour); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := w.q.Sessions().Close(context.Background(), w.session, false, w.lane); err != nil {
			t.Error(err)
		}
	})
	return w
}

// enqueue enqueues a job that is kept, and returns its reference.
func (w *waiting) enqueue(opts ...EnqueueOption) Ref {
	w.Helper()
	res, err := w.s.Enqueue(w.Context(), note{1}, append([]EnqueueOption{Queue(w.q.Name()), Retain(time.Hour)}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	return res.Ref()
}

// run claims the next job, and settles it.
func (w *waiting) run(change func(r *store.Settlement, d *store.Delivery)) {
	w.Helper()
	w.settle(w.claim(), change)
}

func (w *waiting) claim() *store.Delivery {
	w.Helper()
	w.lane.Next()
	reply, err := w.q.Sessions().Claim(context.Background(), w.lane, &store.ClaimRequest{Session: w.session, Want: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		w.Fatal(reply, err)
	}
	return &reply.Deliveries[0]
}

func (w *waiting) settle(d *store.Delivery, change func(r *store.Settlement, d *store.Delivery)) {
	w.Helper()
	r := store.Settlement{ID: d.Job.ID, Kind: d.Job.Kind, Token: d.Job.Token, Size: d.Size()}
	change(&r, d)
	w.lane.Next()
	if _, err := w.q.Sessions().Claim(context.Background(), w.lane, &store.ClaimRequest{Session: w.session, Settle: []store.Settlement{r}}); err != nil {
		w.Fatal(err)
	}
}

// with completes a job with this result.
func with(result string) func(*store.Settlement, *store.Delivery) {
	return func(r *store.Settlement, _ *store.Delivery) {
		r.Outcome, r.Keep = store.Completed, store.Kept(&store.Attempt{Number: 1, At: time.Unix(1_750_000_000, 0), Worker: "w"}, []byte(result))
	}
}

// dies ends a job dead.
func dies(r *store.Settlement, d *store.Delivery) {
	r.Outcome = store.Dead
	r.Record, _ = d.FailedAttempt("boom", &store.Attempt{Number: 1, Error: "boom"})
}

func (w *waiting) act(a store.Act, ref Ref) {
	w.Helper()
	if answers, err := w.q.Do(context.Background(), a, []string{ref.ID}); err != nil || answers[0].Acted != store.Done {
		w.Fatal(answers, err)
	}
}

// An answer is what a wait has returned.
type answer struct {
	value note
	err   error
}

// wait has a call wait for a job.
func (w *waiting) wait(ref Ref) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), 20*time.Second)
		defer cancel()
		value, err := Wait[note](ctx, w.s, ref)
		done <- answer{value, err}
	}()
	return done
}

// heard waits until Redis has been asked about all jobs that calls wait for, and has a subscription to the channels of n of them.
func (w *waiting) heard(n int) {
	w.Helper()
	redistest.Eventually(w.TB, func() bool {
		w.s.watches.mu.Lock()
		defer w.s.watches.mu.Unlock()
		one := w.s.watches.all[w.q.Name()]
		if one == nil {
			return n == 0
		}
		one.mu.Lock()
		defer one.mu.Unlock()
		confirmed := 0
		for _, yes := range one.followed {
			if yes {
				confirmed++
			}
		}
		return confirmed == n && len(one.followed) == n && len(one.due) == 0
	}, "%d channels are heard", n)
}

// A wait returns what comes out of the job, whether it begins before the end or after it. It doesn't poll.
func TestWait(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w := newWaiting(t, rdb, rdb)
	ref := w.enqueue()
	before, other := w.wait(ref), w.wait(ref)
	w.heard(1)
	w.run(with(`{"N":42}`))
	for _, got := range []<-chan answer{before, other} {
		if a := <-got; a.err != nil || a.value.N != 42 {
			t.Errorf("%+v", a)
		}
	}
	w.heard(0)
	if a := <-w.wait(ref); a.err != nil || a.value.N != 42 {
		t.Errorf("after the end: %+v", a)
	}
}

// What ends a job tells those who wait for it, also where it isn't kept.
func TestWaitForEnds(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	is := func(state signalbox.State, last string) func(error) bool {
		return func(err error) bool {
			ended, ok := errors.AsType[*EndedError](err)
			return ok && ended.Status.State == state && ended.Status.LastError == last && !ended.Status.EndedAt.IsZero() && !strings.Contains(err.Error(), "boom")
		}
	}
	gone := func(err error) bool { return errors.Is(err, ErrNotFound) }
	for what, c := range map[string]struct {
		opts []EnqueueOption
		end  func(w *waiting, ref Ref)
		want func(err error) bool
	}{
		"dead": {nil, func(w *waiting, _ Ref) { w.run(dies) }, is(signalbox.StateDead, "boom")},
		"cancelled while it runs": {nil, func(w *waiting, ref Ref) {
			d := w.claim()
			w.act(store.CancelJobs("no"), ref)
			w.settle(d, func(r *store.Settlement, _ *store.Delivery) { r.Outcome = store.Return })
		}, is(signalbox.StateCancelled, "job cancelled: no")},
		"cancelled before": {nil, func(w *waiting, ref Ref) { w.act(store.CancelJobs("no"), ref) }, is(signalbox.StateCancelled, "job cancelled: no")},
		"archived":         {nil, func(w *waiting, ref Ref) { w.act(store.ArchiveJobs("no"), ref) }, is(signalbox.StateDead, "archived: no")},
		"deleted":          {nil, func(w *waiting, ref Ref) { w.act(store.DeleteJobs(), ref) }, gone},
		"expired": {[]EnqueueOption{ExpireAfter(10 * time.Millisecond)}, func(w *waiting, _ Ref) {
			begun, err := w.q.Now(context.Background())
			redistest.Eventually(w.TB, func() bool {
				now, nowErr := w.q.Now(context.Background())
				return err == nil && nowErr == nil && now.Sub(begun) > 10*time.Millisecond
			}, "its time is over")
			w.lane.Next()
			if reply, err := w.q.Sessions().Claim(context.Background(), w.lane, &store.ClaimRequest{Session: w.session, Want: 1}); err != nil || len(reply.Deliveries) != 0 {
				w.Fatal(reply, err)
			}
		}, is(signalbox.StateDead, "expired: it had not started in time")},
		"without a result": {nil, func(w *waiting, _ Ref) {
			w.run(func(r *store.Settlement, _ *store.Delivery) {
				r.Outcome, r.Keep = store.Completed, store.Kept(&store.Attempt{Number: 1, Worker: "w"}, nil)
			})
		}, func(err error) bool { return errors.Is(err, ErrNoResult) }},
		"of another type": {nil, func(w *waiting, _ Ref) { w.run(with(`"text"`)) }, func(err error) bool {
			return err != nil && !errors.Is(err, ErrNoResult) && !errors.Is(err, ErrNotFound)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWaiting(t, rdb, rdb)
			ref := w.enqueue(c.opts...)
			got := w.wait(ref)
			w.heard(1)
			c.end(w, ref)
			if a := <-got; !c.want(a.err) || !strings.Contains(a.err.Error(), ref.String()) {
				t.Errorf("%v", a.err)
			}
			if a := <-w.wait(ref); !c.want(a.err) {
				t.Errorf("afterwards: %v", a.err)
			}
		})
	}
}

// A job that fails, is put off or given back hasn't ended.
func TestWaitGoesOn(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w := newWaiting(t, rdb, rdb)
	ref := w.enqueue()
	got := w.wait(ref)
	w.heard(1)
	w.run(func(r *store.Settlement, d *store.Delivery) {
		r.Outcome = store.Retry
		r.Record, _ = d.FailedAttempt("boom", &store.Attempt{Number: 1, Error: "boom"})
	})
	w.run(func(r *store.Settlement, _ *store.Delivery) { r.Outcome = store.Return })
	w.run(dies)
	if a := <-got; a.err == nil {
		t.Errorf("%+v", a)
	}
	w.act(store.RunJobs(time.Time{}), ref)
	got = w.wait(ref) // the job is no longer dead
	w.heard(1)
	select {
	case a := <-got:
		t.Errorf("%+v", a)
	default:
	}
	w.run(with(`{"N":7}`))
	if a := <-got; a.err != nil || a.value.N != 7 {
		t.Errorf("%+v", a)
	}
}

// Whoever asks for no result gets none.
func TestWaitForNoResult(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w := newWaiting(t, rdb, rdb)
	ref := w.enqueue()
	w.run(func(r *store.Settlement, _ *store.Delivery) {
		r.Outcome, r.Keep = store.Completed, store.Kept(&store.Attempt{Number: 1, Worker: "w"}, nil)
	})
	if _, err := Wait[struct{}](t.Context(), w.s, ref); err != nil {
		t.Error(err)
	}
}

// A job of which nothing would be known isn't waited for. A setting of its queue may have it kept.
func TestWaitForAJobThatIsNotKept(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w := newWaiting(t, rdb, rdb)
	for _, opts := range [][]EnqueueOption{{Queue(w.q.Name())}, {Queue(w.q.Name()), Retain(signalbox.RetainNone)}} {
		res, err := w.s.Enqueue(t.Context(), note{1}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if a := <-w.wait(res.Ref()); !errors.Is(a.err, signalbox.ErrInvalid) || !strings.Contains(a.err.Error(), "Retain") {
			t.Error(a.err)
		}
	}
	if err := w.q.Settings().SetCompleted(t.Context(), signalbox.Retention{Jobs: 10, Bytes: 1 << 20, Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	res, err := w.s.Enqueue(t.Context(), note{1}, Queue(w.q.Name()), ID("kept"))
	if err != nil {
		t.Fatal(err)
	}
	got := w.wait(res.Ref())
	w.heard(1)
	for range 3 {
		w.run(with(`{"N":1}`))
	}
	if a := <-got; a.err != nil || a.value.N != 1 {
		t.Errorf("%+v", a)
	}
}

// What can't be waited for is an error that says why. A context that ends ends the wait, and nothing is left of it.
func TestWaitErrors(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w := newWaiting(t, rdb, rdb)
	for what, c := range map[string]struct {
		ref  Ref
		want error
	}{
		"a zero one":             {Ref{}, signalbox.ErrInvalid},
		"another namespace":      {Ref{"eu", w.q.Name(), "a"}, signalbox.ErrInvalid},
		"a queue that is unused": {Ref{"default", w.q.Name() + "-not", "a"}, ErrNotFound},
		"no such job":            {Ref{"default", w.q.Name(), "a"}, ErrNotFound},
	} {
		if _, err := Wait[note](t.Context(), w.s, c.ref); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ref, gone := w.enqueue(), errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := Wait[note](ctx, w.s, ref)
			done <- err
		}()
	}
	w.heard(1)
	cancel(gone)
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, gone) || !strings.Contains(err.Error(), ref.String()) {
			t.Error(err)
		}
	}
	w.heard(0)
	redistest.Eventually(t, func() bool {
		n, err := rdb.PubSubShardNumSub(context.Background(), w.q.Channels().End(ref.ID)).Result()
		if err != nil {
			n, err = rdb.PubSubNumSub(context.Background(), w.q.Channels().End(ref.ID)).Result() // the embedded Redis has no sharded channels
		}
		return err == nil && n[w.q.Channels().End(ref.ID)] == 0
	}, "nobody hears the channel")
}

// Messages are lost, with the connection that they come over. The job is looked at when there is another one.
func TestWaitThroughALostConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	w := newWaiting(t, proxy.Client(), srv.Client())
	ref := w.enqueue()
	got := w.wait(ref)
	w.heard(1)
	proxy.Refuse(true)
	proxy.Sever()
	w.run(with(`{"N":42}`))
	proxy.Refuse(false)
	if a := <-got; a.err != nil || a.value.N != 42 {
		t.Errorf("%+v", a)
	}
}

// While Redis is away a wait waits on. Its error says what happened to the last look.
func TestWaitWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	w := newWaiting(t, proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.DialerRetries = -1, 1 }), srv.Client())
	ref := w.enqueue()
	proxy.Refuse(true)
	proxy.Sever()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Wait[note](ctx, w.s, ref)
		done <- err
	}()
	redistest.Eventually(t, func() bool {
		w.s.watches.mu.Lock()
		defer w.s.watches.mu.Unlock()
		one := w.s.watches.all[w.q.Name()]
		return one != nil && one.outage() != nil
	}, "a look fails")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "at the last look") {
		t.Error(err)
	}
	got := w.wait(ref)
	proxy.Refuse(false)
	w.run(with(`{"N":42}`))
	if a := <-got; a.err != nil || a.value.N != 42 {
		t.Errorf("%+v", a)
	}
}

// A look that Redis refuses for a passing reason is made again.
func TestWaitLooksAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	w := newWaiting(t, proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }), srv.Client())
	ref := w.enqueue()
	got := w.wait(ref)
	w.heard(1)
	proxy.Reply(redistest.Command("EVALSHA"), "-CLUSTERDOWN not now", 1)
	w.run(with(`{"N":42}`))
	if a := <-got; a.err != nil || a.value.N != 42 {
		t.Errorf("%+v", a)
	}
}

// A server that is restarted with its append-only file has the job on, or its end. With another memory it has neither.
func TestWaitThroughARestart(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		args []string
		want error
	}{"with AOF": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, nil}, "without": {nil, ErrNotFound}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := redistest.New(t, c.args...)
			rdb := srv.Client()
			w := newWaiting(t, rdb, rdb)
			ref := w.enqueue()
			got := w.wait(ref)
			w.heard(1)
			d := w.claim()
			srv.Kill()
			srv.Restart()
			if c.want == nil {
				w.settle(d, with(`{"N":42}`))
			}
			if a := <-got; !errors.Is(a.err, c.want) || c.want == nil && a.value.N != 42 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// In a Cluster the wait hears of the end wherever the queue is, also when its slot moves, and after a failover.
func TestWaitForEndsInACluster(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, cluster *redistest.ClusterServers, key string){
		"its slot moves": func(t *testing.T, cluster *redistest.ClusterServers, key string) {
			cluster.BeginMigration(t, key).End(t)
		},
		"a failover": func(t *testing.T, cluster *redistest.ClusterServers, key string) { cluster.Failover(t, key) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.ClusterWithReplicas(t)
			rdb := cluster.Client()
			w := newWaiting(t, rdb, rdb)
			for i := range 3 {
				ref := w.enqueue()
				got := w.wait(ref)
				w.heard(1)
				if i == 1 {
					change(t, cluster, w.q.Channels().End(""))
				}
				w.run(with(fmt.Sprintf(`{"N":%d}`, i)))
				if a := <-got; a.err != nil || a.value.N != i {
					t.Errorf("job %d: %+v", i, a)
				}
			}
		})
	}
}

// A user that may not hear of ends looks every now and then, and the log says what it lacks.
func TestWaitWithoutTheRightToHear(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client()
	if err := rdb.Do(t.Context(), "ACL", "SETUSER", "producer", "on", ">secret", "~signalbox:{*}:*", "&signalbox:{*}:*", "+@all", "-ssubscribe", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	w := newWaiting(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "producer", "secret" }), rdb)
	log := &logged{}
	w.s.log = slog.New(slog.NewTextHandler(log, nil))
	w.s.endLook = 50 * time.Millisecond
	ref := w.enqueue()
	got := w.wait(ref)
	redistest.Eventually(t, func() bool { return strings.Contains(log.String(), "+ssubscribe") }, "the log says so")
	w.run(with(`{"N":42}`))
	if a := <-got; a.err != nil || a.value.N != 42 {
		t.Errorf("%+v", a)
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the log has the password")
	}
}

// logged is what was written to a log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// enqueueMany enqueues jobs that are kept.
func (w *waiting) enqueueMany(n int) (refs []Ref) {
	w.Helper()
	for _, res := range w.s.EnqueueSeq(w.Context(), func(yield func(Item) bool) {
		for i := range n {
			if !yield(Item{Args: note{i}}) {
				return
			}
		}
	}, Queue(w.q.Name()), Retain(time.Hour)) {
		if res.Err != nil {
			w.Fatal(res.Err)
		}
		refs = append(refs, res.Ref())
	}
	return refs
}

// runSome claims the next n jobs, and completes them with their arguments as results. It returns how many there were.
func (w *waiting) runSome(n int) int {
	w.Helper()
	w.lane.Next()
	reply, err := w.q.Sessions().Claim(w.Context(), w.lane, &store.ClaimRequest{Session: w.session, Want: n})
	if err != nil {
		w.Fatal(err)
	}
	settle := make([]store.Settlement, len(reply.Deliveries))
	for i := range reply.Deliveries {
		d := &reply.Deliveries[i]
		settle[i] = store.Settlement{ID: d.Job.ID, Kind: d.Job.Kind, Token: d.Job.Token, Size: d.Size()}
		with(string(d.Job.Payload))(&settle[i], d)
	}
	w.lane.Next()
	if _, err := w.q.Sessions().Claim(w.Context(), w.lane, &store.ClaimRequest{Session: w.session, Settle: settle}); err != nil {
		w.Fatal(err)
	}
	return len(settle)
}

// BenchmarkWait has 10,000 calls wait at a time, while 20 jobs end every 10 ms. The times are those from the end of a job, by the clock of Redis on this machine, to the return of its call.
func BenchmarkWait(b *testing.B) {
	rdb := redistest.New(b).Client()
	w := newWaiting(b, rdb, rdb)
	const n, some = 10_000, 20
	var took []time.Duration
	for b.Loop() {
		var mu sync.Mutex
		var waiting sync.WaitGroup
		for _, ref := range w.enqueueMany(n) {
			waiting.Go(func() {
				st, err := w.s.wait(b.Context(), ref)
				late := time.Since(st.EndedAt)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					b.Error(err)
				}
				took = append(took, late)
			})
		}
		w.heard(n)
		pace := time.NewTicker(10 * time.Millisecond)
		for range n / some {
			<-pace.C
			w.runSome(some)
		}
		pace.Stop()
		waiting.Wait()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}

// Thousands of calls wait over two connections: one hears of ends, and looks come over another one.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client()
	w := newWaiting(t, rdb, rdb)
	const n = 10_000
	refs := w.enqueueMany(n)
	w.s = newScheduler(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.ClientName = "waits" })) // others than those that enqueued
	w.s.endLook = time.Hour
	got := make([]<-chan answer, n)
	for i, ref := range refs {
		got[i] = w.wait(ref)
	}
	w.heard(n)
	list, err := w.rdb.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if conns := strings.Count(list, " name=waits "); conns > 2 {
		t.Errorf("%d connections", conns)
	}
	for ran := 0; ran < n; {
		ran += w.runSome(100)
	}
	for i := range got {
		if a := <-got[i]; a.err != nil || a.value.N != i {
			t.Fatalf("job %d: %+v", i, a)
		}
	}
}
