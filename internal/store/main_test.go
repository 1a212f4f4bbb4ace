package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

func TestMain(m *testing.M) {
	// If a go-redis pool could not connect, it notices only a second later that it was closed.
	redistest.Main(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var bg = context.Background()

// A rig is a queue with a session and two lanes, for one test. A call that fails makes the test fail.
type rig struct {
	*Queue
	t        testing.TB
	producer *Lane
	lane     *Lane // the worker's
	session  string
	idle     *idler // of listen
}

// newQueue returns a rig on a queue of its own. The queue is checked when the test ends.
func newQueue(t testing.TB, rdb redis.UniversalClient) *rig {
	t.Helper()
	r := unchecked(t, rdb)
	t.Cleanup(r.check)
	return r
}

// unchecked is like newQueue, for tests that leave a queue in disorder.
func unchecked(t testing.TB, rdb redis.UniversalClient) *rig {
	t.Helper()
	q := New(rdb, "", redistest.Name(t))
	r := &rig{Queue: q, t: t, producer: q.NewLane(), lane: q.NewLane(), session: "s1"}
	t.Cleanup(r.remove)
	return r
}

// remove deletes the queue. Otherwise it would make other tests' scans longer.
func (r *rig) remove() {
	r.t.Helper()
	keys, err := r.Site().AllKeys(bg)
	r.must(err)
	if len(keys) > 0 {
		r.must(r.rdb.Del(bg, keys...).Err())
	}
}

// onShared is newQueue on the server that all tests share.
func onShared(t testing.TB) *rig {
	t.Helper()
	return newQueue(t, redistest.Start(t).Client())
}

func (r *rig) check() {
	r.t.Helper()
	if err := check.Queue(bg, r.Site()); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// seeds returns what a seed reports: whether it has changed anything.
// tells tells what a worker's Config says. It returns what has become of it, by the names of the fields.
func (r *rig) tells(w settings.Wanted) map[string]settings.Told {
	r.t.Helper()
	all, err := r.Settings().Tell(bg, "w", w)
	r.must(err)
	of := make(map[string]settings.Told)
	for _, t := range all {
		of[t.Setting] = t
	}
	return of
}

func (r *rig) open() {
	r.t.Helper()
	alive, _, err := r.Sessions().Open(bg, r.session, time.Hour)
	r.must(err)
	if !alive {
		r.t.Fatalf("session %s is over when it is opened", r.session)
	}
}

// expire ends the lease of the session at once.
func (r *rig) expire() {
	r.t.Helper()
	_, hints, err := r.Sessions().Renew(bg, r.session, 0, "")
	r.must(err)
	redistest.Eventually(r.t, func() bool { return !r.rdb.Time(bg).Val().Before(hints.At) }, "the server's clock has not gone back")
}

func (r *rig) item(id string, when When, p signalbox.Priority) Item {
	r.t.Helper()
	it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: []byte(`"` + id + `"`), Priority: p}, when)
	r.must(err)
	return it
}

// put enqueues ready jobs of normal priority. It returns which of them are new.
func (r *rig) put(ids ...string) []bool {
	r.t.Helper()
	items := make([]Item, len(ids))
	for i, id := range ids {
		items[i] = r.item(id, When{}, signalbox.PriorityNormal)
	}
	return r.enqueued(items...)
}

func (r *rig) enqueued(items ...Item) []bool {
	r.t.Helper()
	r.producer.Next()
	fates, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	return in(fates)
}

// fates enqueues jobs. It returns a character for each job.
func (r *rig) fates(items ...Item) string {
	r.t.Helper()
	r.producer.Next()
	fates, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	return fates.list
}

// in returns which jobs of a call were put in.
func in(fates Fates) []bool {
	out := make([]bool, fates.Len())
	for i := range out {
		out[i] = fates.Of(i).In()
	}
	return out
}

// call makes a new call of the worker's lane.
func (r *rig) call(req ClaimRequest) *ClaimReply {
	r.t.Helper()
	if req.Session == "" {
		req.Session = r.session
	}
	r.lane.Next()
	reply, err := r.Sessions().Claim(bg, r.lane, &req)
	r.must(err)
	return reply
}

// claim claims up to n jobs, suspects among them.
func (r *rig) claim(n int) []Delivery {
	r.t.Helper()
	reply := r.call(ClaimRequest{Want: n, Suspects: true})
	if !reply.Alive {
		r.t.Fatalf("session %s is over", r.session)
	}
	return reply.Deliveries
}

// one claims the only job that is ready.
func (r *rig) one() Delivery {
	r.t.Helper()
	got := r.claim(2)
	if len(got) != 1 {
		r.t.Fatalf("claimed %v, want one job", ids(got))
	}
	return got[0]
}

// settle makes a call that settles and claims nothing. It returns the indices of the refused settlements.
func (r *rig) settle(s ...Settlement) []int {
	r.t.Helper()
	return r.call(ClaimRequest{Settle: s}).Refused
}

// settled is like settle, for settlements that must not be refused.
func (r *rig) settled(s ...Settlement) {
	r.t.Helper()
	if refused := r.settle(s...); len(refused) > 0 {
		r.t.Fatalf("refused %v of %v", refused, s)
	}
}

func (r *rig) reclaim(session string) Reclaimed {
	r.t.Helper()
	res, err := r.Sessions().Reclaim(session, false).Next(bg)
	r.must(err)
	return res
}

// crash ends the session, reclaims all its jobs, and opens another session.
func (r *rig) crash() (returned, dead []string) {
	r.t.Helper()
	r.expire()
	for {
		res := r.reclaim(r.session)
		returned, dead = append(returned, res.Returned...), append(dead, ids(res.Dead)...)
		if res.Left == 0 {
			break
		}
	}
	r.session = "s" + NewID()
	r.open()
	return returned, dead
}

func (r *rig) counts() looks.Counts {
	r.t.Helper()
	c, err := r.Looks().Counts(bg)
	r.must(err)
	return c
}

// later returns when the server's clock shows a later time. The clock of the embedded Redis changes every
// millisecond, and only every 100 ms if many keys make that expensive.
func (r *rig) later() {
	r.t.Helper()
	begin := r.rdb.Time(bg).Val()
	redistest.Eventually(r.t, func() bool { return r.rdb.Time(bg).Val().After(begin) }, "the clock moves on")
}

func settlement(d Delivery, o Outcome) Settlement {
	return Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: o, Prio: d.Job.Priority, Suspect: d.Job.Crashes >= SuspectAt}
}

func ids(ds []Delivery) []string {
	out := []string{}
	for _, d := range ds {
		out = append(out, d.Job.ID)
	}
	return out
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return out
}

// dump returns everything that the queue has in Redis, as text for each key without the queue's prefix. If nothing changed between two
// dumps, they are equal.
func (r *rig) dump() map[string]string {
	r.t.Helper()
	keys, err := r.Site().AllKeys(bg)
	r.must(err)
	types, values := make([]*redis.StatusCmd, len(keys)), make([]func() any, len(keys))
	_, err = r.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		for i, key := range keys {
			types[i] = p.Type(bg, key)
		}
		return nil
	})
	r.must(err)
	_, err = r.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		for i, key := range keys {
			switch types[i].Val() {
			case "string":
				cmd := p.Get(bg, key)
				values[i] = func() any { return cmd.Val() }
			case "hash":
				cmd := p.HGetAll(bg, key)
				values[i] = func() any { return cmd.Val() } // fmt prints maps in order
			case "list":
				cmd := p.LRange(bg, key, 0, -1)
				values[i] = func() any { return cmd.Val() }
			case "zset":
				cmd := p.ZRangeWithScores(bg, key, 0, -1)
				values[i] = func() any { return cmd.Val() }
			case "set":
				cmd := p.SMembers(bg, key)
				values[i] = func() any { return cmd.Val() }
			default:
				values[i] = func() any { return nil }
			}
		}
		return nil
	})
	r.must(err)
	out := make(map[string]string, len(keys))
	for i, key := range keys {
		out[key[len(r.keys.Prefix):]] = fmt.Sprintf("%s %q", types[i].Val(), fmt.Sprint(values[i]()))
	}
	return out
}

// differences lists the keys in which two dumps differ.
func differences(a, b map[string]string) (diff []string) {
	for k, v := range a {
		if b[k] != v {
			diff = append(diff, fmt.Sprintf("%s:\n   %s\n   %s", k, v, b[k]))
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok {
			diff = append(diff, fmt.Sprintf("%s:\n   nothing\n   %s", k, v))
		}
	}
	slices.Sort(diff)
	return diff
}

func (r *rig) unchanged(what string, before map[string]string) {
	r.t.Helper()
	for _, d := range differences(before, r.dump()) {
		r.t.Errorf("%s changed %s", what, d)
	}
}
