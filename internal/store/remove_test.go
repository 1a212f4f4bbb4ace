package store

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// kinds returns what reasons there are, sorted.
func kinds(reasons []Reason) []string {
	all := []string{}
	for _, r := range reasons {
		all = append(all, string(r.What))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// used puts a job in and has it done, and ends the session. Nothing keeps the queue then.
func (r *rig) used() {
	r.t.Helper()
	r.session = "s" + NewID()
	r.open()
	r.put(NewID())
	r.settled(settlement(r.one(), Completed))
	_, err := r.Sessions().Close(bg, r.session, false)
	r.must(err)
}

func (r *rig) removed(how Removal) []string {
	r.t.Helper()
	reasons, err := r.Presence().Remove(bg, how)
	r.must(err)
	return kinds(reasons)
}

// isListed reports whether the registry has the queue.
func (r *rig) isListed() bool {
	r.t.Helper()
	listed, err := r.rdb.SIsMember(bg, r.keys.Registry, r.Name()).Result()
	r.must(err)
	return listed
}

func onServerAndCluster(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Run("server", func(t *testing.T) { t.Parallel(); test(t, redistest.Start(t).Client()) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); test(t, redistest.Cluster(t).Client()) })
}

// A queue that is empty and unused goes, with all that doesn't expire by itself, and is there anew with its next job.
func TestRemove(t *testing.T) {
	t.Parallel()
	onServerAndCluster(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newQueue(t, rdb)
		r.used()
		r.must(r.Presence().Register(bg))
		r.must(r.rdb.Set(bg, r.keys.Reporter, "me", time.Minute).Err())
		before := r.dump()
		equal(t, "a look", r.removed(Removal{DryRun: true}), nil)
		r.unchanged("a look", before)
		equal(t, "reasons", r.removed(Removal{}), nil)
		r.must(r.Presence().Unlist(bg))
		for key := range r.dump() {
			if !strings.HasPrefix(key, "lane:") {
				t.Errorf("key %s is left", key)
			}
		}
		same(t, "listed", r.isListed(), false)
		known, err := r.Presence().Known(bg)
		r.must(err)
		same(t, "known", known, false)
		equal(t, "again", r.removed(Removal{}), nil)
		r.must(r.Presence().Unlist(bg))

		r.producer.Next()
		fates, err := r.Enqueue(bg, r.producer, []Item{r.item("a", When{}, 0)})
		r.must(err)
		same(t, "it is new", fates.Anew(), true)
		equal(t, "with a job", r.removed(Removal{}), []string{"live"})
		fates, err = r.Enqueue(bg, r.producer, []Item{r.item("a", When{}, 0)})
		r.must(err)
		same(t, "it may be new, when the call is made again", fates.Anew(), true)
		r.producer.Next()
		fates, err = r.Enqueue(bg, r.producer, []Item{r.item("b", When{}, 0)})
		r.must(err)
		same(t, "it is new for the second job", fates.Anew(), false)
	})
}

// Each thing that counts keeps a queue. Once it is gone, the queue goes.
func TestRemoveRefused(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for _, c := range []struct {
		name string
		do   func(r *rig) // has the queue kept
		want ReasonKind
		gone func(r *rig) // ends that; nil: it isn't tried
		none bool         // with Removal.Settings it keeps nothing
	}{
		{name: "ready", do: func(r *rig) { r.put("a") }, want: KeptByLive},
		{name: "scheduled", do: func(r *rig) { r.enqueued(r.item("a", When{After: time.Hour}, 0)) }, want: KeptByLive},
		{name: "of a group", do: func(r *rig) { r.enqueued(r.grouped("a", "gx", When{}, 0)) }, want: KeptByLive},
		{name: "running", do: func(r *rig) { r.open(); r.put("a"); r.one(); r.must(r.rdb.Del(bg, r.keys.Sessions).Err()) }, want: KeptByLive},
		{name: "of a session that is over", do: func(r *rig) { r.open(); r.put("a"); r.one(); r.expire() }, want: KeptByLive},
		{name: "dead", do: func(r *rig) { r.open(); r.bury(Dead, "a"); r.expire() }, want: KeptByDead},
		{name: "cancelled", do: func(r *rig) { r.open(); r.bury(Cancelled, "a"); r.expire() }, want: KeptByCancelled},
		{name: "completed", do: func(r *rig) {
			r.must(r.Settings().SetCompleted(bg, signalbox.Retention{Jobs: 9}))
			r.open()
			r.buryCompleted("a")
			r.expire()
			r.must(r.rdb.Del(bg, r.keys.Settings).Err())
			r.layout(layout.Protocol)
		}, want: KeptByCompleted},
		{name: "session", do: func(r *rig) { r.open() }, want: KeptBySession, gone: func(r *rig) { r.expire() }},
		{
			name: "tick", do: func(r *rig) { r.must(r.rdb.HSet(bg, r.keys.Cron, "e", 1).Err()) }, want: KeptByEntries,
			gone: func(r *rig) { r.must(r.rdb.Del(bg, r.keys.Cron).Err()) },
		},
		{name: "entry", do: func(r *rig) { r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")})) }, want: KeptByEntries, gone: func(r *rig) {
			r.unseen("e", time.Hour)
			_, err := r.Cron().ForgetEntry(bg, "e")
			r.must(err)
		}},
		{name: "paused entry", do: func(r *rig) { r.setting(pausedEntry+"e", "") }, want: KeptByEntries},
		{name: "reported outbox", do: func(r *rig) { r.must(r.Outboxes().Set(bg, "box", "{}", time.Minute)) }, want: KeptByOutbox},
		{name: "window", do: func(r *rig) {
			r.enqueued(r.windowed("a", time.Hour))
			r.open()
			r.settled(settlement(r.one(), Completed))
			r.expire()
		}, want: KeptByUnique},
		{
			name: "receipt", do: func(r *rig) { r.receipt(29 * day) }, want: KeptByReceipt,
			gone: func(r *rig) { r.receipt(30*day + time.Second) },
		},
		{name: "pause", do: func(r *rig) { _, err := r.Settings().Pause(bg); r.must(err) }, want: KeptByPause, gone: func(r *rig) { _, err := r.Settings().Resume(bg); r.must(err) }},
		{name: "paused group", do: func(r *rig) { _, err := r.Settings().PauseGroup(bg, "gx"); r.must(err) }, want: KeptByGroup, gone: func(r *rig) { _, err := r.Settings().ResumeGroup(bg, "gx"); r.must(err) }},
		{
			name: "quiet", do: func(r *rig) { r.setting("quiet:w", "") }, want: KeptByQuiet,
			gone: func(r *rig) {
				r.must(r.rdb.HSet(bg, r.keys.Settings, "quiet:w", r.rdb.Time(bg).Val().Add(-day-time.Second).UnixMicro()).Err())
			},
		},
		{name: "stop", do: func(r *rig) { r.setting("quiet:w", "stop ") }, want: KeptByQuiet},
		{name: "hold", do: func(r *rig) { _, err := r.Settings().HoldBack(bg, "", "", time.Hour); r.must(err) }, want: KeptByHold, gone: func(r *rig) { _, err := r.Settings().HoldBack(bg, "", "", 0); r.must(err) }},
		{name: "hold of a group", do: func(r *rig) { _, err := r.Settings().HoldBack(bg, "gx", "", time.Hour); r.must(err) }, want: KeptByHold, gone: func(r *rig) { _, err := r.Settings().HoldBack(bg, "gx", "", 0); r.must(err) }},
		{name: "rate", do: func(r *rig) {
			r.must(r.rdb.ZAdd(bg, r.keys.Rates, redis.Z{Score: float64(r.rdb.Time(bg).Val().Add(time.Hour).UnixMicro()), Member: ""}).Err())
		}, want: KeptByRate, gone: func(r *rig) {
			r.must(r.rdb.ZAdd(bg, r.keys.Rates, redis.Z{Score: 1, Member: ""}).Err())
		}},
		{name: "retention", do: func(r *rig) { r.must(r.Settings().SetRetention(bg, signalbox.Retention{Jobs: 5})) }, want: KeptBySetting, none: true},
		{name: "limits", do: func(r *rig) { _, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 2}); r.must(err) }, want: KeptBySetting, none: true},
		{name: "limits of groups", do: func(r *rig) { _, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 2}); r.must(err) }, want: KeptBySetting, none: true},
		{name: "limits of a group", do: func(r *rig) { _, err := r.Settings().SetLimitsOf(bg, "x", signalbox.Limits{Running: 2}); r.must(err) }, want: KeptBySetting, none: true},
		{name: "length", do: func(r *rig) { _, err := r.Settings().SetMaxLength(bg, 5); r.must(err) }, want: KeptBySetting, none: true},
		{name: "slots", do: func(r *rig) { _, err := r.Settings().SetSlots(bg, 5); r.must(err) }, want: KeptBySetting, none: true},
		{name: "copies", do: func(r *rig) { r.must(r.Settings().SetCopies(bg, "other")) }, want: KeptBySetting, none: true},
		{name: "unknown setting", do: func(r *rig) { r.must(r.rdb.HSet(bg, r.keys.Settings, "later", "1").Err()) }, want: KeptByUnknown},
		{name: "unknown limit", do: func(r *rig) { r.must(r.rdb.HSet(bg, r.keys.Limits, "z", "1").Err()) }, want: KeptByUnknown},
		{
			name: "fence", do: func(r *rig) {
				r.must(r.rdb.Set(bg, r.keys.Fence, r.rdb.Time(bg).Val().Add(time.Minute).UnixMicro(), 0).Err())
			}, want: KeptByFence,
			gone: func(r *rig) { r.must(r.rdb.Set(bg, r.keys.Fence, 1, 0).Err()) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, redistest.Start(t).Client())
			r.used()
			r.session = "s" + NewID()
			c.do(r)
			before := r.dump()
			equal(t, "reasons", r.removed(Removal{}), []string{string(c.want)})
			r.unchanged("a removal that is refused", before)
			if c.none {
				equal(t, "reasons without settings", r.removed(Removal{Settings: true}), nil)
				return
			}
			equal(t, "reasons without settings", r.removed(Removal{Settings: true}), []string{string(c.want)})
			if c.gone != nil {
				c.gone(r)
				equal(t, "reasons when it is over", r.removed(Removal{}), nil)
			}
		})
	}
}

// windowed is a job with a unique key for a time.
func (r *rig) windowed(id string, d time.Duration) Item {
	it := r.item(id, When{}, 0)
	it.Unique(Unique{Scope: ForWindow, Window: d, Key: UniqueKey("k", id, false)})
	return it
}

// receipt leaves the receipt of a move that ended so long ago.
func (r *rig) receipt(age time.Duration) {
	r.t.Helper()
	r.must(r.rdb.ZAdd(bg, r.keys.Receipts, redis.Z{Score: float64(r.rdb.Time(bg).Val().Add(-age).UnixMicro()), Member: "m"}).Err())
}

// A job that waited for its group's rate, as it holds the group, is gone. What says so of it stays until a claim looks, and keeps no queue.
func TestRemoveAfterAWaitForARate(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.used()
	r.must(r.rdb.HSet(bg, r.keys.Limits, "dsa", "17 a1").Err())
	equal(t, "reasons", r.removed(Removal{}), nil)
}

// A queue of a newer layout isn't removed: nobody knows what it has.
func TestRemoveNewerLayout(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.used()
	r.must(r.rdb.HSet(bg, r.keys.Settings, "layout", layout.Protocol+1).Err())
	before := r.dump()
	if _, err := r.Presence().Remove(bg, Removal{Settings: true}); err == nil || !strings.Contains(err.Error(), "layout") {
		t.Errorf("got %v", err)
	}
	r.unchanged("a removal", before)
}

// A queue is unused since a worker had it and since a job started last.
func TestRemoveUnused(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.used()
	equal(t, "soon", r.removed(Removal{Unused: time.Hour}), []string{"used"})
	ago := func(d time.Duration) int64 { return r.rdb.Time(bg).Val().Add(-d).UnixMicro() }
	r.must(r.rdb.HSet(bg, r.keys.History, "last", fmt.Sprint(ago(2*time.Hour), " 1 1 0 0 0 0 0 0 0 0 0")).Err())
	equal(t, "after a token", r.removed(Removal{Unused: time.Hour}), []string{"used"})
	r.must(r.rdb.Set(bg, r.keys.Fence, ago(2*time.Hour), 0).Err())
	equal(t, "later", r.removed(Removal{Unused: 3 * time.Hour}), []string{"used"})
	equal(t, "much later", r.removed(Removal{Unused: time.Hour}), nil)
}

// Every key of a queue is known to its removal: it is deleted, or it keeps the queue, or it expires. A key that is added must be one of these.
func TestRemoveKnowsEveryKey(t *testing.T) {
	t.Parallel()
	k := layout.KeysOf("", "q")
	fields := reflect.ValueOf(k)
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if fields.Field(i).Kind() != reflect.String || name == "Prefix" || name == "Registry" {
			continue
		}
		if key := fields.Field(i).String(); !slices.Contains(slices.Collect(maps.Values(k.Named)), key) {
			t.Errorf("%s has no name for scripts: say in remove.lua whether it keeps a queue", name)
		}
	}
	for name := range k.Named {
		if !slices.Contains(scripts.Remove.KeyNames, name) {
			t.Errorf("remove.lua doesn't delete %s: say there whether it keeps a queue", name)
		}
	}

	// What a queue has with all that there is: no key is of a kind that isn't known.
	r := unchecked(t, redistest.Start(t).Client())
	r.furnish()
	_, err := r.Outboxes().Relay(bg, "box", 7, &Batch{Place: Place{1, "n"}, Items: []Item{r.item("boxed", When{}, 0)}})
	r.must(err)
	r.must(r.Sessions().WriteStuck(bg, r.session, time.Minute, []Stuck{{ID: "a"}}))
	r.must(r.Sessions().WriteProgress(bg, r.session, time.Minute, []Progress{{ID: "a"}}))
	r.must(r.rdb.Set(bg, r.keys.Prefix+"later", "x", 0).Err())
	named, err := Named(bg, r.rdb, "", r.Name())
	r.must(err)
	found := make(map[string][]string)
	for _, key := range named[r.Name()] {
		found[key.Kind] = append(found[key.Kind], key.Of)
	}
	equal(t, "outboxes", found["outbox"], []string{"box"})
	equal(t, "sessions", found["inflight"], []string{"crashed", r.session})
	equal(t, "others", found[""], []string{""})
	for _, key := range slices.Sorted(maps.Keys(r.dump())) {
		kind, _ := r.Site().KindOf(r.keys.Prefix + key)
		ttl := r.rdb.PTTL(bg, r.keys.Prefix+key).Val()
		if expires := kind == "lane" || kind == "stuck" || kind == "progress"; expires != (ttl > 0) && key != "reporter" && key != "outboxes" {
			t.Errorf("key %s of kind %q expires in %v", key, kind, ttl)
		}
	}
	// Of several queues the same is found as of one.
	both, err := Named(bg, r.rdb, "", r.Name(), "another")
	r.must(err)
	equal(t, "of several", both[r.Name()], named[r.Name()])
}

// A job comes between the removal and the step that takes the name out of the registry: the name stays.
func TestUnlistLooksAgain(t *testing.T) {
	t.Parallel()
	onServerAndCluster(t, func(t *testing.T, rdb redis.UniversalClient) {
		for name, comes := range map[string]func(r *rig){
			"job":     func(r *rig) { r.put("a") },
			"session": func(r *rig) { r.session = "s" + NewID(); r.open() },
			"setting": func(r *rig) { _, err := r.Settings().Pause(bg); r.must(err) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newQueue(t, rdb)
				r.used()
				r.must(r.Presence().Register(bg))
				equal(t, "reasons", r.removed(Removal{}), nil)
				comes(r)
				r.must(r.Presence().Unlist(bg))
				same(t, "listed", r.isListed(), true)
			})
		}
	})
}

// A copy of the call that takes the name out of the registry, which comes late, changes nothing: the queue may be there anew.
func TestUnlistLate(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.used()
	r.must(r.Presence().Register(bg))
	late := func() string {
		t.Helper()
		reply, err := scripts.Unlist.Run(bg, r.rdb, scripts.Unlist.Keys(&r.keys, r.keys.Registry), scripts.Unlist.Args(0, scripts.Arg("queue", r.Name()), scripts.Arg("most", r.rdb.Time(bg).Val().UnixMicro()-1)))
		r.must(err)
		return reply.Str(0)
	}
	same(t, "a late call", late(), "late")
	same(t, "listed", r.isListed(), true)
}

// The reply to the call that takes the name out of the registry is lost, and the client makes the call again by itself. The first copy may still be on its
// way then, and be run when a job has come. So Unlist looks again when no copy counts any more.
func TestUnlistLostReply(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	r := newQueue(t, rdb)
	r.used()
	r.must(r.Presence().Register(bg))
	equal(t, "reasons", r.removed(Removal{}), nil)
	copied := make(chan error, 1)
	client := redistest.Start(t).Client()
	client.(*redis.Client).AddHook(hooked(func(cmd redis.Cmder, call func() error) error {
		args := cmd.Args()
		most, ok := args[len(args)-1].(*counted)
		if !ok || most.text == "0" {
			return call()
		}
		_, err := most.MarshalBinary() // the first copy
		r.must(err)
		err = call()
		time.AfterFunc(300*time.Millisecond, func() {
			r.producer.Next()
			_, err := r.Enqueue(bg, r.producer, []Item{r.item("a", When{}, 0)})
			err = errors.Join(err, r.Presence().Register(bg))
			copied <- errors.Join(err, scripts.Unlist.Lua().Run(bg, rdb, []string{r.keys.Registry}, r.Name(), most.text).Err())
		})
		return err
	}))
	r.must(r.On(client).Presence().Unlist(bg))
	r.must(<-copied)
	same(t, "listed", r.isListed(), true)
}

// What a removal leaves alone still answers for what was done before it: a call that is made again late changes nothing.
func TestRemoveLateCopies(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.session = "s" + NewID()
	r.open()
	r.put("a") // the call that comes again
	d := r.one()
	r.settled(settlement(d, Completed))
	_, err := r.Sessions().Close(bg, r.session, false, r.lane)
	r.must(err)
	equal(t, "reasons", r.removed(Removal{}), nil)

	fates, err := r.Enqueue(bg, r.producer, []Item{r.item("a", When{}, 0)})
	r.must(err)
	same(t, "the enqueue, made again", fates.Of(0), PutIn)
	same(t, "jobs", r.rdb.Exists(bg, r.keys.Jobs).Val(), 0)
	reply, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 1, Settle: []Settlement{settlement(d, Retry)}})
	r.must(err)
	same(t, "the session is there", reply.Alive, false)
	same(t, "jobs", r.rdb.Exists(bg, r.keys.Jobs).Val(), 0)

	// Tokens go on.
	r.session = "s" + NewID()
	r.open()
	r.put("b")
	if next := r.one(); next.Job.Token <= d.Job.Token {
		t.Errorf("token %d after %d", next.Job.Token, d.Job.Token)
	}
}

// Who enqueues without a scheduler lists a queue that is new, though it has done so before.
func TestAnewIsListed(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	gone := func(t *testing.T, r *rig) {
		t.Helper()
		r.must(r.rdb.SRem(bg, r.keys.Registry, r.Name()).Err())
		r.session = "s" + NewID()
		r.open()
		r.settled(settlement(r.one(), Completed))
		_, err := r.Sessions().Close(bg, r.session, false)
		r.must(err)
		r.must(r.rdb.Del(bg, r.keys.Entries, r.keys.Settings).Err())
		r.layout(layout.Protocol)
		equal(t, "reasons", r.removed(Removal{}), nil)
		r.must(r.Presence().Unlist(bg))
		same(t, "listed", r.isListed(), false)
	}
	t.Run("copies", func(t *testing.T) {
		t.Parallel()
		from, to := newQueue(t, rdb), newQueue(t, rdb)
		from.must(from.Settings().SetCopies(bg, to.Name()))
		from.open()
		c := from.Transfer().NewCopier()
		for _, id := range []string{"a", "b"} {
			from.bury(Dead, id)
			_, err := c.Copy(bg, []string{id})
			from.must(err)
			same(t, "listed", to.isListed(), true)
			gone(t, to)
		}
	})
	t.Run("an entry that is run", func(t *testing.T) {
		t.Parallel()
		r := newQueue(t, rdb)
		for range 2 {
			r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
			_, err := r.Cron().RunEntry(bg, "e", NewID())
			r.must(err)
			same(t, "listed", r.isListed(), true)
			gone(t, r)
		}
	})
	t.Run("a relay", func(t *testing.T) {
		t.Parallel()
		r := newQueue(t, rdb)
		before, anew := Place{}, []bool{true, true, false}
		for i, want := range anew {
			b := &Batch{Place: Place{int64(i + 1), "n"}, After: before, Items: []Item{r.item(NewID(), When{}, 0)}}
			fates, err := r.Outboxes().Relay(bg, "box", 1, b)
			r.must(err)
			same(t, "it is new", fates.Anew(), want)
			before = b.Place
			if i == 0 {
				gone(t, r)
			}
		}
	})
}

// setting sets a field of the settings that has the time of the server's clock behind a word.
func (r *rig) setting(field, word string) {
	r.t.Helper()
	r.must(r.rdb.HSet(bg, r.keys.Settings, field, word+strconv.FormatInt(r.rdb.Time(bg).Val().UnixMicro(), 10)).Err())
}
