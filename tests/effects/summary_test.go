package main

import (
	"bytes"
	"strings"
	"testing"
)

func sound() result {
	return result{
		locker: "single", size: size{increments: 10, faults: 4}, guarded: verdict{acked: 10}, unguarded: verdict{acked: 10, lost: 3},
		stops: 2, kills: 2, refused: 1, repeated: 1,
	}
}

// A run that lost or doubled something fails. One that proves nothing is invalid, and says why.
func TestProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plant func(*result)
		want  string
	}{
		{func(*result) {}, ""},
		{func(r *result) { r.unguarded.doubled = 1 }, ""}, // an uncertain end: the twin has no Once
		{func(r *result) { r.guarded.lost = 1 }, "single: 1 guarded increments were lost"},
		{func(r *result) { r.guarded.doubled = 2 }, "single: 2 guarded increments were doubled"},
		{func(r *result) { r.unguarded.lost = 0 }, "single: the run is invalid: the faults were too weak: the unguarded counter lost nothing"},
		{func(r *result) { r.refused = 0 }, "the faults were too weak: the guard refused no stale holder"},
		{func(r *result) { r.repeated = 0 }, "the faults were too weak: no increment was tried again"},
		{func(r *result) { r.guarded.acked = 9 }, "the run is invalid: 9 guarded and 10 unguarded increments were acknowledged; want 10 of each"},
		{func(r *result) { r.unguarded.acked = 9 }, "want 10 of each"},
		{func(r *result) { r.stops = 1 }, "the run is invalid: 1 stops and 2 kills; want 4 together"},
		{func(r *result) { r.stops, r.kills = 4, 0 }, "4 stops and 0 kills; want some of both"},
		{func(r *result) { r.stops, r.kills = 0, 4 }, "0 stops and 4 kills; want some of both"},
	} {
		r := sound()
		c.plant(&r)
		err := total{choices: choices{lockers: []string{"single"}}, results: []result{r}}.problem()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("problem = %v, want %q", err, c.want)
		}
	}
	if err := (total{choices: choices{lockers: lockers}, results: []result{sound()}}).problem(); err == nil || !strings.Contains(err.Error(), "1 of 5 lockers") {
		t.Errorf("with one locker of five: problem = %v", err)
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	tot := total{results: []result{sound(), sound()}}
	if line, want := tot.line(false), "effects: lockers=2 increments=20 lost=0 doubled=0 unguarded_lost=6"; line != want {
		t.Errorf("%q, want %q", line, want)
	}
	tot.results[0].guarded = verdict{acked: 10, lost: 1, doubled: 2}
	if line, want := tot.line(true), "effects: FAILED lockers=2 increments=20 lost=1 doubled=2 unguarded_lost=6"; line != want {
		t.Errorf("%q, want %q", line, want)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string // part of the complaint; "" for none
	}{
		{nil, ""},
		{[]string{"-quick", "-lock", "etcd", "-database", "sqlite", "-seed", "3"}, ""},
		{[]string{"-lock", "two"}, "-lock=two: want one of single, redlock, etcd, zookeeper, postgres"},
		{[]string{"-database", "oracle"}, "-database=oracle: want one of postgres, mariadb, sqlite"},
		{[]string{"now"}, `what is ["now"]?`},
		{[]string{"-slow"}, "-slow"},
	} {
		var out bytes.Buffer
		got, err := parse(c.args, &out)
		if (err == nil) != (c.want == "") || !strings.Contains(out.String(), c.want) {
			t.Errorf("parse(%q) = %v, %q; want %q", c.args, err, &out, c.want)
		}
		if err == nil && (len(got.lockers) != 5 || got.size.increments != long.increments) && len(c.args) == 0 {
			t.Errorf("by default: %+v", got)
		}
	}
}
