package worker_test

import (
	"bufio"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var (
	chaosJobs     = flag.Int("chaos.jobs", 2_000, "how many jobs TestChaos puts in")
	chaosDuration = flag.Duration("chaos.duration", 7*time.Second, "how long they take at least")
)

// chaosProcesses is the number of workers. In each chaosInterval one of them is killed and replaced.
const (
	chaosProcesses = 3
	chaosInterval  = time.Second
)

// TestChaos runs many jobs in three processes and kills one of them every second. All jobs complete. The tokens of a job's
// deliveries always rise. What the history of the queue counts, period by period, adds up to what there was.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := newRig(t)
	r.begins()
	ledger := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(ledger, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	// Handlers take 35 ms on average: with so many slots, the jobs take chaosDuration.
	const average = 35 * time.Millisecond
	slots := max(1, int(time.Duration(*chaosJobs)*average / *chaosDuration)/chaosProcesses)
	cfg := childConfig{Addr: redistest.Start(t).Addr(), Queue: r.name(), Slots: slots, TTL: time.Second, Ledger: ledger}
	jobs := make([]signalbox.Job, *chaosJobs)
	for i := range jobs {
		jobs[i] = signalbox.Job{Kind: order{}.Kind(), Payload: payload(order{Do: "sleep", MS: 20 + i*7%31})}
	}
	r.add(jobs...)

	begin := time.Now()
	var processes [chaosProcesses]*child
	for i := range processes {
		processes[i] = startChild(t, cfg)
	}
	var killed []int // process IDs
	tick := time.NewTicker(chaosInterval)
	defer tick.Stop()
	for end := time.After(*chaosDuration + 2*time.Minute); ; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not done after %v: %+v", time.Since(begin), r.counts())
		}
		c := r.counts()
		if c.Ready+c.Due+c.Running == 0 {
			break
		}
		i := rand.IntN(chaosProcesses)
		processes[i].kill()
		killed = append(killed, processes[i].cmd.Process.Pid)
		processes[i] = startChild(t, cfg)
	}
	took := time.Since(begin)
	for _, p := range processes {
		p.kill()
	}

	c, l := r.counts(), readLedger(t, ledger)
	inFlight := 0
	for _, pid := range killed {
		if l.unfinished[pid] > 0 {
			inFlight++
		}
	}
	if len(l.tokens) != *chaosJobs {
		t.Errorf("%d jobs are in the ledger, want %d", len(l.tokens), *chaosJobs)
	}
	if c.Total.Completed != int64(*chaosJobs) || c.Dead+c.Cancelled != 0 || c.Total.Retried != 0 {
		t.Errorf("counts %+v; want %d completed and nothing else", c, *chaosJobs)
	}
	if want := int(*chaosDuration/chaosInterval) * 5 / 6; inFlight < want {
		t.Errorf("%d kills hit a process with jobs in flight, want %d", inFlight, want)
	}
	for name, step := range map[string]looks.Step{"minute": looks.Minutes, "hour": looks.Hours} {
		all := r.history(step)
		if all.Totals != c.Total {
			t.Errorf("by the %s, the history has %+v, and there was %+v", name, all.Totals, c.Total)
		}
		// Of a process that is killed, the times since its last renewal are missing.
		if n := count(all.Run); n == 0 || n > int64(l.deliveries) {
			t.Errorf("by the %s, the history has the times of %d attempts of %d", name, n, l.deliveries)
		}
	}
	tokens := "ok"
	if l.backwards > 0 {
		tokens = "WRONG"
		t.Errorf("%d deliveries had a token not larger than an earlier delivery of the job", l.backwards)
	}
	t.Logf("chaos: completed=%d dead=%d kills=%d kills_in_flight=%d deliveries=%d duplicated=%d tokens=%s",
		c.Total.Completed, c.Dead, len(killed), inFlight, l.deliveries, l.deliveries-len(l.tokens), tokens)
	t.Logf("%v, %d slots a process, %d crashes counted", took.Round(time.Second/10), slots, c.Total.Crashed)
}

// A ledger is what handlers write down outside of Redis. All processes append to one file, so its lines are in the order of the
// events.
type ledger struct {
	deliveries int
	backwards  int
	tokens     map[string]int64 // of each job's latest delivery
	unfinished map[int]int      // by process: handlers that began and did not return
}

func readLedger(t *testing.T, path string) ledger {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := ledger{tokens: make(map[string]int64), unfinished: make(map[int]int)}
	for s := bufio.NewScanner(f); s.Scan(); {
		e, err := parseLine(s.Text())
		if err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		switch e.what {
		case "start":
			l.deliveries++
			l.unfinished[e.pid]++
			if e.token <= l.tokens[e.job] {
				l.backwards++
			}
			l.tokens[e.job] = e.token
		case "end":
			l.unfinished[e.pid]--
		}
	}
	return l
}
