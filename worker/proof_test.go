package worker_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
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
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var (
	proofJobs  = flag.Int("proof.jobs", 1_500, "how many jobs TestLinesUnderKills and its neighbours put in")
	proofLines = flag.Int("proof.lines", 40, "in how many serial groups")
	proofRate  = flag.Int("proof.rate", 400, "how many of them may start in a second")
)

// A proof has producers, workers and schedulers, each a process, and a ledger: a file to which all of them append, so that its lines are in the order of the events.
type proof struct {
	*testing.T
	rdb    redis.UniversalClient
	ins    *inspect.Inspector
	queues []*store.Queue
	cfg    proofConfig
	ledger *os.File
	crew   []*child
	roles  []proofConfig
}

// newProof returns a proof on a server with these addresses: one, or those of a Cluster.
func newProof(t *testing.T, rdb redis.UniversalClient, addrs []string, queues int) *proof {
	t.Helper()
	p := &proof{T: t, rdb: rdb}
	var err error
	if p.ins, err = inspect.New(rdb, inspect.Config{}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "ledger")
	if p.ledger, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.ledger.Close() })
	p.cfg = proofConfig{
		Addrs: addrs, Ledger: name, Jobs: *proofJobs, Lines: *proofLines, Producers: 8, TTL: 3 * time.Second,
		Rate: signalbox.Rate{Jobs: *proofRate, Per: time.Second, Burst: *proofRate / 4},
		// Each group has a rate too.
		GroupRate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 10},
	}
	p.cfg.Rate.Jobs, p.cfg.Rate.Burst = *proofRate/queues, *proofRate/queues/4
	for range queues {
		q := store.New(rdb, "", redistest.Name(t))
		p.queues, p.cfg.Queues = append(p.queues, q), append(p.cfg.Queues, q.Name())
	}
	return p
}

// start starts processes of a role.
func (p *proof) start(role string, n int) {
	p.Helper()
	for i := range n {
		cfg := p.cfg
		cfg.Role, cfg.Number = role, i
		p.roles = append(p.roles, cfg)
		p.crew = append(p.crew, startChild(p.T, childConfig{Proof: &cfg}))
	}
}

// kill kills a process and starts another one in its place. The ledger says so before.
func (p *proof) kill(i int) {
	p.Helper()
	fmt.Fprintf(p.ledger, "kill %d\n", p.crew[i].cmd.Process.Pid)
	p.crew[i].kill()
	p.crew[i] = startChild(p.T, childConfig{Proof: &p.roles[i]})
}

// counts returns the sum of what the queues have.
func (p *proof) counts() (sum looks.Counts) {
	p.Helper()
	for _, q := range p.queues {
		c, err := q.Looks().Counts(p.Context())
		if err != nil {
			p.Fatal(err)
		}
		sum.Ready, sum.Due, sum.Running = sum.Ready+c.Ready, sum.Due+c.Due, sum.Running+c.Running
		sum.Dead, sum.Cancelled, sum.Completed = sum.Dead+c.Dead, sum.Cancelled+c.Cancelled, sum.Completed+c.Completed
		sum.Total.Completed, sum.Total.Crashed = sum.Total.Completed+c.Total.Completed, sum.Total.Crashed+c.Total.Crashed
	}
	return sum
}

// settled reports whether each queue has a session of each worker that lives, and no other. One that was started last may not have any yet.
func (p *proof) settled() bool {
	var alive []string
	for i, c := range p.crew {
		if p.roles[i].Role == "worker" {
			alive = append(alive, fmt.Sprintf(":%d:", c.cmd.Process.Pid))
		}
	}
	for _, q := range p.queues {
		sessions := p.rdb.ZRange(p.Context(), key(q, "sessions"), 0, -1).Val()
		of := func(pid string) bool {
			return slices.ContainsFunc(sessions, func(id string) bool { return strings.Contains(id, pid) })
		}
		if len(sessions) != len(alive) || slices.ContainsFunc(alive, func(pid string) bool { return !of(pid) }) {
			return false
		}
	}
	return true
}

// run has the processes work until all jobs of the producers have completed. With kills, one of them is killed each second meanwhile. It
// returns how many were.
func (p *proof) run(kills bool) (killed int) {
	p.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	rate := p.cfg.Rate.Jobs * len(p.queues)
	limit := 10*time.Duration(p.cfg.Jobs/rate)*time.Second + 3*time.Minute
	for end := time.After(limit); ; {
		select {
		case <-tick.C:
		case <-end:
			p.Fatalf("not done after %v: %+v", limit, p.counts())
		}
		if p.counts().Total.Completed >= int64(p.cfg.Jobs) && p.read().done() == p.cfg.Jobs {
			break
		}
		if kills && killed == 0 {
			p.kill(0) // a worker
			killed++
		} else if kills {
			p.kill(rand.IntN(len(p.crew)))
			killed++
		}
	}
	// The schedulers end first. So all ticks that were enqueued run.
	for i, c := range p.crew {
		if p.roles[i].Role != "worker" {
			fmt.Fprintf(p.ledger, "kill %d\n", c.cmd.Process.Pid)
			c.kill()
		}
	}
	redistest.Eventually(p.T, func() bool { c := p.counts(); return c.Ready+c.Due+c.Running == 0 }, "all jobs have ended")
	redistest.Eventually(p.T, p.settled, "the workers that live have their sessions, and those of workers that were killed are over")
	for i, c := range p.crew {
		if p.roles[i].Role == "worker" {
			c.signal(os.Interrupt)
			<-c.done
		}
	}
	return killed
}

// read reads the ledger.
func (p *proof) read() *proofLedger {
	p.Helper()
	text, err := os.ReadFile(p.cfg.Ledger)
	if err != nil {
		p.Fatal(err)
	}
	l := newProofLedger()
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		if err := l.add(strings.TrimSuffix(line, "\n")); err != nil {
			p.Fatalf("line %q: %v", line, err)
		}
	}
	return l
}

// judge checks what the ledger says, and that nothing is left in the queues.
func (p *proof) judge(l *proofLedger) {
	p.Helper()
	for _, wrong := range l.wrong[:min(len(l.wrong), 20)] {
		p.Error(wrong)
	}
	if l.done() != p.cfg.Jobs {
		p.Errorf("%d jobs are done, of %d", l.done(), p.cfg.Jobs)
	}
	c := p.counts()
	if c.Dead+c.Cancelled > 0 {
		p.Errorf("jobs have ended in other ways: %+v", c)
	}
	for what, early := range map[string]time.Duration{
		"the queue's": l.early(p.cfg.Rate, func(d proofDelivery) string { return d.queue }),
		"the groups'": l.early(p.cfg.GroupRate, func(d proofDelivery) string {
			if d.alone {
				return ""
			}
			return d.queue + " " + d.line
		}),
	} {
		if early > 0 {
			p.Errorf("a job was claimed %v too early for %s rate", early, what)
		}
	}
	for _, q := range p.queues {
		report, err := p.ins.Doctor(p.Context(), q.Name(), inspect.Checkup{Pause: -1})
		if err != nil || report.Found > 0 || len(report.Unproved) > 0 {
			p.Errorf("the doctor finds %+v, %v", report, err)
		}
		for _, kind := range []string{"lined", "turns", "groups", "running", "parked", "sessions", "cancels", "unique", "windows"} {
			if p.rdb.Exists(p.Context(), key(q, kind)).Val() > 0 {
				p.Errorf("key %s of queue %s is left", kind, q.Name())
			}
		}
	}
}

// underKills is the proof with kills.
func underKills(t *testing.T, rdb redis.UniversalClient, addrs []string, queues int) {
	p := newProof(t, rdb, addrs, queues)
	p.cfg.Kills = 3
	p.start("worker", 4)
	p.start("producer", p.cfg.Producers)
	p.start("scheduler", 2)
	begin := time.Now()
	killed := p.run(true)
	took := time.Since(begin)
	l := p.read()
	p.judge(l)
	if killed < 3 || l.deliveries < p.cfg.Jobs || l.shared < 24 {
		t.Errorf("%d kills, %d deliveries, %d jobs with shared keys: the test shows little", killed, l.deliveries, l.shared)
	}
	t.Logf("proof: jobs=%d shared=%d lines=%d queues=%d ticks=%d kills=%d deliveries=%d crashed=%d lost_leases=%d wrong=%d in %v",
		l.done(), l.shared, p.cfg.Lines, queues, l.ticks(), killed, l.deliveries, p.counts().Total.Crashed, l.lost, len(l.wrong), took.Round(time.Second/10))
}

// TestLinesUnderKills: eight processes enqueue jobs of serial groups, four run them, two run cron entries, and each second one of all is killed and replaced. No
// two jobs of a group, or with a unique key, run at a time in workers that are alive. The jobs of each producer begin in their order, for each group and priority. Rates are kept. In
// the end nothing is left.
func TestLinesUnderKills(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	srv := redistest.New(t)
	underKills(t, srv.Client(), []string{srv.Addr()}, 1)
}

// TestLinesUnderKillsInACluster is the same with three queues on a Cluster of three masters.
func TestLinesUnderKillsInACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	c := redistest.Cluster(t)
	underKills(t, c.Client(), c.Addrs(), 3)
}

// TestRatesAreUsed: without kills, and with jobs that wait, the rate of a queue is kept and used.
func TestRatesAreUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	srv := redistest.New(t)
	p := newProof(t, srv.Client(), []string{srv.Addr()}, 1)
	p.cfg.GroupRate = signalbox.Rate{}
	p.cfg.Rate.Burst = p.cfg.Rate.Jobs
	p.start("producer", p.cfg.Producers)
	for _, c := range p.crew {
		<-c.done // all jobs are in
	}
	lateAt := lateness(t, srv.Client())
	p.start("worker", 4)
	p.run(false)
	l := p.read()
	p.judge(l)
	starts := slices.SortedFunc(slices.Values(l.starts), byClaim)
	usedBy := func(n int) float64 {
		begin, end := starts[0].claimed, starts[n-1].claimed
		took := max(0, end.Sub(begin)-(lateAt(end)-lateAt(begin)))
		return float64(n) / (float64(p.cfg.Rate.Burst) + float64(p.cfg.Rate.Jobs)*took.Seconds())
	}
	used, want := usedBy(len(starts)), 0.95
	if p.cfg.Jobs < 50*p.cfg.Rate.Jobs {
		// A short run ends with retries that come late on a busy machine. What counts is how much was used until some point of its second half.
		for n := len(starts) / 2; n < len(starts); n++ {
			used = max(used, usedBy(n))
		}
		want = 0.8
	}
	if used < want {
		t.Errorf("of the rate %.1f %% are used, want %.0f %%", 100*used, 100*want)
	}
	t.Logf("proof: jobs=%d rate=%d/s used=%.1f%%", l.done(), p.cfg.Rate.Jobs, 100*used)
}

// lateness is redistest.Lag for many times: at returns how late the machine had been in all at some time since the call.
func lateness(t *testing.T, rdb redis.UniversalClient) (at func(time.Time) time.Duration) {
	type sample struct {
		at   time.Time
		late time.Duration
	}
	var mu sync.Mutex
	var samples []sample
	late := redistest.Lag(t, rdb)
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			mu.Lock()
			samples = append(samples, sample{time.Now(), late()})
			mu.Unlock()
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() { close(done); work.Wait() })
	return func(x time.Time) (sum time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range samples {
			if s.at.After(x) {
				break
			}
			sum = s.late
		}
		return sum
	}
}

// The ledger shows what it is for.
func TestProofLedger(t *testing.T) {
	t.Parallel()
	start, done := "start %d q l1 %d 0 %d %s 7 %d", "done %d q l1 %d 0 %d %s 7 %d"
	for what, c := range map[string]struct {
		lines []string
		wrong bool
	}{
		"one after the other":           {[]string{fmt.Sprintf(start, 1, 0, 1, "a", 1), fmt.Sprintf(done, 1, 0, 1, "a", 1), fmt.Sprintf(start, 2, 0, 2, "b", 2)}, false},
		"two at a time":                 {[]string{fmt.Sprintf(start, 1, 0, 1, "a", 1), fmt.Sprintf(start, 2, 0, 2, "b", 2)}, true},
		"the first is dead":             {[]string{fmt.Sprintf(start, 1, 0, 1, "a", 1), "kill 1", fmt.Sprintf(start, 2, 0, 1, "a", 2)}, false},
		"another one is dead":           {[]string{fmt.Sprintf(start, 1, 0, 1, "a", 1), "kill 3", fmt.Sprintf(start, 2, 0, 1, "a", 2)}, true},
		"the first had lost its lease":  {[]string{fmt.Sprintf(start, 1, 0, 1, "a", 1), fmt.Sprintf(start, 2, 0, 1, "a", 2), "lost 1 q l1 0 0 1 a 7 1"}, false},
		"the second before the first":   {[]string{fmt.Sprintf(start, 1, 0, 2, "b", 1), fmt.Sprintf(done, 1, 0, 2, "b", 1), fmt.Sprintf(start, 1, 0, 1, "a", 2)}, true},
		"of different producers":        {[]string{fmt.Sprintf(start, 1, 0, 2, "b", 1), fmt.Sprintf(done, 1, 0, 2, "b", 1), fmt.Sprintf(start, 1, 1, 1, "a", 2)}, false},
		"the second once more":          {[]string{fmt.Sprintf(start, 1, 0, 1, "a", 1), fmt.Sprintf(done, 1, 0, 1, "a", 1), fmt.Sprintf(start, 1, 0, 2, "b", 2), fmt.Sprintf(done, 1, 0, 2, "b", 2), fmt.Sprintf(start, 1, 0, 1, "a", 3)}, false},
		"of a key, one after the other": {[]string{fmt.Sprintf(start, 1, -2, 1, "a", 1), fmt.Sprintf(done, 1, -2, 1, "a", 1), fmt.Sprintf(start, 2, -2, 2, "b", 2)}, false},
		"two of a key at a time":        {[]string{fmt.Sprintf(start, 1, -2, 1, "a", 1), fmt.Sprintf(start, 2, -2, 2, "b", 2)}, true},
		"a tick":                        {[]string{fmt.Sprintf(start, 1, -1, 1, "a", 1), fmt.Sprintf(done, 1, -1, 1, "a", 1), fmt.Sprintf(start, 1, -1, 1, "a", 3)}, false},
		"two jobs of a tick, one ended": {[]string{fmt.Sprintf(start, 1, -1, 1, "a", 1), fmt.Sprintf(done, 1, -1, 1, "a", 1), fmt.Sprintf(start, 1, -1, 1, "b", 3)}, true},
	} {
		l := newProofLedger()
		for _, line := range c.lines {
			if err := l.add(line); err != nil {
				t.Fatal(err)
			}
		}
		if len(l.wrong) > 0 != c.wrong {
			t.Errorf("%s: %v", what, l.wrong)
		}
	}
	l := newProofLedger()
	rate := signalbox.Rate{Jobs: 10, Per: time.Second, Burst: 2}
	for i, us := range []int{0, 0, 100_000, 150_000, 300_000} {
		if err := l.add(fmt.Sprintf("start 1 q l%d 0 0 1 j%d 7 %d", i, i, 1_000_000+us)); err != nil {
			t.Fatal(err)
		}
	}
	if early := l.early(rate, func(d proofDelivery) string { return d.queue }); early != 50*time.Millisecond {
		t.Errorf("the claim at 150 ms is %v too early", early)
	}
	if early := l.early(rate, func(d proofDelivery) string { return d.line }); early != 0 {
		t.Errorf("for a rate of each line a claim is %v too early", early)
	}
}

// key returns the name of a queue's key.
func key(q *store.Queue, kind string) string { return "signalbox:{default:" + q.Name() + "}:" + kind }

func byClaim(a, b proofDelivery) int {
	return cmp.Compare(a.claimed.UnixMicro(), b.claimed.UnixMicro())
}
