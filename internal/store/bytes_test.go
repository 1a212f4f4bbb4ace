package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var bytesTests = []storeTest{
	{"ClaimIsBoundedInBytes", testClaimBytes},
	{"ClaimOfRecordsNobodyMeasured", testClaimUnmeasured},
	{"ClaimLearnsOfLargeRecords", testClaimLearns},
	{"ClaimOfLargeSuspects", testClaimLargeSuspects},
	{"LargestIsForgotten", testLargestForgotten},
	{"RetriesMakeRecordsLarger", testRecordsGrow},
	{"SettlementsAreBoundedInBytes", testSettleBytes},
}

// bytesOf returns the sum of the sizes of the deliveries' records.
func bytesOf(ds []Delivery) (n int) {
	for i := range ds {
		n += ds[i].Size()
	}
	return n
}

// largest returns the size of the largest record that claims know of.
func (r *rig) largest() string {
	r.t.Helper()
	return r.rdb.HGet(bg, r.keys.Stats, "largest").Val()
}

// drained claims up to 100 jobs in each call until none is left. It returns how many jobs each call claimed. It checks that no reply is
// larger than its limit, except with a single job, and that each call wakes another session while jobs are left.
func (r *rig) drained() (calls []int) {
	r.t.Helper()
	if r.idle == nil {
		r.listen()
	}
	for range 1000 {
		r.dropWake()
		reply := r.call(ClaimRequest{Want: 100, Suspects: true})
		n := len(reply.Deliveries)
		if b := bytesOf(reply.Deliveries); b > r.room && n > 1 {
			r.t.Errorf("a claim returned %d jobs of %d bytes", n, b)
		}
		left := r.counts().Ready > 0
		same(r.t, fmt.Sprintf("more, after %v and %d", calls, n), reply.More, left)
		same(r.t, "another is woken", r.wakes() == 1, left)
		if n == 0 {
			return calls
		}
		calls = append(calls, n)
		again, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 100, Suspects: true})
		r.must(err)
		equal(r.t, "claimed by the same call", ids(again.Deliveries), ids(reply.Deliveries))
		for part := reply.Deliveries; len(part) > 0; part = part[min(len(part), 50):] {
			var done []Settlement
			for _, d := range part[:min(len(part), 50)] {
				done = append(done, settlement(d, Completed))
			}
			r.settled(done...)
		}
	}
	r.t.Fatal("there is no end")
	return nil
}

// A claim returns as many jobs as fit into its reply, at least one, and reports that there are more.
func testClaimBytes(t *testing.T, r *rig) {
	r.open()
	for i := range 7 {
		r.bigOne(fmt.Sprint("mid", i), 300<<10)
	}
	for i := range 3 {
		r.bigOne(fmt.Sprint("max", i), wire.MaxEnvelope-100)
	}
	r.put("a", "b", "c")
	it, err := NewItem(&signalbox.Job{ID: "first", Kind: "k", Payload: make([]byte, 900<<10), Priority: signalbox.PriorityHigh}, When{})
	r.must(err)
	r.enqueued(it)
	// first leaves no room. The mids are claimed three at a time, the last one alone. The large ones are claimed in the same way, and the
	// last one has room for two small ones beside it.
	equal(t, "claimed in each call", r.drained(), []int{1, 3, 3, 1, 1, 1, 3, 1})
}

// If all producers have an older script, nobody reports how large records are. Then each record is measured.
func testClaimUnmeasured(t *testing.T, r *rig) {
	r.open()
	for _, known := range []string{"", "many", "nan", "-inf", "0x10000000000"} {
		for i := range 4 {
			r.bigOne(fmt.Sprint("big", i), 400<<10)
		}
		r.must(r.rdb.HDel(bg, r.keys.Stats, "largest").Err())
		if known != "" {
			r.must(r.rdb.HSet(bg, r.keys.Stats, "largest", known).Err())
		}
		equal(t, fmt.Sprintf("claimed with the largest %q", known), r.drained(), []int{2, 2})
	}

	// The first producer that reports sizes doesn't know the sizes of the other records.
	r.must(r.rdb.HDel(bg, r.keys.Stats, "largest").Err())
	r.put("a")
	same(t, "the largest", r.largest(), "4096")
	r.bigOne("big0", 400<<10)
	r.bigOne("big1", 400<<10)
	r.bigOne("big2", 400<<10)
	r.must(r.rdb.HDel(bg, r.keys.Stats, "largest").Err())
	r.put("b")
	same(t, "the largest of unknown ones", r.largest(), fmt.Sprint(wire.MaxRecord))
	equal(t, "claimed in each call", r.drained(), []int{3, 2})
}

// A producer with an older script works beside one with this script and reports no sizes. One claim may read too much. It reports the
// size to the next claim.
func testClaimLearns(t *testing.T, r *rig) {
	r.open()
	r.put("small")
	for i := range 6 {
		r.bigOne(fmt.Sprint("big", i), 400<<10)
	}
	r.must(r.rdb.HSet(bg, r.keys.Stats, "largest", 4096).Err())
	same(t, "claimed by the first", len(r.call(ClaimRequest{Want: 2}).Deliveries), 2)
	equal(t, "claimed by each of the others", r.drained(), []int{2, 2, 1})
}

// The size limit applies to suspects as well.
func testClaimLargeSuspects(t *testing.T, r *rig) {
	r.open()
	names := []string{"a", "b", "c", "d"}
	for _, id := range names {
		r.bigOne(id, 400<<10)
	}
	for range SuspectAt {
		r.claim(10)
		r.claim(10)
		r.crash()
	}
	same(t, "suspects", r.rdb.LLen(bg, r.keys.ReadySuspect).Val(), int64(len(names)))
	r.put("e")
	equal(t, "claimed in each call", r.drained(), []int{3, 2})
}

// When no large job is left, records are no longer measured, whatever dead jobs are kept.
func testLargestForgotten(t *testing.T, r *rig) {
	r.open()
	r.put("small")
	same(t, "the largest", r.largest(), "4096")
	r.bigOne("big", 400<<10)
	r.bigOne("bad", 500<<10)
	got := r.claim(3)
	r.call(ClaimRequest{Want: 100})
	same(t, "the largest while they run", r.largest() > "500000", true)
	r.settled(settlement(got[0], Completed), settlement(got[1], Completed), settlement(got[2], Dead))
	r.call(ClaimRequest{Want: 100})
	same(t, "the largest when they are gone", r.largest(), "4096")
	r.put("b")
	same(t, "the largest", r.largest(), "4096")
}

// A settlement that makes a record larger reports its size.
func testRecordsGrow(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	got := r.claim(2)
	s := settlement(got[0], Retry)
	var err error
	s.Record, err = got[0].Failed(1, strings.Repeat("x", 5000))
	r.must(err)
	r.settled(s, settlement(got[1], Completed))
	same(t, "the largest", r.largest(), fmt.Sprint(len(s.Record)))
}

func testSettleBytes(t *testing.T, r *rig) {
	r.open()
	large := Settlement{Outcome: Retry, Record: make([]byte, 400<<10)}
	kept := Settlement{Outcome: Delay, Size: 400 << 10}
	for what, c := range map[string]struct {
		settle []Settlement
		fit    int
	}{
		"none":                            {nil, 0},
		"one that is too large":           {[]Settlement{{Outcome: Retry, Record: make([]byte, 3<<20)}, large}, 1},
		"records that are sent":           {[]Settlement{large, large, large}, 2},
		"records that are read":           {[]Settlement{kept, large, kept}, 2},
		"records that are not touched":    {[]Settlement{large, {Outcome: Return, Size: 1 << 20}, {Outcome: Dead, Size: 1 << 20}, large}, 4},
		"arguments":                       {repeated(Settlement{Outcome: Return}, MaxBatch), (scripts.MaxArgs - 3*MaxNotes) / 6},
		"arguments with spans":            {repeated(Settlement{Outcome: Return, Span: "s"}, MaxBatch), (scripts.MaxArgs - 3*MaxNotes) / 9},
		"completed ones of usual size":    {repeated(Settlement{Outcome: Completed, Size: 10_000}, MaxBatch), MaxBatch},
		"completed ones that are large":   {repeated(Settlement{Outcome: Completed, Size: 1 << 20}, MaxBatch), 64},
		"more completed ones than go":     {repeated(Settlement{Outcome: Completed}, MaxBatch+1), MaxBatch},
		"one that is too large, and last": {[]Settlement{kept, {Outcome: Cancelled, Record: make([]byte, 3<<20)}}, 1},
	} {
		same(t, what, Fit(c.settle), c.fit)
	}
}

// repeated returns the settlement n times.
func repeated(s Settlement, n int) []Settlement {
	out := make([]Settlement, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// A queue that never had a large record pays nothing for the limit: the scripts call Redis as often as without it.
func TestSmallRecordsAreNotMeasured(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	r.put(numbered("j", MaxBatch)...)
	r.must(r.rdb.ConfigResetStat(bg).Err())
	same(t, "claimed", len(r.claim(MaxBatch)), MaxBatch)
	stats := r.rdb.Info(bg, "commandstats").Val()
	for _, command := range []string{"hstrlen", "lrange", "hvals", "hset"} {
		calls := ""
		for line := range strings.Lines(stats) {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				calls, _, _ = strings.Cut(rest, ",")
			}
		}
		if want := map[string]string{"hset": "1"}[command]; calls != want { // the grants
			t.Errorf("%s calls of %s, want %q", calls, command, want)
		}
	}
}

// Redis doesn't store the hash of a session with many jobs as a list to search from end to end, even if the session began with no jobs.
func TestLargeSessionIsAHash(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	r.put(numbered("j", 100)...)
	same(t, "claimed", len(r.claim(100)), 100)
	encoding, err := r.rdb.ObjectEncoding(bg, r.keys.Inflight(r.session)).Result()
	r.must(err)
	same(t, "encoding", encoding, "hashtable")
}

// No command of a call has more arguments than servers accept: at most 3,900.
func TestArgumentsAreBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	most := 0
	rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	rdb.AddHook(argCount{&most})
	r := newQueue(t, rdb)
	r.open()
	r.put(numbered("j", MaxBatch)...)
	got := r.claim(MaxBatch)
	var all []Settlement
	for _, d := range got {
		s := settlement(d, Retry)
		s.Span = "span"
		all = append(all, s)
	}
	n := Fit(all)
	notes := make([]Note, MaxNotes)
	for i := range notes {
		notes[i] = Note{ID: all[n+i].ID, Token: all[n+i].Token, Span: "span"}
	}
	r.call(ClaimRequest{Settle: all[:n], Notes: notes, Want: MaxBatch})
	var done []Settlement
	for _, s := range all[n:] {
		s.Outcome, s.Span = Completed, ""
		done = append(done, s)
	}
	r.call(ClaimRequest{Settle: done[:Fit(done)], Want: MaxBatch})
	for again := true; again; {
		r.expire()
		res := r.reclaim(r.session)
		again = res.Left > 0
	}
	if most < 3000 || most > 3900 {
		t.Errorf("a call had %d arguments", most)
	}
}

// TestDepthsOfManySessions: a queue with many sessions doesn't make a call with too many arguments.
func TestDepthsOfManySessions(t *testing.T) {
	t.Parallel()
	most := 0
	rdb := redistest.New(t).Client()
	rdb.AddHook(argCount{&most})
	r := unchecked(t, rdb)
	sessions := make([]redis.Z, 4500)
	for i := range sessions {
		sessions[i] = redis.Z{Score: 1e15 + float64(i), Member: "s" + strconv.Itoa(i)}
		if i%1000 == 0 {
			r.must(rdb.HSet(bg, r.keys.Inflight("s"+strconv.Itoa(i)), "a", "1", "b", "2").Err())
		}
	}
	for part := range slices.Chunk(sessions, 1000) {
		r.must(rdb.ZAdd(bg, r.keys.Sessions, part...).Err())
	}
	most = 0
	if running := r.depths().Running; running != 10 || most > 3900 {
		t.Errorf("%d jobs run, and a call had %d arguments", running, most)
	}
}

// argCount keeps the largest number of arguments in a command.
type argCount struct{ most *int }

func (argCount) DialHook(next redis.DialHook) redis.DialHook { return next }

func (argCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a argCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*a.most = max(*a.most, len(cmd.Args()))
		return next(ctx, cmd)
	}
}
