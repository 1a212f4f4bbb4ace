package worker_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
)

var (
	flowMembers = flag.Int("flows.members", 3_000, "how many members the batches of TestBatchesUnderKills have")
	flowSize    = flag.Int("flows.size", 150, "how many of them are of one batch")
)

// TestBatchesUnderKills: batches whose members run in three processes, one of which is killed each second. Some members add others. Each batch has its callbacks once, after all of its members have ended, and each member completes.
func TestBatchesUnderKills(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := childConfig{Addr: redistest.Start(t).Addr(), Queue: r.name(), Slots: 8, TTL: time.Second, Ledger: path}
	s, ctx := r.scheduler(), context.Background()
	batches := max(1, *flowMembers / *flowSize)
	begin := time.Now()
	var processes [chaosProcesses]*child
	for i := range processes {
		processes[i] = startChild(t, cfg)
	}
	for n := range batches {
		id := fmt.Sprintf("b%d", n)
		b, err := s.Batch(ctx, r.name(), scheduler.FlowID(id), scheduler.OnSuccess(order{Do: "nothing"}, scheduler.ID("success-"+id)), scheduler.OnEnd(order{Do: "nothing"}, scheduler.ID("end-"+id)),
			scheduler.OnFailure(order{Do: "nothing"}, scheduler.ID("failure-"+id)))
		if err != nil {
			t.Fatal(err)
		}
		items := func(yield func(scheduler.Item) bool) {
			for k := range *flowSize {
				o := order{Do: "sleep", MS: 10 + k*7%31}
				if k%10 == 0 {
					o.Do = "grow"
				}
				if !yield(scheduler.Item{Args: o, Options: []scheduler.EnqueueOption{scheduler.ID(fmt.Sprintf("%s-m%d", id, k))}}) {
					return
				}
			}
		}
		for _, res := range b.AddSeq(ctx, items) {
			if res.Err != nil || !res.New {
				t.Fatal(res)
			}
		}
		if err := b.Seal(ctx); err != nil {
			t.Fatal(err)
		}
	}
	grown := batches * ((*flowSize + 9) / 10)
	want := int64(batches*(*flowSize+2) + grown)
	kills := 0
	tick := time.NewTicker(chaosInterval)
	defer tick.Stop()
	for end := time.After(time.Duration(*flowMembers)*20*time.Millisecond + 2*time.Minute); ; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not done after %v: %+v", time.Since(begin), r.counts())
		}
		if c := r.counts(); c.Total.Completed >= want && c.Ready+c.Due+c.Running == 0 {
			break
		}
		i := rand.IntN(chaosProcesses)
		processes[i].kill()
		kills++
		processes[i] = startChild(t, cfg)
	}
	for _, p := range processes {
		p.kill()
	}
	c := r.counts()
	if c.Total.Completed != want || c.Dead+c.Cancelled != 0 {
		t.Errorf("%+v, want %d completed", c, want)
	}
	early, called := readBatches(t, path, *flowSize+(*flowSize+9)/10)
	if early > 0 || called != 2*batches {
		t.Errorf("%d callbacks began before all members had ended; %d have run, of %d", early, called, 2*batches)
	}
	if !t.Failed() {
		t.Logf("flows: ok members=%d callbacks=%d lost=0 doubled=0 early=0 kills=%d", batches**flowSize+grown, called, kills)
	}
}

// readBatches reads a ledger, in which the events of all processes are in their order. It returns how many callbacks began before so many members of their batch had ended, and how many callbacks have run.
func readBatches(t *testing.T, path string, members int) (early, called int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ended := make(map[string]map[string]bool)
	seen := make(map[string]bool)
	for s := bufio.NewScanner(f); s.Scan(); {
		e, err := parseLine(s.Text())
		if err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		what, id, callback := strings.Cut(e.job, "-")
		switch {
		case callback && (what == "success" || what == "end" || what == "failure"):
			if e.what == "start" && len(ended[id]) < members || what == "failure" {
				early++
			}
			if e.what == "end" {
				seen[e.job] = true
			}
		case e.what == "end":
			if ended[what] == nil {
				ended[what] = make(map[string]bool)
			}
			ended[what][e.job] = true
		}
	}
	return early, len(seen)
}
