package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// fixture gives the queue what a program from before the first release has written. testdata/layout1.txt is of one without groups, unique keys and
// limits: it has no layout. testdata/layout2.txt has some. Each line is a command, whose first argument is a key of the queue.
func (r *rig) fixture(name string) {
	r.t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".txt")
	r.must(err)
	for line := range strings.Lines(string(text)) {
		var cmd []any
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
			word, err := strconv.QuotedPrefix(rest)
			r.must(err)
			rest = rest[len(word):]
			word, err = strconv.Unquote(word)
			r.must(err)
			if len(cmd) == 1 {
				word = strings.TrimSuffix(r.keys.Jobs, "jobs") + word
			}
			cmd = append(cmd, word)
		}
		r.must(r.rdb.Do(bg, cmd...).Err())
	}
}

// What is of layout 0, 1 or 2 is refused by each call that changes something, with one error, and stays as it is.
func TestOldLayouts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, old := range []struct {
		fixture string
		noted   string // in place of what the fixture has
		want    int
	}{
		{"layout1", "", 1}, {"layout1", "0", 1}, {"layout1", "1", 1}, {"layout2", "", 2},
	} {
		t.Run(old.fixture+" "+old.noted, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, rdb)
			r.fixture(old.fixture)
			if old.noted != "" {
				r.layout(old.noted)
			}
			before := r.dump()
			refused := func(what string, err error) {
				t.Helper()
				var layout *layout.Error
				if !errors.As(err, &layout) || layout.Layout != old.want || errors.Is(err, signalbox.ErrOutdated) || !strings.Contains(err.Error(), "end its jobs with that program") {
					t.Errorf("%s: %v", what, err)
				}
				r.unchanged(what, before)
			}
			r.Queue.ttl = time.Hour
			got := []Delivery{{Job: &signalbox.Job{ID: "f1", Queue: r.Name(), Token: 1}}, {Job: &signalbox.Job{ID: "f2", Queue: r.Name(), Token: 2}}}
			for _, op := range operations() {
				if strings.HasPrefix(op.name, "close") || op.name == "report" { // only who has opened a session closes it; who reports how many jobs there are is no part of the layout
					continue
				}
				err := op.call(r, got)
				switch op.name {
				case "sweep", "plan", "reclaim": // nobody waits for them: they do nothing
					r.unchanged(op.name, before)
				case "remove":
					refused(op.name, errors.Unwrap(err))
				default:
					refused(op.name, err)
				}
			}
			_, _, err := r.Sessions().Open(bg, NewSession("me"), time.Minute)
			refused("open", err)
			_, err = r.Presence().Known(bg)
			refused("a reader", err)
			for name, b := range map[string]Batch{"a relay": r.parcels(1, "a", "x"), "a void batch": r.parcels(1, "a"), "a batch again": {Place: Place{1, "a"}, Items: []Item{r.item("x", When{}, 0)}, Again: true}} {
				_, err = r.relay(b)
				refused(name, err)
			}
			_, err = r.Transfer().NewCopier().Copy(bg, []string{"copied"})
			refused("copies", err)
			if again := r.reclaim("crashed"); len(again.Returned)+len(again.Dead) > 0 {
				t.Errorf("a reclaim: %+v", again)
			}
			r.unchanged("a reclaim", before)
		})
	}
}

// A queue goes on whose settings were deleted or evicted: its counters have the layout, too. The next call that writes notes it in the settings again.
func TestSettingsAreGone(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	r.must(r.rdb.Del(bg, r.keys.Settings).Err())
	r.must(r.Site().CheckLayout(bg))
	reply := r.call(ClaimRequest{Want: 1, Settle: []Settlement{settlement(d, Completed)}})
	equal(t, "refused", reply.Refused, nil)
	same(t, "withheld", reply.Withheld, Withheld{})
	same(t, "claimed", reply.Deliveries[0].Job.ID, "b")
	r.settled(settlement(reply.Deliveries[0], Completed))
	same(t, "settings", r.rdb.Exists(bg, r.keys.Settings).Val(), 0)
	r.put("c")
	same(t, "layout", r.rdb.HGet(bg, r.keys.Settings, "layout").Val(), strconv.Itoa(layout.Number))
	same(t, "the other job", r.one().Job.ID, "c")
}

// Redis loses its memory. What a call writes then begins with the layout, or is nothing that counts as use of the queue.
func TestLayoutComesFirst(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, op := range operations() {
		r := unchecked(t, rdb)
		got := op.furnish(r)
		r.remove()
		_ = op.call(r, got) // most find nothing to do
		used, noted := r.rdb.Exists(bg, r.keys.Stats, r.keys.Settings).Val() > 0, r.rdb.HGet(bg, r.keys.Settings, "layout").Val()
		if used && noted != strconv.Itoa(layout.Number) {
			t.Errorf("after %s the queue has the layout %q: %v", op.name, noted, r.dump())
		}
	}
}

// featureKeys are those of which a plain queue has none.
func (r *rig) featureKeys() []string {
	k := &r.keys
	return []string{k.Lined, k.Turns, k.Groups, k.Running, k.Limits, k.Rates, k.Parked, k.Unique, k.Windows, k.Expires}
}

// plain reports whether claims take the queue for plain: they give more jobs than of another. It ends the jobs.
func (r *rig) plain() bool {
	r.t.Helper()
	ids := make([]string, MaxSpecial+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("plain%d", i)
	}
	r.put(ids...)
	var all []Delivery
	first := 0
	for len(all) < len(ids) {
		got := r.claim(MaxBatch)
		if len(got) == 0 {
			r.t.Fatalf("%d of %d jobs were claimed", len(all), len(ids))
		} else if first == 0 {
			first = len(got)
		}
		for _, d := range got {
			r.settled(settlement(d, Completed))
		}
		all = append(all, got...)
	}
	return first > MaxSpecial
}

// A queue that is plain to a claim becomes another before the next, by whatever brings a limit, a group, a unique key or a time to expire. The next
// claim heeds that. Once these are gone the queue is plain again.
func TestPlainBecomesSpecial(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	serial := func(r *rig, id string) Item { return r.grouped(id, "sa", When{}, signalbox.PriorityNormal) }
	expires := func(r *rig, id string) Item { return r.made(signalbox.Job{ID: id, ExpireAfter: brief}, "", When{}) }
	keyed := func(r *rig, id string) Item { return r.unique(id, id, wire.UntilStarted) }
	// one of two jobs of a serial group starts.
	one := func(r *rig, got *ClaimReply) {
		equal(r.t, "claimed", ids(got.Deliveries), []string{"a"})
		r.settled(settlement(got.Deliveries[0], Completed))
		r.settled(settlement(r.one(), Completed))
	}
	none := func(r *rig, got *ClaimReply) { equal(r.t, "claimed", ids(got.Deliveries), []string{}) }
	gone := func(r *rig, got *ClaimReply) {
		none(r, got)
		equal(r.t, "expired", late(got), []string{"a", "b"})
	}
	freed := func(r *rig, got *ClaimReply) {
		equal(r.t, "claimed", ids(got.Deliveries), []string{"a", "b"})
		same(r.t, "keys that are taken", r.rdb.Exists(bg, r.keys.Unique).Val(), 0)
		for _, d := range got.Deliveries {
			r.settled(settlement(d, Completed))
		}
	}
	dead := func(r *rig, item func(*rig, string) Item) {
		r.enqueued(item(r, "a"))
		r.settled(settlement(r.one(), Dead))
		r.enqueued(item(r, "b"))
		r.settled(settlement(r.one(), Dead))
	}
	rerun := func(r *rig) {
		answers, err := r.Do(bg, RunJobs(time.Time{}), []string{"a", "b"})
		r.must(err)
		same(r.t, "the first runs again", answers[0].Acted, Done)
	}
	sent := func(item func(*rig, string) Item) func(r *rig) {
		return func(r *rig) {
			_, err := r.relay(Batch{Place: Place{1, "a"}, Items: []Item{item(r, "a"), item(r, "b")}})
			r.must(err)
			r.later()
		}
	}
	imported := func(job func(id string) signalbox.Job) func(r *rig) {
		return func(r *rig) {
			now, err := r.Now(bg)
			r.must(err)
			var list []placement
			for _, id := range []string{"a", "b"} {
				j := job(id)
				j.ID, j.Kind, j.EnqueuedAt, j.ScheduledAt = id, "k", now, now
				list = append(list, placement{id: id, state: signalbox.StateReady, record: wire.AppendRecord(nil, &j)})
			}
			answers, err := r.Transfer().putRecords(bg, list, false)
			r.must(err)
			same(r.t, "put in", answers[0].Acted, Done)
			r.later()
		}
	}
	for name, scene := range map[string]struct {
		before func(r *rig) // the queue is plain after this
		change func(r *rig)
		next   func(r *rig, got *ClaimReply)
		undo   func(r *rig)
	}{
		"a limit": {
			change: func(r *rig) { r.must(second(r.Settings().SetLimits(bg, signalbox.Limits{Running: 1}))); r.put("a") }, next: none,
			undo: func(r *rig) {
				r.must(second(r.Settings().SetLimits(bg, signalbox.Limits{})))
				r.settled(settlement(r.one(), Completed))
			},
		},
		"a limit, of which Config says that there is none": {
			change: func(r *rig) { r.must(second(r.Settings().SetLimits(bg, signalbox.Limits{Running: 1}))); r.put("a") }, next: none,
			undo: func(r *rig) {
				r.must(second(r.Settings().SetLimits(bg, signalbox.Limits{Running: signalbox.NoLimit})))
				same(r.t, "the setting", r.rdb.HGet(bg, r.keys.Settings, "limits").Val(), "0 0 0 0")
				r.settled(settlement(r.one(), Completed))
			},
		},
		"a rate": {
			change: func(r *rig) {
				r.must(second(r.Settings().SetLimits(bg, signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Hour}})))
				r.put("a", "b")
			},
			next: func(r *rig, got *ClaimReply) {
				same(r.t, "claimed", len(got.Deliveries), 1)
				r.settled(settlement(got.Deliveries[0], Completed))
			},
			undo: func(r *rig) {
				r.must(second(r.Settings().SetLimits(bg, signalbox.Limits{})))
				r.settled(settlement(r.one(), Completed))
			},
		},
		"a limit of groups": {
			change: func(r *rig) {
				r.must(second(r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 1})))
				r.putIn("ga", "a", "b")
			}, next: one,
			undo: func(r *rig) { r.must(second(r.Settings().SetGroupLimits(bg, signalbox.Limits{}))) },
		},
		"a limit of groups, of which Config says that there is none": {
			change: func(r *rig) {
				r.must(second(r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 1})))
				r.putIn("ga", "a", "b")
			}, next: one,
			undo: func(r *rig) {
				r.must(second(r.Settings().SetGroupLimits(bg, signalbox.Limits{Rate: signalbox.Rate{Jobs: signalbox.NoLimit}})))
			},
		},
		"a maximum": {
			change: func(r *rig) { r.must(second(r.Settings().SetMaxLength(bg, 1000))) }, next: none, undo: func(r *rig) {
				same(r.t, "plain with a maximum", r.plain(), false)
				r.must(second(r.Settings().SetMaxLength(bg, 0)))
			},
		},
		"a hold": {change: func(r *rig) { r.must(second(r.Settings().HoldBack(bg, "", "", time.Hour))); r.put("a") }, next: none, undo: func(r *rig) {
			r.must(second(r.Settings().HoldBack(bg, "", "", 0)))
			r.settled(settlement(r.one(), Completed))
		}},
		"a group, enqueued":   {change: func(r *rig) { r.enqueued(serial(r, "a"), serial(r, "b")) }, next: one},
		"a group, by a relay": {change: sent(serial), next: one},
		"a group, put in":     {change: imported(func(string) signalbox.Job { return signalbox.Job{Group: "a", Serial: true} }), next: one},
		"a group, run again":  {before: func(r *rig) { dead(r, serial) }, change: rerun, next: one},
		"a group, due": {before: func(r *rig) {
			r.enqueued(r.grouped("a", "sa", When{After: time.Hour}, 0), r.grouped("b", "sa", When{After: time.Hour}, 0))
		}, change: func(r *rig) { r.makeDue("ba", "bb") }, next: one},
		"a paused group": {
			change: func(r *rig) { r.must(second(r.Settings().PauseGroup(bg, "ga"))); r.putIn("ga", "a") }, next: none,
			undo: func(r *rig) {
				r.must(second(r.Settings().ResumeGroup(bg, "ga")))
				r.settled(settlement(r.one(), Completed))
			},
		},
		"a unique key, enqueued":   {change: func(r *rig) { r.fates(keyed(r, "a"), keyed(r, "b")) }, next: freed},
		"a unique key, by a relay": {change: sent(keyed), next: freed},
		"a unique key, run again":  {before: func(r *rig) { dead(r, keyed) }, change: rerun, next: freed},
		"an expiry, enqueued":      {change: func(r *rig) { r.enqueued(expires(r, "a"), expires(r, "b")); r.later() }, next: gone},
		"an expiry, by a relay":    {change: sent(expires), next: gone},
		"an expiry, put in":        {change: imported(func(string) signalbox.Job { return signalbox.Job{ExpireAfter: brief} }), next: gone},
		"an expiry, due": {
			change: func(r *rig) {
				r.enqueued(r.made(signalbox.Job{ID: "a", ExpireAfter: time.Hour}, "", When{After: time.Hour}))
				r.makeDue("ba")
			},
			next: func(r *rig, got *ClaimReply) {
				equal(r.t, "claimed", ids(got.Deliveries), []string{"a"})
				r.settled(settlement(got.Deliveries[0], Completed))
			},
		},
		"all in one call": {
			change: func(r *rig) {
				r.enqueued(r.item("p", When{}, 0), serial(r, "a"), serial(r, "b"), expires(r, "e"), keyed(r, "u"))
				r.later()
			},
			next: func(r *rig, got *ClaimReply) {
				all := ids(got.Deliveries)
				slices.Sort(all)
				equal(r.t, "claimed", all, []string{"a", "p", "u"})
				equal(r.t, "expired", late(got), []string{"e"})
				for _, d := range got.Deliveries {
					r.settled(settlement(d, Completed))
				}
				r.settled(settlement(r.one(), Completed))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newQueue(t, rdb)
			r.open()
			if scene.before != nil {
				scene.before(r)
			}
			same(t, "keys of features", r.rdb.Exists(bg, r.featureKeys()...).Val(), 0)
			same(t, "plain before", r.plain(), true)
			r.put("first")
			runs := r.one() // until the end
			scene.change(r)
			scene.next(r, r.call(ClaimRequest{Want: 5}))
			if scene.undo != nil {
				scene.undo(r)
			}
			r.settled(settlement(runs, Completed))
			same(t, "keys of features after it", r.rdb.Exists(bg, r.featureKeys()...).Val(), 0)
			same(t, "plain after it", r.plain(), true)
		})
	}
}

// second returns the error of a call that has another result.
func second[T any](_ T, err error) error { return err }
