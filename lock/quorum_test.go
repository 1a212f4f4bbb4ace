package lock

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	aMinute = int64(time.Minute / time.Microsecond)
	aYear   = 365 * 24 * 60 * aMinute
	clock0  = int64(1_800_000_000_000_000) // a day in 2027, µs
)

func TestProposal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		clocks []int64
		want   int64
	}{
		"none known":           {nil, 1},
		"one":                  {[]int64{clock0}, clock0 + tokenMargin},
		"the fastest":          {[]int64{clock0 + 500, clock0, clock0 + 900}, clock0 + 900 + tokenMargin},
		"but not a far one":    {[]int64{clock0, clock0 + 10*aYear, clock0 + 5}, clock0 + 5 + tokenMargin},
		"half an hour is near": {[]int64{clock0, clock0, clock0 + 30*aMinute}, clock0 + 30*aMinute + tokenMargin},
		"more isn't":           {[]int64{clock0, clock0, clock0 + 31*aMinute}, clock0 + tokenMargin},
		"far behind":           {[]int64{clock0 - 10*aYear, clock0 - 10*aYear, clock0, clock0, clock0}, clock0 + tokenMargin},
		"two of four far":      {[]int64{clock0, clock0, clock0 + aYear, clock0 + aYear}, clock0 + tokenMargin},
	} {
		if got := proposal(c.clocks); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestAgreeable(t *testing.T) {
	t.Parallel()
	fresh := func(now int64) register { return register{last: now, now: now} }
	const m = tokenMargin
	for name, c := range map[string]struct {
		nodes []register
		need  int
		want  int64
	}{
		"too few":                     {[]register{fresh(clock0), fresh(clock0)}, 3, 0},
		"fresh":                       {[]register{fresh(clock0), fresh(clock0 + 7), fresh(clock0 + 3)}, 3, clock0 + 7 + m},
		"after the last":              {[]register{{clock0 + 9, clock0}, {clock0 + 40, clock0}, {clock0 + 3, clock0}}, 3, clock0 + 41},
		"a clock 10 years ahead":      {[]register{fresh(clock0), fresh(clock0 + 10*aYear), fresh(clock0 + 1), fresh(clock0)}, 3, clock0 + 1 + m},
		"needed, and 10 years ahead":  {[]register{fresh(clock0), fresh(clock0 + 10*aYear), fresh(clock0)}, 3, 0},
		"all are at 10 years ahead":   {[]register{{clock0 + 10*aYear, clock0}, {clock0 + 10*aYear, clock0}, {clock0 + 10*aYear, clock0}}, 3, clock0 + 10*aYear + 1},
		"a register near the end":     {[]register{{maxToken - 1, clock0}, fresh(clock0), fresh(clock0), fresh(clock0)}, 3, clock0 + m},
		"all registers near the end":  {[]register{{maxToken - 1, clock0}, {maxToken - 1, clock0}, {maxToken - 1, clock0}}, 3, maxToken},
		"the end":                     {[]register{{maxToken, clock0}, {maxToken, clock0}, {maxToken, clock0}}, 3, 0},
		"an hour apart":               {[]register{fresh(clock0), fresh(clock0 + 59*aMinute), fresh(clock0)}, 3, clock0 + 59*aMinute + m},
		"the larger of two quorums":   {[]register{{clock0 - 1, clock0}, {clock0 + 5, clock0 + 1}, {clock0 + 9, clock0 + 1}, {clock0 + aYear, clock0}}, 2, clock0 + 10},
		"a clock that is far behind":  {[]register{fresh(clock0), fresh(clock0), fresh(clock0 - aYear)}, 3, 0},
		"unless it isn't needed here": {[]register{fresh(clock0), fresh(clock0), fresh(clock0 - aYear)}, 2, clock0 + m},
	} {
		if got := agreeable(c.nodes, c.need, m); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Whatever the registers say, need of the nodes take what is chosen, and if nothing is,
// then there is no token that they would take.
func TestAgreeableIsAgreedOn(t *testing.T) {
	t.Parallel()
	spread := []int64{10, aMinute, 90 * aMinute, 10 * aYear}
	for range 20_000 {
		nodes := make([]register, 1+rand.N(5))
		for i := range nodes {
			now := clock0 + rand.N(spread[rand.N(len(spread))])
			nodes[i] = register{last: now, now: now}
			if rand.N(2) == 0 {
				nodes[i].last = now - aMinute + rand.N(spread[rand.N(len(spread))])
			}
		}
		need := 1 + rand.N(len(nodes))
		votes := func(token int64) (n int) {
			for _, r := range nodes {
				n += boolInt(r.takes(token, tokenMargin))
			}
			return n
		}
		got := agreeable(nodes, need, tokenMargin)
		if got != 0 && votes(got) < need {
			t.Fatalf("%v: %d of %d take %d", nodes, votes(got), need, got)
		}
		for _, r := range nodes { // the largest that a node takes
			if most := max(r.now+farAhead, r.last+1); got == 0 && votes(most) >= need {
				t.Fatalf("%v: %d nodes would take %d", nodes, need, most)
			}
		}
	}
}

func TestQuorumErrorTellsAll(t *testing.T) {
	t.Parallel()
	err := error(&QuorumError{Op: "acquire", Key: "k", Need: 3, Held: 2, Nodes: []NodeError{
		{"a:1", errMine}, {"b:1", ErrInvalid},
	}})
	if want := `lock: acquire "k": needs 3 nodes, has 2 (a:1: ` + errMine.Error() + `; b:1: ` + ErrInvalid.Error() + `)`; err.Error() != want {
		t.Errorf("%v\nwant %v", err, want)
	}
	var n NodeError
	if !errors.Is(err, errMine) || !errors.Is(err, ErrInvalid) || errors.Is(err, ErrHeld) || !errors.As(err, &n) || n.Node != "a:1" {
		t.Errorf("%+v", err)
	}
	if text := (&QuorumError{Op: "check", Need: 1}).Error(); !strings.HasPrefix(text, "lock: check: needs 1") {
		t.Error(text)
	}
}

func TestWhenFree(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		nodes   []time.Duration
		missing int
		want    time.Duration
	}{
		{[]time.Duration{30 * ms, 10 * ms, 20 * ms}, 2, 20 * ms},
		{[]time.Duration{30 * ms, -1 * ms, 20 * ms}, 2, 30 * ms},
		{[]time.Duration{-1 * ms, -1 * ms, 20 * ms}, 2, -1},
		{[]time.Duration{-2 * ms, 5 * ms, 20 * ms}, 2, 5 * ms},
		{[]time.Duration{5 * ms}, 2, -1},
	} {
		if got := whenFree(c.nodes, c.missing); got != c.want {
			t.Errorf("%v, %d missing: %v, want %v", c.nodes, c.missing, got, c.want)
		}
	}
}
