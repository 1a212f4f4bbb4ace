package scheduler

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

var (
	proofDuration  = flag.Duration("cron.proof", 0, "how long TestEveryTickOnce runs; 0: a short run with few processes and entries")
	proofProcesses = flag.Int("cron.processes", 10, "how many processes its long run has")
	proofEach      = flag.Int("cron.each", 200, "how many entries each of them has")
)

// TestEveryTickOnce: processes run entries of one second each. Meanwhile some are killed and replaced, some are stopped and go on, and Redis
// is killed and starts again from its append-only file. Each tick of each entry is enqueued once, and none is missed.
func TestEveryTickOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	processes, entries, lasts, every := 3, 10, 6*time.Second, 1500*time.Millisecond
	if *proofDuration > 0 {
		processes, entries, lasts, every = *proofProcesses, *proofEach, *proofDuration, time.Second
	}
	srv := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	if !srv.Real() {
		t.Skip("the embedded Redis has no append-only file")
	}
	q := checked(t, srv.Client())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", childEnv, srv.Addr(), q.Name(), entries))
		if _, err := cmd.StdinPipe(); err != nil { // the process ends with this one
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	crew := make([]*exec.Cmd, processes)
	for i := range crew {
		crew[i] = start()
	}
	defer func() {
		for _, cmd := range crew {
			end(cmd)
		}
	}()
	enqueued := func() (n int64) {
		counts, err := q.Looks().Counts(context.Background())
		if err != nil {
			return -1
		}
		return counts.Ready
	}
	redistest.Eventually(t, func() bool { return enqueued() > 0 }, "the first ticks are enqueued")
	kills, stops, restarts := 0, 0, 0
	rnd := rand.New(rand.NewPCG(1, 2))
	for begin := time.Now(); time.Since(begin) < lasts; {
		before := enqueued()
		switch i := rnd.IntN(processes); (kills + stops + restarts) % 3 {
		case 0:
			end(crew[i])
			crew[i] = start()
			kills++
		case 1:
			if err := crew[i].Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			stopped := crew[i]
			defer time.AfterFunc(2*every, func() { _ = stopped.Process.Signal(syscall.SIGCONT) }).Stop()
			stops++
		default:
			srv.Kill()
			srv.Restart()
			restarts++
		}
		next := time.Now().Add(every)
		redistest.Eventually(t, func() bool { return time.Now().After(next) && enqueued() > before }, "ticks go on")
	}
	// All ticks of the last seconds come, too, before the processes end. They are compared up to the second before.
	last := time.Now().Truncate(time.Second)
	redistest.Eventually(t, func() bool {
		planned, err := q.Cron().RegisterPlans(context.Background(), registrations(entries))
		for _, p := range planned {
			if p.Last.Before(last) {
				return false
			}
		}
		return err == nil
	}, "the last tick of each entry is enqueued")
	for _, cmd := range crew {
		end(cmd)
	}
	crew = nil
	ticks := map[string]map[int64]int{}
	for _, job := range claimAll(t, q) {
		if ticks[string(job.Payload)] == nil {
			ticks[string(job.Payload)] = map[int64]int{}
		}
		ticks[string(job.Payload)][job.ScheduledAt.UnixMilli()]++
	}
	if len(ticks) != entries {
		t.Errorf("%d entries have ticked, of %d", len(ticks), entries)
	}
	all, missed, doubled := 0, 0, 0
	for entry, of := range ticks {
		first := last.UnixMilli()
		for at, n := range of {
			first = min(first, at)
			doubled += n - 1
			if n > 1 || at%1000 != 0 {
				t.Errorf("entry %s: %d jobs of the tick at %d ms", entry, n, at)
			}
		}
		for at := first; at <= last.UnixMilli(); at += 1000 {
			if all++; of[at] == 0 {
				missed++
				t.Errorf("entry %s: the tick at %d ms is missed", entry, at)
			}
		}
	}
	if all < entries*int(lasts/time.Second) || kills == 0 || stops == 0 || restarts == 0 {
		t.Errorf("%d ticks, %d kills, %d stops, %d restarts: the test shows little", all, kills, stops, restarts)
	}
	t.Logf("cron: ok, processes=%d entries=%d ticks=%d missed=%d doubled=%d; kills=%d stops=%d restarts=%d",
		processes, entries, all, missed, doubled, kills, stops, restarts)
}

// registrations asks for the last ticks of the entries, as a scheduler with them does.
func registrations(entries int) []store.Registration {
	list := make([]store.Registration, entries)
	for i := range list {
		list[i].Plan = store.NewPlan(fmt.Sprint("e", i), "@every 1s", "UTC", strconv.Itoa(maxRunAll), maxLateness.String())
	}
	return list
}

// TestTenMinutesDown: all schedulers are down for ten minutes. Each policy for missed ticks and for jobs that overlap does just what it says.
func TestTenMinutesDown(t *testing.T) {
	type entry struct {
		spec string
		opts []CronOption
		live bool     // a job of the entry is live when the schedulers are back
		want []string // ticks from 0:05 to 0:17
	}
	minutes := func(from, to int) (list []string) {
		for m := from; m <= to; m++ {
			list = append(list, fmt.Sprintf("1 00:%02d:00", m))
		}
		return list
	}
	after := minutes(16, 17)
	entries := map[string]entry{
		"skip":                {"@every 1m", []CronOption{Missed(Skip)}, false, after},
		"default":             {"@every 1m", nil, false, after},
		"once":                {"@every 1m", []CronOption{Missed(RunOnce)}, false, minutes(15, 17)},
		"all":                 {"@every 1m", []CronOption{Missed(RunAll(100))}, false, minutes(6, 17)},
		"all-5":               {"@every 1m", []CronOption{Missed(RunAll(5))}, false, minutes(11, 17)},
		"late":                {"@every 1m", []CronOption{Missed(RunAll(100)), Lateness(3 * time.Minute)}, false, minutes(13, 17)},
		"hourly":              {"10 * * * *", []CronOption{Missed(RunOnce)}, false, []string{"1 00:10:00"}},
		"daily":               {"10 0 * * *", nil, false, []string{"1 00:10:00"}},
		"ended":               {"@every 1m", []CronOption{Missed(RunAll(100)), Ending(time.Date(2000, 1, 1, 0, 8, 0, 0, time.UTC))}, false, minutes(6, 8)},
		"begins":              {"@every 1m", []CronOption{Missed(RunAll(100)), Starting(time.Date(2000, 1, 1, 0, 12, 0, 0, time.UTC))}, false, minutes(12, 17)},
		"all, while one runs": {"@every 1m", []CronOption{Missed(RunAll(100)), Overlap(SkipIfRunning)}, true, nil},
		"all, none runs":      {"@every 1m", []CronOption{Missed(RunAll(100)), Overlap(SkipIfRunning)}, false, minutes(6, 17)}, // the fake's jobs end at once
		"all, cancelled":      {"@every 1m", []CronOption{Missed(RunAll(100)), Overlap(CancelOther)}, true, minutes(6, 17)},
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		start := func(ctx context.Context) {
			for range 3 {
				p := startFake(t, ctx, map[string]*fakeServer{"q": f})
				for name, e := range entries {
					p.add(t, strings.ReplaceAll(name, " ", "_"), e.spec, e.opts...)
				}
			}
		}
		first, stop := context.WithCancel(ctx)
		start(first)
		time.Sleep(5*time.Minute + 30*time.Second)
		stop()
		before := len(f.ticks())
		time.Sleep(10 * time.Minute)
		f.set(func() {
			f.live = make(map[string]bool)
			for name, e := range entries {
				f.live[strings.ReplaceAll(name, " ", "_")] = e.live
			}
		})
		start(ctx)
		time.Sleep(2 * time.Minute)
		got := map[string][]string{}
		f.set(func() {
			for k := before; k < len(f.names); k++ {
				got[f.names[k]] = append(got[f.names[k]], f.fired[k].UTC().Format("2 15:04:05"))
			}
		})
		for name, e := range entries {
			if g := got[strings.ReplaceAll(name, " ", "_")]; strings.Join(g, ",") != strings.Join(e.want, ",") {
				t.Errorf("%s: ticks %v, want %v", name, g, e.want)
			}
		}
	})
}
