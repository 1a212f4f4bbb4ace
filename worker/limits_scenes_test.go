package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A stage is a queue whose limits an operator changes while workers run its jobs. A job runs until the scene ends it. When the scene is over, each claim
// is compared with the limits that were in force at its time.
type stage struct {
	*rig
	srv     *redistest.Server // nil: a Cluster
	dir     string            // has a file for each job that may end, for workers in other processes
	ins     *inspect.Inspector
	sch     *scheduler.Scheduler
	stepped bool // Redis' clock is not that of this process

	mu     sync.Mutex
	ids    []string                 // in the order in which they were enqueued
	groups map[string]string        // by job: the key of its group, with its first byte; "" for none
	gates  map[string]chan struct{} // by job: closed when it may end
	stints []*stint
	rules  []rules
}

// A stint is a delivery of a job whose handler has begun.
type stint struct {
	job   string
	child *child // nil: a worker of this process
	token int64
	// crashes is how often the job had crashed before.
	crashes int
	at      time.Time // of the claim
	end     time.Time // zero: the handler runs
	done    bool      // it ended because the scene says so
}

// rules are what an operator has set.
type rules struct {
	from    time.Time
	changes bool // from now on, until the next rules: either of them may be in force
	queue   signalbox.Limits
	all     signalbox.Limits            // of all groups
	of      map[string]signalbox.Limits // of single groups
	shut    map[string]bool             // groups of which no delivery begins; "": the queue
}

func newStage(t *testing.T, srv *redistest.Server, rdb redis.UniversalClient) *stage {
	t.Helper()
	r := newRigOn(t, rdb)
	sch, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{
		rig: r, srv: srv, dir: t.TempDir(), ins: r.inspector(), sch: sch, groups: make(map[string]string), gates: make(map[string]chan struct{}),
		rules: []rules{{of: make(map[string]signalbox.Limits), shut: make(map[string]bool)}},
	}
}

// put enqueues n jobs of a group, "" for none, and returns their IDs: the group and a number. Jobs without a group are x and a number.
func (s *stage) put(group string, n int) []string {
	s.Helper()
	return s.puts(n, group, order{Do: "until"}, false)
}

// serial is put for a serial group. The first job fails at its first attempt.
func (s *stage) serial(group string, n int) []string {
	s.Helper()
	return append(s.puts(1, group, order{Do: "until", N: 1}, true), s.puts(n-1, group, order{Do: "until"}, true)...)
}

func (s *stage) puts(n int, group string, o order, serial bool) (ids []string) {
	s.Helper()
	var items []scheduler.Item
	for range n {
		s.mu.Lock()
		id := fmt.Sprintf("%s%03d", cmp.Or(group, "x"), len(s.ids))
		s.ids, ids = append(s.ids, id), append(ids, id)
		opts := []scheduler.EnqueueOption{scheduler.ID(id)}
		switch {
		case serial:
			opts, s.groups[id] = append(opts, scheduler.Serial(group)), "s"+group
		case group != "":
			opts, s.groups[id] = append(opts, scheduler.Group(group)), "g"+group
		}
		s.gates[id] = make(chan struct{})
		s.mu.Unlock()
		o.Dir = s.dir
		items = append(items, scheduler.Item{Args: o, Options: opts})
	}
	results, err := s.sch.EnqueueMany(context.Background(), items, scheduler.Queue(s.name()))
	if err != nil || len(results) != n {
		s.Fatal(len(results), err)
	}
	return ids
}

// works starts a worker in this process.
func (s *stage) works(slots int, configs ...func(cfg *worker.Config, q *worker.Queue)) *run {
	s.Helper()
	cfg := s.config(slots)
	q := cfg.Queues[s.name()]
	for _, change := range configs {
		change(&cfg, &q)
	}
	cfg.Queues[s.name()] = q
	w := s.workerWith(cfg)
	worker.Handle(w, s.handle, worker.Retry(soon))
	return s.start(w)
}

func (s *stage) handle(ctx context.Context, job *signalbox.Job, o order) error {
	at := job.ClaimedAt
	if s.stepped {
		at = time.Now()
	}
	d := s.begins(&stint{job: job.ID, token: job.Token, crashes: job.Crashes, at: at})
	if o.Do == "hold" {
		if err := signalbox.HoldBack(ctx, time.Now().Add(time.Hour)); err != nil {
			s.Error(err)
		}
	}
	if o.N == 1 && job.Attempt == 1 {
		s.ends(d, time.Now(), false)
		return errBoom
	}
	s.mu.Lock()
	gate := s.gates[job.ID]
	s.mu.Unlock()
	select {
	case <-gate:
		s.ends(d, time.Now(), true)
		return nil
	case <-ctx.Done():
		s.ends(d, time.Now(), false)
		return context.Cause(ctx)
	}
}

func (s *stage) begins(d *stint) *stint {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stints = append(s.stints, d)
	return d
}

func (s *stage) ends(d *stint, at time.Time, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.end, d.done = at, done
}

// dies starts a worker in a process of its own. The function kills it.
func (s *stage) dies(slots int) (kill func()) {
	s.Helper()
	c := startChild(s.T, childConfig{Addr: s.srv.Addr(), Queue: s.name(), Slots: slots, TTL: shortTTL})
	read := make(chan struct{})
	var mine []*stint
	go func() {
		defer close(read)
		for l := range c.lines {
			switch l.what {
			case "claimed":
				mine = append(mine, s.begins(&stint{job: l.job, child: c, token: l.token, crashes: l.crashes, at: l.at}))
			case "end":
				for _, d := range mine {
					if d.token == l.token {
						s.ends(d, l.at, true)
					}
				}
			}
		}
	}()
	return func() {
		at := time.Now()
		c.kill()
		<-read
		for _, d := range mine {
			if d.end.IsZero() {
				s.ends(d, at, false)
			}
		}
	}
}

// change notes what an operator does.
func (s *stage) change(note func(r *rules), do func(ctx context.Context) error) {
	s.Helper()
	s.mu.Lock()
	r := s.rules[len(s.rules)-1]
	r.from, r.changes = time.Now(), true
	s.rules = append(s.rules, r)
	s.mu.Unlock()
	if err := do(context.Background()); err != nil {
		s.Fatal(err)
	}
	r.of, r.shut = maps.Clone(r.of), maps.Clone(r.shut)
	note(&r)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.from, r.changes = time.Now(), false
	s.rules = append(s.rules, r)
}

func (s *stage) limit(l signalbox.Limits) {
	s.Helper()
	s.change(func(r *rules) { r.queue = l }, func(ctx context.Context) error { return s.ins.SetLimits(ctx, s.name(), l) })
}

func (s *stage) limitGroups(l signalbox.Limits) {
	s.Helper()
	s.change(func(r *rules) { r.all = l }, func(ctx context.Context) error { return s.ins.SetGroupLimits(ctx, s.name(), l) })
}

func (s *stage) limitOf(group string, l signalbox.Limits) {
	s.Helper()
	s.change(func(r *rules) { r.of[group] = l }, func(ctx context.Context) error { return s.ins.SetLimitsOf(ctx, s.name(), group, l) })
}

// pause pauses a group, or the queue for "".
func (s *stage) pause(group string) {
	s.Helper()
	s.change(func(r *rules) { r.shut[group] = true }, func(ctx context.Context) (err error) {
		if group == "" {
			_, err = s.ins.Pause(ctx, s.name())
		} else {
			_, err = s.ins.PauseGroup(ctx, s.name(), group)
		}
		return err
	})
}

func (s *stage) resume(group string) {
	s.Helper()
	s.change(func(r *rules) { r.shut[group] = false }, func(ctx context.Context) (err error) {
		if group == "" {
			_, err = s.ins.Resume(ctx, s.name())
		} else {
			_, err = s.ins.ResumeGroup(ctx, s.name(), group)
		}
		return err
	})
}

// hold holds back a group, or the queue for "". With 0 for d it ends that.
func (s *stage) hold(group string, d time.Duration) {
	s.Helper()
	s.change(func(r *rules) { r.shut[group] = d > 0 }, func(ctx context.Context) error {
		_, err := s.ins.HoldBack(ctx, s.name(), group, d)
		return err
	})
}

// running returns the jobs that run.
func (s *stage) running() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.stints {
		if d.end.IsZero() {
			ids = append(ids, d.job)
		}
	}
	slices.Sort(ids)
	return ids
}

// run waits until these jobs run, and no others.
func (s *stage) run(lists ...[]string) {
	s.Helper()
	want := slices.Sorted(slices.Values(slices.Concat(lists...)))
	var got []string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if got = s.running(); slices.Equal(got, want) {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
	s.Fatalf("jobs %v run, want %v; %+v", got, want, s.counts())
}

// some waits until n jobs run, and returns them.
func (s *stage) some(n int) (ids []string) {
	s.Helper()
	redistest.Eventually(s.T, func() bool { ids = s.running(); return len(ids) == n }, "%d jobs run", n)
	return ids
}

// end has jobs end, now or when they run, and waits until those that run are settled.
func (s *stage) end(lists ...[]string) {
	s.Helper()
	ids := slices.Concat(lists...)
	runs := s.running()
	s.open(ids)
	for _, id := range ids {
		if slices.Contains(runs, id) {
			redistest.Eventually(s.T, func() bool { return !s.rdb.HExists(context.Background(), s.key("jobs"), id).Val() }, "job %s is settled", id)
		}
	}
}

// open has jobs end, now or when they run.
func (s *stage) open(ids []string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if isClosed(s.gates[id]) {
			continue
		}
		close(s.gates[id])
		if err := os.WriteFile(filepath.Join(s.dir, id), nil, 0o600); err != nil {
			s.Error(err)
		}
	}
}

// oneByOne has these jobs end in this order. Each runs alone.
func (s *stage) oneByOne(ids []string) {
	s.Helper()
	for _, id := range ids {
		s.run([]string{id})
		s.end([]string{id})
	}
}

// over has all jobs end, and judges the scene.
func (s *stage) over() {
	s.Helper()
	s.open(s.ids)
	s.completed(len(s.ids))
	redistest.Eventually(s.T, func() bool { return len(s.running()) == 0 }, "no handler runs")
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.stints {
		s.stints[i].at, s.stints[i].end = s.stints[i].at.Truncate(time.Microsecond), s.stints[i].end.Truncate(time.Microsecond)
	}
	slices.SortStableFunc(s.stints, func(a, b *stint) int { return a.at.Compare(b.at) })
	for i, d := range s.stints {
		s.judge(d, s.stints[:i])
	}
	if !s.stepped {
		for i := range s.rules[:len(s.rules)-1] {
			s.rated(s.rules[i], s.rules[i+1].from)
		}
	}
	done, last := make(map[string]int), make(map[string]string)
	for i, d := range s.stints {
		// A process that was killed between the end of a handler and its settlement has done the job for nothing. Then a crash of it is counted.
		again := func(other *stint) bool { return other.job == d.job && other.crashes > d.crashes }
		if d.done && (d.child == nil || !slices.ContainsFunc(s.stints[i+1:], again)) {
			done[d.job]++
		}
		if group := s.groups[d.job]; strings.HasPrefix(group, "s") {
			if d.job < last[group] {
				s.Errorf("job %s of a serial group runs after %s", d.job, last[group])
			}
			last[group] = d.job
		}
	}
	for _, id := range s.ids {
		if done[id] != 1 {
			s.Errorf("job %s was done %d times", id, done[id])
		}
	}
}

// judge compares a claim with the limits that were in force: before are those that came before it.
func (s *stage) judge(d *stint, before []*stint) {
	i, exact := slices.BinarySearchFunc(s.rules, d.at, func(r rules, at time.Time) int { return r.from.Truncate(time.Microsecond).Compare(at) })
	if exact { // which came first?
		return
	}
	r := s.rules[i-1]
	if r.changes {
		return
	}
	group := s.groups[d.job]
	queued, grouped := 1, 1
	for _, other := range before {
		if !other.end.After(d.at) {
			continue
		}
		queued++
		if s.groups[other.job] == group {
			grouped++
		}
		if other.job == d.job {
			s.Errorf("job %s runs twice at a time", d.job)
		}
	}
	if most := r.queue.Running; most > 0 && queued > most {
		s.Errorf("job %s is claimed as number %d that runs of the queue, %d may", d.job, queued, most)
	}
	if r.shut[""] {
		s.Errorf("job %s is claimed while the queue is paused or held back", d.job)
	}
	if group == "" {
		return
	}
	most := settings.LimitsIn(r.of[group[1:]], r.all).Running
	if group[0] == 's' {
		most = 1
	}
	if most > 0 && grouped > most {
		s.Errorf("job %s is claimed as number %d that runs of its group, %d may", d.job, grouped, most)
	}
	if r.shut[group[1:]] {
		s.Errorf("job %s is claimed while its group is paused or held back", d.job)
	}
}

// rated compares the claims of a time without a change with the rates.
func (s *stage) rated(r rules, to time.Time) {
	if r.changes {
		return
	}
	claims := make(map[string]int) // by group; "" has all
	for _, d := range s.stints {
		if d.at.After(r.from) && d.at.Before(to) {
			claims[""]++
			if group := s.groups[d.job]; group != "" {
				claims[group]++
			}
		}
	}
	for group, n := range claims {
		rate := r.queue.Rate
		if group != "" {
			rate = settings.LimitsIn(r.of[group[1:]], r.all).Rate
		}
		if rate.Jobs <= 0 {
			continue
		}
		most := float64(rate.Burst) + math.Ceil(to.Sub(r.from).Seconds()*float64(rate.Jobs)/rate.Per.Seconds())
		if float64(n) > most {
			s.Errorf("%d jobs of group %q are claimed in %v, %.0f may by %+v", n, group, to.Sub(r.from), most, rate)
		}
	}
}

func running(n int) signalbox.Limits { return signalbox.Limits{Running: n} }

func rate(jobs int, per time.Duration, burst int) signalbox.Limits {
	return signalbox.Limits{Rate: signalbox.Rate{Jobs: jobs, Per: per, Burst: burst}}
}

// A day is longer than any test.
const day = 24 * time.Hour

// atOnce has a worker that stops give its jobs back at once.
func atOnce(cfg *worker.Config, _ *worker.Queue) { cfg.DrainTimeout = -1 }

// TestLimitsAtRunTime: an operator changes limits while jobs wait and run, and while workers die and stop. No more run than may, all that may run do, and none is lost or runs
// twice.
func TestLimitsAtRunTime(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t) // the clock of the embedded Redis goes in steps
	for name, scene := range map[string]func(s *stage){
		"the queue's limit goes up, and away": func(s *stage) {
			s.limit(running(2))
			x := s.put("", 9)
			s.works(10)
			s.works(10)
			s.run(x[:2])
			s.limit(running(5))
			s.run(x[:5])
			s.limit(signalbox.Limits{})
			s.run(x)
		},
		"the queue's limit goes down while jobs run": func(s *stage) {
			s.works(10)
			s.works(10)
			x := s.put("", 6)
			s.run(x)
			s.limit(running(2))
			y := s.put("", 3)
			s.end(x[:4])
			s.run(x[4:])
			s.end(x[4:5])
			s.run(x[5:], y[:1])
			s.end(x[5:], y[:1])
			s.run(y[1:])
		},
		"one group may run more, fewer, any number, and again what all may": func(s *stage) {
			s.limitGroups(running(2))
			a, b := s.put("a", 6), s.put("b", 3)
			s.works(20)
			s.run(a[:2], b[:2])
			s.limitOf("a", running(4))
			s.run(a[:4], b[:2])
			s.limitOf("a", running(1))
			s.end(a[:3])
			s.run(a[3:4], b[:2])
			s.limitOf("a", running(signalbox.NoLimit))
			s.run(a[3:], b[:2])
			s.limitOf("a", signalbox.Limits{})
			more := s.put("a", 2)
			s.end(a[3:5])
			s.run(a[5:], more[:1], b[:2])
		},
		"all groups may run more and fewer, but one has its own say": func(s *stage) {
			s.limitOf("own", running(signalbox.NoLimit))
			s.limitGroups(running(1))
			own, a, b := s.put("own", 4), s.put("a", 3), s.put("b", 3)
			s.works(10)
			s.works(10)
			s.run(own, a[:1], b[:1])
			s.limitGroups(running(2))
			s.run(own, a[:2], b[:2])
			s.limitGroups(running(1))
			s.end(a[:1])
			s.run(own, a[1:2], b[:2])
			s.end(a[1:2], own)
			s.run(a[2:], b[:2])
			s.limitGroups(signalbox.Limits{})
			s.run(a[2:], b)
		},
		"a worker dies after the queue's limit went down": func(s *stage) {
			kill := s.dies(8)
			x := s.put("", 4)
			s.run(x)
			s.limit(running(1))
			kill()
			s.works(8)
			late := s.put("", 1)
			for range 4 {
				one := s.some(1)
				if one[0] == late[0] {
					s.Error("the job that came last is not the last")
				}
				s.end(one)
			}
			s.run(late)
		},
		"a worker dies after its group's limit went down": func(s *stage) {
			s.limitGroups(running(4))
			kill := s.dies(8)
			a := s.put("a", 6)
			s.run(a[:4])
			s.limitOf("a", running(1))
			kill()
			s.works(8)
			s.oneByOne(a)
		},
		"a worker stops after its group's limit went down": func(s *stage) {
			s.limitGroups(running(4))
			first := s.works(8, atOnce)
			a := s.put("a", 6)
			s.run(a[:4])
			s.limitGroups(running(1))
			s.works(8)
			first.stop()
			for range 4 { // the one that was given back last comes first
				one := s.some(1)
				if !slices.Contains(a[:4], one[0]) {
					s.Errorf("job %s runs before those that were given back", one[0])
				}
				s.end(one)
			}
			s.oneByOne(a[4:])
		},
		"the limit goes up while a dead worker fills it": func(s *stage) {
			s.limit(running(2))
			kill := s.dies(8)
			x := s.put("", 6)
			s.run(x[:2])
			kill()
			s.works(8)
			s.limit(running(4)) // those of the dead worker count
			s.run(x[2:4])
			s.run(x[:4])
		},
		"a rate per day becomes one per second": func(s *stage) {
			s.limit(rate(2, day, 2))
			x := s.put("", 6)
			s.works(10)
			s.works(10)
			s.run(x[:2])
			s.limit(rate(1000, time.Second, 1))
			s.run(x)
		},
		"a group inherits the rate of all while its own number counts": func(s *stage) {
			s.limitOf("a", running(3))
			s.limitGroups(rate(1, day, 2))
			a := s.put("a", 6)
			s.works(10)
			s.run(a[:2])
			s.limitGroups(rate(1000, time.Second, 1))
			s.run(a[:3])
			s.limitOf("a", rate(1, day, 1))
			s.limitOf("a", rate(signalbox.NoLimit, 0, 0))
			s.run(a)
		},
		"a high rate becomes one per day, and none": func(s *stage) {
			s.limit(rate(500, time.Second, 5))
			s.open(s.put("", 40))
			s.works(10)
			s.works(10)
			s.completed(40)
			s.limit(rate(1, day, 1))
			x := s.put("", 5)
			s.limit(signalbox.Limits{})
			s.run(x)
		},
		"the queue's limit goes down under serial groups that retry": func(s *stage) {
			s.limit(running(4))
			a, b, c, d := s.serial("a", 3), s.serial("b", 3), s.serial("c", 3), s.serial("d", 3)
			s.works(5)
			s.works(5)
			s.run(a[:1], b[:1], c[:1], d[:1])
			s.limit(running(1))
			s.end(a[:1], b[:1], c[:1])
			s.run(d[:1])
			s.end(d[:1])
			s.some(1)
			s.limit(running(2))
			s.some(2)
			s.limit(signalbox.Limits{})
			s.run(a[1:2], b[1:2], c[1:2], d[1:2])
		},
		"the rate of a serial group goes away while its retry waits for it": func(s *stage) {
			s.limitOf("a", rate(1, day, 1))
			a := s.serial("a", 2)
			s.works(5)
			s.until("the retry is put off", func(looks.Counts) bool { return s.far() == 1 })
			s.limitOf("a", signalbox.Limits{})
			s.run(a[:1])
		},
		"the rate of all goes up while retries of serial groups wait for it": func(s *stage) {
			s.limitGroups(rate(1, day, 1))
			a, b := s.serial("a", 2), s.serial("b", 2)
			s.works(5)
			s.until("the retries are put off", func(looks.Counts) bool { return s.far() == 2 })
			s.limitGroups(rate(1000, time.Second, 5))
			s.run(a[:1], b[:1])
		},
		"the rate goes up while jobs of a dead worker wait for it": func(s *stage) {
			s.limitOf("a", rate(3, day, 3))
			kill := s.dies(8)
			a := s.put("a", 5)
			s.run(a[:3])
			kill()
			s.works(8)
			s.until("the jobs of the dead worker wait for the rate", func(c looks.Counts) bool {
				return c.Total.Crashed == 3 && s.rdb.HGet(context.Background(), s.key("groups"), "ga").Val() == ".w.0"
			})
			s.limitOf("a", rate(1000, time.Second, 1))
			s.run(a)
		},
		"a group is paused while its limit goes down": func(s *stage) {
			s.limitGroups(running(3))
			a := s.put("a", 5)
			s.works(10)
			s.run(a[:3])
			s.pause("a")
			s.limitOf("a", running(1))
			s.end(a[:3])
			b := s.put("b", 1)
			s.run(b)
			s.resume("a")
			s.run(a[3:4], b)
			s.end(a[3:4])
			s.run(a[4:], b)
		},
		"a worker dies while its group is paused and its limit goes up": func(s *stage) {
			s.limitOf("a", running(1))
			kill := s.dies(8)
			a := s.put("a", 4)
			s.run(a[:1])
			s.pause("a")
			s.limitOf("a", running(3))
			kill()
			s.works(8)
			b := s.put("b", 1)
			s.run(b)
			s.until("the job of the dead worker waits", func(c looks.Counts) bool { return c.Running == 1 && c.Total.Crashed == 1 })
			s.resume("a")
			s.run(a[:3], b)
		},
		"a handler holds back its group while its limit goes up": func(s *stage) {
			s.limitGroups(running(1))
			a := append(s.puts(1, "a", order{Do: "hold"}, false), s.put("a", 3)...)
			s.works(10)
			s.run(a[:1])
			redistest.Eventually(s.T, func() bool {
				holds, err := s.ins.Holds(context.Background(), s.name())
				return err == nil && len(holds) > 0
			}, "the group is held back")
			s.hold("a", time.Hour)
			s.limitOf("a", running(4))
			b := s.put("b", 2)
			s.run(a[:1], b[:1])
			s.hold("a", 0)
			s.run(a, b[:1])
		},
		"the queue is paused while its limit goes up": func(s *stage) {
			s.limit(running(1))
			x := s.put("", 5)
			s.works(10)
			s.run(x[:1])
			s.pause("")
			s.limit(running(3))
			s.end(x[:1])
			s.run()
			s.resume("")
			s.run(x[1:4])
		},
		"deploys with other limits in their Config": func(s *stage) {
			config := func(n int) func(*worker.Config, *worker.Queue) {
				return func(_ *worker.Config, q *worker.Queue) { q.Limits = running(n) }
			}
			first := s.works(10, config(2), atOnce)
			x := s.put("", 6)
			s.run(x[:2])
			s.limit(running(3))
			s.run(x[:3])
			s.works(10, config(2))
			redistest.Eventually(s.T, func() bool { return s.log.count("the worker is ready") == 2 }, "the second worker works")
			first.stop()
			s.some(3)
			s.limit(signalbox.Limits{})
			s.works(10, config(2))
			s.run(x)
			s.works(10, config(7))
			redistest.Eventually(s.T, func() bool { return s.log.count("the worker is ready") == 4 }, "the fourth worker works")
			x = append(x, s.put("", 3)...)
			s.run(x[:7])
		},
		"the limit of 520 groups goes up": func(s *stage) {
			s.limitGroups(running(1))
			var heads, tails []string
			for i := range 520 { // more than a page
				ids := s.put(fmt.Sprintf("g%03d-", i), 2)
				heads, tails = append(heads, ids[0]), append(tails, ids[1])
			}
			s.works(1200)
			s.run(heads)
			s.limitGroups(running(2))
			s.run(heads, tails)
		},
		"limits change all the time, and workers die": func(s *stage) {
			kills := []func(){s.dies(5), s.dies(5)}
			s.works(5)
			for i := range 60 {
				for _, group := range []string{"", "a", "b", "c"} {
					s.open(s.put(group, 1))
				}
				switch i % 6 {
				case 0:
					s.limit(running(1 + i%4))
				case 1:
					s.limitGroups(signalbox.Limits{Running: 1 + i%3, Rate: signalbox.Rate{Jobs: 1, Per: day, Burst: 1 + i%3}})
				case 2:
					s.limitOf("a", signalbox.Limits{Running: 2, Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 2}})
				case 3:
					s.limit(rate(200, time.Second, 5))
					s.limitOf("b", running(signalbox.NoLimit))
				case 4:
					s.limitOf("a", signalbox.Limits{})
					s.limitGroups(running(2))
				case 5:
					s.limitOf("b", signalbox.Limits{})
				}
				if i == 20 || i == 40 {
					kills[i/20-1]()
				}
			}
			s.limit(signalbox.Limits{})
			s.limitGroups(signalbox.Limits{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, srv, srv.Client())
			scene(s)
			s.over()
		})
	}

	t.Run("Redis' clock goes back", func(t *testing.T) {
		t.Parallel()
		srv, shift := redistest.NewWithClock(t)
		shift(time.Hour)
		s := newStage(t, srv, srv.Client())
		s.stepped = true
		s.limit(running(5))
		s.limitGroups(rate(1, 10*time.Minute, 1))
		a, b := s.put("a", 3), s.put("b", 2)
		s.hold("b", 10*time.Minute)
		s.works(10)
		s.run(a[:1])
		shift(0)
		s.limitGroups(rate(100, time.Second, 1))
		s.run(a)
		shift(-time.Hour)
		s.hold("b", 0)
		s.run(a, b)
		s.limit(running(6))
		more := s.put("a", 3)
		s.run(a, b, more[:1])
		s.limit(signalbox.Limits{})
		s.run(a, b, more)
		s.over()
	})
	t.Run("a Cluster", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, nil, redistest.Cluster(t).Client())
		s.limit(running(3))
		s.limitGroups(running(1))
		first := s.works(10, atOnce)
		s.works(10)
		a, b := s.put("a", 4), s.put("b", 3)
		s.run(a[:1], b[:1])
		s.limitOf("a", running(3))
		s.run(a[:2], b[:1])
		s.limitGroups(running(2))
		s.limit(running(2))
		first.stop() // it may have any of the three
		s.end(a[:1])
		s.some(2)
		s.limit(signalbox.Limits{})
		s.run(a[1:4], b[:2])
		s.over()
	})
}

// far returns how many jobs are due in an hour or later.
func (s *stage) far() int {
	n, err := s.rdb.ZCount(context.Background(), s.key("due"), fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()), "+inf").Result()
	if err != nil {
		s.Fatal(err)
	}
	return int(n)
}
