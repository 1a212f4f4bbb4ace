package redlock

import (
	"math/rand/v2"
	"slices"
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
		"none known":          {nil, 1},
		"one":                 {[]int64{clock0}, clock0 + tokenMargin},
		"the fastest":         {[]int64{clock0 + 500, clock0, clock0 + 900}, clock0 + 900 + tokenMargin},
		"but not a far one":   {[]int64{clock0, clock0 + 10*aYear, clock0 + 5}, clock0 + 5 + tokenMargin},
		"59 minutes are near": {[]int64{clock0, clock0, clock0 + 59*aMinute}, clock0 + 59*aMinute + tokenMargin},
		"more aren't":         {[]int64{clock0, clock0, clock0 + 60*aMinute}, clock0 + tokenMargin},
		"some are unknown":    {[]int64{0, clock0, 0, clock0 + 7, 0}, clock0 + 7 + tokenMargin},
		"far behind":          {[]int64{clock0 - 10*aYear, clock0 - 10*aYear, clock0, clock0, clock0}, clock0 + tokenMargin},
		"two of four far":     {[]int64{clock0, clock0, clock0 + aYear, clock0 + aYear}, clock0 + tokenMargin},
	} {
		clocks := slices.Clone(c.clocks)
		now, far := newest(clocks)
		if got := proposal(now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if most := slices.Max(append(clocks, 0)); far != (most > now) || !slices.Equal(clocks, c.clocks) {
			t.Errorf("%s: far %v, though %d is the latest believed of %d", name, far, now, clocks)
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
		"after the last":              {[]register{{last: clock0 + 9, now: clock0}, {last: clock0 + 40, now: clock0}, {last: clock0 + 3, now: clock0}}, 3, clock0 + 41},
		"a clock 10 years ahead":      {[]register{fresh(clock0), fresh(clock0 + 10*aYear), fresh(clock0 + 1), fresh(clock0)}, 3, clock0 + 1 + m},
		"needed, and 10 years ahead":  {[]register{fresh(clock0), fresh(clock0 + 10*aYear), fresh(clock0)}, 3, 0},
		"all are at 10 years ahead":   {[]register{{last: clock0 + 10*aYear, now: clock0}, {last: clock0 + 10*aYear, now: clock0}, {last: clock0 + 10*aYear, now: clock0}}, 3, clock0 + 10*aYear + 1},
		"a register near the end":     {[]register{{last: maxToken - 1, now: clock0}, fresh(clock0), fresh(clock0), fresh(clock0)}, 3, clock0 + m},
		"all registers near the end":  {[]register{{last: maxToken - 1, now: clock0}, {last: maxToken - 1, now: clock0}, {last: maxToken - 1, now: clock0}}, 3, maxToken},
		"the end":                     {[]register{{last: maxToken, now: clock0}, {last: maxToken, now: clock0}, {last: maxToken, now: clock0}}, 3, 0},
		"an hour apart":               {[]register{fresh(clock0), fresh(clock0 + 59*aMinute), fresh(clock0)}, 3, clock0 + 59*aMinute + m},
		"the larger of two quorums":   {[]register{{last: clock0 - 1, now: clock0}, {last: clock0 + 5, now: clock0 + 1}, {last: clock0 + 9, now: clock0 + 1}, {last: clock0 + aYear, now: clock0}}, 2, clock0 + 10},
		"a clock that is far behind":  {[]register{fresh(clock0), fresh(clock0), fresh(clock0 - aYear)}, 3, 0},
		"unless it isn't needed here": {[]register{fresh(clock0), fresh(clock0), fresh(clock0 - aYear)}, 2, clock0 + m},
	} {
		if got := agreeable(c.nodes, c.need, m, 0); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// No token is agreed on that is less than the clocks of the nodes that vote for it, nor than the
// newest that is known, if they would vote for that.
func TestAgreeableFollowsTheClocks(t *testing.T) {
	t.Parallel()
	old := func(now, floor int64) register { return register{last: clock0 - aYear, now: now, floor: floor} }
	for name, c := range map[string]struct {
		nodes  []register
		newest int64
		want   int64
	}{
		"rolled back":                {[]register{old(clock0+5, clock0), old(clock0+5, clock0+3), old(clock0+5, clock0+1)}, 0, clock0 + 3},
		"the quorum's":               {[]register{old(clock0+5, clock0), old(clock0+5, clock0+3), old(clock0-aYear, clock0-aYear)}, 0, clock0 + 3},
		"the newest of others":       {[]register{old(clock0+5, clock0), old(clock0+5, clock0+3)}, clock0 + 90, clock0 + 90},
		"not if it is no use":        {[]register{old(clock0+5, clock0), old(clock0+5, clock0+3)}, clock0 + aYear, clock0 + 3},
		"a register says more":       {[]register{{clock0 + 700, clock0, clock0}, old(clock0, clock0+9)}, clock0 + 90, clock0 + 701},
		"an unknown clock is no bar": {[]register{old(clock0, 0), old(clock0, 0)}, 0, clock0 - aYear + 1},
	} {
		if got := agreeable(c.nodes, 2, tokenMargin, c.newest); got != c.want {
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
		got := agreeable(nodes, need, tokenMargin, 0)
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
