package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// soundGroups fills a queue with jobs of groups. Of serial groups s1 runs, r1 waits for its retry, t1 was returned, and one job of each waits for
// them. Jobs of two other groups have turns.
func (r *rig) soundGroups() {
	r.t.Helper()
	r.open()
	for _, put := range []struct {
		key string
		o   Outcome
	}{{"sr", Delay}, {"st", Return}, {"ss", ""}} {
		id := put.key[1:]
		r.putIn(put.key, id+"1", id+"2")
		got := r.call(ClaimRequest{Want: 1}).Deliveries
		equal(r.t, "claimed", ids(got), []string{id + "1"})
		if put.o == "" {
			break
		}
		s := settlement(got[0], put.o)
		s.Delay = time.Hour
		r.settled(s)
		if put.o == Return { // it waits at the head of its list; the next claims are for others
			r.must(r.rdb.RPopLPush(bg, r.keys.ReadyNormal, r.keys.Prefix+"aside").Err())
		}
	}
	r.must(r.rdb.RPopLPush(bg, r.keys.Prefix+"aside", r.keys.ReadyNormal).Err())
	r.putIn("ga", "a1", "a2")
	r.enqueued(r.grouped("b1", "gb", When{}, signalbox.PriorityLow))
	r.put("plain")
}

func testDoctorRepairsGroups(t *testing.T, all *rig) {
	set := func(key, value string) func(r *rig) error {
		return func(r *rig) error { return r.rdb.HSet(bg, r.keys.Groups, key, value).Err() }
	}
	turn := func(score float64, line string) func(r *rig) error {
		return func(r *rig) error { return r.rdb.ZAdd(bg, r.keys.Turns, redis.Z{Score: score, Member: line}).Err() }
	}
	const classes = 1 << 50
	testPlanted(t, all, []planted{
		{name: "no turn", want: []facts.Fault{facts.WrongTurn}, differ: []string{"turns"}, spoil: func(r *rig) error {
			return r.rdb.ZRem(bg, r.keys.Turns, "1ga").Err()
		}},
		{name: "a turn of an empty line", want: []facts.Fault{facts.WrongTurn}, spoil: turn(classes+7, "1gc")},
		{name: "a turn of a blocked line", want: []facts.Fault{facts.WrongTurn}, spoil: turn(classes+7, "1ss")},
		{name: "a turn of another class", want: []facts.Fault{facts.WrongTurn}, differ: []string{"turns"}, spoil: turn(7, "1ga")},
		{name: "no state", want: []facts.Fault{facts.WrongTurn}, spoil: func(r *rig) error { return r.rdb.HDel(bg, r.keys.Groups, "ga").Err() }},
		{name: "no state of one that is held", want: []facts.Fault{facts.WrongTurn, facts.WrongHolders}, spoil: func(r *rig) error { return r.rdb.HDel(bg, r.keys.Groups, "ss").Err() }},
		{name: "a state that can't be read", want: []facts.Fault{facts.WrongTurn, facts.WrongHolders}, spoil: set("ss", "x")},
		{name: "kept for nothing", want: []facts.Fault{facts.WrongTurn}, spoil: set("gz", "...0")},
		{name: "blocked, and held by nobody", want: []facts.Fault{facts.WrongTurn}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.ZRem(bg, r.keys.Turns, "1ga").Err(), r.rdb.HSet(bg, r.keys.Groups, "ga", ".b.0").Err())
		}, differ: []string{"turns"}},
		{name: "held by more than there are", want: []facts.Fault{facts.WrongHolders}, spoil: set("ss", ".b.2")},
		{name: "held by fewer than there are", want: []facts.Fault{facts.WrongHolders}, spoil: set("ga", ".t.3")},
		{name: "the holder runs", want: []facts.Fault{facts.WrongTurn, facts.WrongHolders}, spoil: set("ss", ".b.0")},
		{name: "the holder is due", want: []facts.Fault{facts.WrongTurn, facts.WrongHolders}, spoil: set("sr", ".b.0")},
		{name: "the holder is ready", want: []facts.Fault{facts.WrongTurn, facts.WrongHolders}, spoil: set("st", ".b.0")},
		{name: "the holder is gone", want: []facts.Fault{facts.WrongHolders}, differ: []string{"groups", "turns", "inflight:s1", "jobs"}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.HDel(bg, r.keys.Inflight("s1"), "s1").Err(), r.rdb.HDel(bg, r.keys.Jobs, "s1").Err())
		}},
		{name: "a place without a record", want: []facts.Fault{facts.BadMember}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Lined, redis.Z{Member: fmt.Sprintf("1ga\x01%016d%s", 7, "nobody")}).Err()
		}},
		{name: "another place of a job", want: []facts.Fault{facts.BadMember}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Lined, redis.Z{Member: fmt.Sprintf("1ga\x01%016d%s", 7, "a1")}).Err()
		}},
		{name: "no places, lines and groups", want: []facts.Fault{facts.BadMember, facts.BadMember, facts.BadMember}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.ZAdd(bg, r.keys.Lined, redis.Z{Member: "x"}).Err(), turn(7, "3ga")(r), set("x", "...1")(r))
		}},
	}, (*rig).soundGroups)
}
