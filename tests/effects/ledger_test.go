package main

import (
	"slices"
	"strings"
	"testing"
)

// handedOut returns a ledger of a plan without faults of which everything was acknowledged, and the counter that fits.
func handedOut(t *testing.T, increments int) (*ledger, counter) {
	t.Helper()
	l := newLedger(makePlan(size{increments: increments}, 1))
	var c counter
	for {
		inc, ok := l.take()
		if !ok {
			break
		}
		if err := l.ack(inc.ID); err != nil {
			t.Fatal(err)
		}
		if inc.Guarded {
			c = c.with(inc.ID)
		}
	}
	return l, c
}

// The judge finds every planted mistake.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(*counter)
		want  verdict
		err   string // part of it
	}{
		"right":              {func(*counter) {}, verdict{acked: 5}, ""},
		"another order":      {func(c *counter) { slices.Reverse(c.IDs) }, verdict{acked: 5}, ""},
		"one lost":           {func(c *counter) { *c = counter{4, slices.Delete(c.IDs, 2, 3)} }, verdict{acked: 5, lost: 1}, ""},
		"one doubled":        {func(c *counter) { *c = c.with("g3") }, verdict{acked: 5, doubled: 1}, ""},
		"one thrice":         {func(c *counter) { *c = c.with("g3").with("g3") }, verdict{acked: 5, doubled: 2}, ""},
		"lost and doubled":   {func(c *counter) { c.IDs[0] = c.IDs[1] }, verdict{acked: 5, lost: 1, doubled: 1}, ""},
		"all lost":           {func(c *counter) { *c = counter{} }, verdict{acked: 5, lost: 5}, ""},
		"of the other one":   {func(c *counter) { *c = c.with("u1") }, verdict{acked: 5}, `"u1", for which nobody was asked`},
		"of nobody":          {func(c *counter) { *c = c.with("g5") }, verdict{acked: 5}, `"g5", for which nobody was asked`},
		"a number too small": {func(c *counter) { c.N-- }, verdict{acked: 5}, "the counter is 4, but has 5 IDs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, state := handedOut(t, 5)
			c.plant(&state)
			got, err := l.judge(state, true)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("judge = %+v, %v; want %+v, %q", got, err, c.want, c.err)
			}
		})
	}
}

// An increment that was not acknowledged may be missing, and may be there. It may not be there twice.
func TestJudgeUncertain(t *testing.T) {
	t.Parallel()
	l := newLedger(makePlan(size{increments: 1}, 1))
	inc, _ := l.take()
	for times, want := range []verdict{{}, {}, {doubled: 1}} {
		var c counter
		for range times {
			c = c.with(inc.ID)
		}
		if got, err := l.judge(c, true); got != want || err != nil {
			t.Errorf("%d times there: judge = %+v, %v, want %+v", times, got, err, want)
		}
	}
}

// An increment of a process that was killed is handed out again, with its first date.
func TestLose(t *testing.T) {
	t.Parallel()
	l := newLedger(makePlan(size{increments: 2}, 1))
	first, _ := l.take()
	second, _ := l.take()
	l.lose(first.ID)
	if again, ok := l.take(); !ok || again != first {
		t.Errorf("handed out %+v, want %+v again", again, first)
	}
	if err := l.ack(first.ID); err != nil {
		t.Error(err)
	}
	if err := l.ack(first.ID); err == nil {
		t.Error("the ledger takes a second acknowledgement")
	}
	if l.lose(first.ID); l.waitingFor() != -1 {
		t.Error("nothing is left to hand out")
	}
	for range 2 {
		l.take()
	}
	if n := l.waitingFor(); n != 3 {
		t.Errorf("the ledger waits for %d, want 3: %s and two more", n, second.ID)
	}
	if inc, ok := l.take(); ok {
		t.Errorf("handed out %+v", inc)
	}
}

// A plan has all faults, evenly, and none among the last increments.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, s := range []size{long, quick, {increments: 24, faults: 12}} {
		for seed := range uint64(20) {
			p := makePlan(s, seed)
			if len(p.increments) != 2*s.increments || len(p.faults) != s.faults {
				t.Fatalf("%+v: %d increments and %d faults", s, len(p.increments), len(p.faults))
			}
			kinds := map[fault]int{}
			for i, inc := range p.increments {
				f, ok := p.faults[inc.ID]
				if ok != (inc.Slow != "") || ok && (f.guarded != inc.Guarded || f.at != inc.Slow) {
					t.Errorf("%+v has the fault %+v", inc, f)
				}
				if ok {
					kinds[f]++
					if i >= 2*s.increments*9/10+2 {
						t.Errorf("the increment %d of %d has a fault", i, 2*s.increments)
					}
				}
			}
			for _, f := range faults {
				if kinds[f] == 0 {
					t.Errorf("%+v: no fault %+v", s, f)
				}
			}
		}
	}
}
