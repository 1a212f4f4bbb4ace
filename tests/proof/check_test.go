package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// A script is a handwritten history of one key. Times are in ms.
type script struct{ ops []operation }

func (s *script) add(o operation) *script {
	o.key, o.op = "k", int64(len(s.ops)+1)
	if o.lease == 0 {
		o.lease = o.op
	}
	o.call *= ms
	if o.back != never {
		o.back *= ms
	}
	o.until *= ms
	s.ops = append(s.ops, o)
	return s
}

// cycle adds an acquire that takes 2 ms and, 5 ms later, a release that takes 1 ms.
func (s *script) cycle(process, at, token int64) *script {
	s.add(operation{process: process, do: acquire, call: at, back: at + 2, result: done, token: token, until: at + 390})
	grant := int64(len(s.ops))
	return s.add(operation{process: process, do: release, lease: grant, call: at + 7, back: at + 8, result: done})
}

// rightHistory returns thirty cycles of three processes.
func rightHistory() *script {
	s := &script{}
	for i := range int64(30) {
		s.cycle(i%3+1, 10*i, 100+10*i)
	}
	return s
}

func counts(v verdict) string {
	return fmt.Sprintf("duplicates=%d order=%d overlaps=%d expected=%d illegal=%d unknown=%d large=%d",
		v.duplicates, v.order, v.overlaps, v.expected, v.illegal, v.unknown, v.large)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	grant := func(process, call, back, token, until int64) operation {
		return operation{process: process, do: acquire, call: call, back: back, result: done, token: token, until: until}
	}
	forgets := []loss{{50 * ms, 51 * ms}}
	for _, c := range []struct {
		name   string
		s      *script
		losses []loss
		want   verdict
	}{
		{"a right history", rightHistory(), nil, verdict{}},
		{"a double grant, later", rightHistory().cycle(4, 500, 390), nil, verdict{duplicates: 1, illegal: 1}},
		{"a token that goes back", rightHistory().cycle(4, 500, 1), nil, verdict{order: 1, illegal: 1}},
		{
			"grants at the same time in any order",
			(&script{}).add(grant(1, 0, 400, 20, 300)).add(grant(2, 0, 400, 10, 300)), nil,
			verdict{},
		},
		{
			"a lease that nobody released, and the next after its promise",
			(&script{}).add(grant(1, 0, 2, 10, 390)).add(grant(2, 20, 391, 11, 780)), nil,
			verdict{},
		},
		{
			"the next before the end of the promise",
			(&script{}).add(grant(1, 0, 2, 10, 390)).add(grant(2, 20, 389, 11, 780)), nil,
			verdict{overlaps: 1, illegal: 1},
		},
		{
			"the promise was extended",
			(&script{}).add(grant(1, 0, 2, 10, 390)).
				add(operation{process: 1, do: extend, lease: 1, call: 300, back: 301, result: done, until: 690}).
				add(grant(2, 20, 500, 11, 880)), nil,
			verdict{overlaps: 1, illegal: 1},
		},
		{
			"an extension that nobody heard of promises nothing",
			(&script{}).add(grant(1, 0, 2, 10, 390)).
				add(operation{process: 1, do: extend, lease: 1, call: 300, back: never}).
				add(grant(2, 20, 500, 11, 880)), nil,
			verdict{},
		},
		{
			"an extension that is confirmed to one who was superseded",
			(&script{}).add(grant(1, 0, 2, 10, 390)).add(grant(2, 20, 400, 11, 780)).
				add(operation{process: 1, do: extend, lease: 1, call: 410, back: 411, result: done, until: 800}), nil,
			verdict{overlaps: 1, illegal: 1},
		},
		{
			"a release that is confirmed to one who was superseded",
			(&script{}).add(grant(1, 0, 2, 10, 390)).add(grant(2, 20, 400, 11, 780)).
				add(operation{process: 1, do: release, lease: 1, call: 410, back: 411, result: done}), nil,
			verdict{illegal: 1},
		},
		{
			"a release of unknown outcome may be late",
			(&script{}).add(grant(1, 0, 2, 10, 390)).
				add(operation{process: 1, do: release, lease: 1, call: 5, back: 6, result: failed}).
				add(grant(2, 7, 100, 11, 480)), nil,
			verdict{},
		},
		{
			"a client was killed while it acquired",
			(&script{}).add(operation{process: 1, do: acquire, call: 0, back: never}).cycle(2, 10, 10).cycle(2, 20, 11), nil,
			verdict{},
		},
		{
			"the memory was lost, and the holder finds another",
			(&script{}).add(grant(1, 40, 42, 10, 430)).cycle(2, 60, 11).
				add(operation{process: 1, do: release, lease: 1, call: 90, back: 91, result: lost}), forgets,
			verdict{expected: 1},
		},
		{
			"the memory was lost, and a release that was sent twice says that all is well",
			(&script{}).add(grant(1, 40, 42, 10, 430)).cycle(2, 60, 11).
				add(operation{process: 1, do: release, lease: 1, call: 90, back: 91, result: done}), forgets,
			verdict{expected: 1},
		},
		{
			"the memory was lost, nobody else asked, and a release says that all is well",
			(&script{}).add(grant(1, 40, 42, 10, 430)).
				add(operation{process: 1, do: release, lease: 1, call: 90, back: 91, result: done}), forgets,
			verdict{illegal: 1},
		},
		{
			"the memory was lost while the lock was released, and nobody else asked",
			(&script{}).add(grant(1, 40, 42, 10, 430)).
				add(operation{process: 1, do: release, lease: 1, call: 45, back: 91, result: done}), forgets,
			verdict{},
		},
		{
			"the memory was lost before both",
			(&script{}).add(grant(1, 60, 62, 10, 450)).cycle(2, 70, 11), forgets,
			verdict{overlaps: 1, illegal: 1},
		},
		{
			"the memory was lost, and the tokens went back",
			(&script{}).add(grant(1, 40, 42, 10, 430)).cycle(2, 60, 9), forgets,
			verdict{order: 1, expected: 1, illegal: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if v := check(c.s.ops, c.losses, time.Minute); counts(v) != counts(c.want) {
				t.Errorf("found %s, want %s\n%s", counts(v), counts(c.want), v.examples)
			}
		})
	}
}

// If porcupine can't decide a key in time, the check fails. It also fails if a key has too
// many operations.
func TestCheckGivesUp(t *testing.T) {
	t.Parallel()
	s := &script{}
	for i := range int64(60) {
		s.add(operation{process: i, do: acquire, call: i % 3, back: never})
	}
	s.cycle(100, 100, 10).cycle(100, 200, 10)
	v := check(s.ops, nil, 20*time.Millisecond)
	if v.unknown != 1 || v.ok() {
		t.Errorf("found %s, want unknown=1", counts(v))
	}

	s = &script{}
	for i := range int64(maxKeyOperations/2 + 1) {
		s.cycle(1, 10*i, i+1)
	}
	if v := check(s.ops, nil, time.Minute); v.large != 1 || v.ok() {
		t.Errorf("found %s, want large=1", counts(v))
	}
}

func TestPlanted(t *testing.T) {
	t.Parallel()
	ops := rightHistory().ops
	before := slices.Clone(ops)
	names, err := findPlanted(ops, nil, time.Minute)
	if err != nil || len(names) != 3 {
		t.Errorf("found %q, error %v", names, err)
	}
	if !slices.Equal(ops, before) {
		t.Error("the history was changed")
	}
	if v := check(ops, nil, time.Minute); !v.ok() {
		t.Errorf("the history itself: %s", counts(v))
	}
	// If there is no key to plant a violation in, the run fails.
	if _, err := findPlanted(ops[:4], nil, time.Minute); err == nil {
		t.Error("nothing was planted, and nobody says so")
	}
}

func TestAssemble(t *testing.T) {
	t.Parallel()
	ops, err := assemble(7, []event{
		{Op: 1, Do: acquire, Key: "a", At: 10},
		{Op: 2, Do: acquire, Key: "b", At: 11},
		{Op: 1, Do: acquire, Key: "a", At: 12, End: true, Result: done, Token: 5, Until: 100},
		{Op: 3, Do: release, Key: "a", Lease: 1, At: 13},
	})
	want := []operation{
		{process: 7, op: 1, lease: 1, do: acquire, key: "a", call: 10, back: 12, result: done, token: 5, until: 100},
		{process: 7, op: 2, lease: 2, do: acquire, key: "b", call: 11, back: never},
		{process: 7, op: 3, lease: 1, do: release, key: "a", call: 13, back: never},
	}
	if err != nil || !slices.Equal(ops, want) {
		t.Errorf("assembled %+v, %v", ops, err)
	}
	for name, events := range map[string][]event{
		"an end without a begin": {{Op: 1, End: true, At: 1}},
		"two begins":             {{Op: 1, At: 1}, {Op: 1, At: 2}},
		"two ends":               {{Op: 1, At: 1}, {Op: 1, End: true, At: 2}, {Op: 1, End: true, At: 3}},
		"an end before":          {{Op: 1, At: 2}, {Op: 1, End: true, At: 1}},
	} {
		if _, err := assemble(1, events); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
