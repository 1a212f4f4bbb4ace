package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// An idler is a session that waits to be woken, as that of a worker without jobs.
type idler struct {
	r        *rig
	session  string
	address  string
	sub      *Subscription
	messages chan Message
}

// idler opens a session and registers it to be woken.
func (r *rig) idler(session string) *idler {
	r.t.Helper()
	_, _, err := r.Sessions().Open(bg, session, time.Hour)
	r.must(err)
	_, sharded := r.rdb.(*redis.ClusterClient)
	_, rdb, err := r.Channels().Server(bg, sharded)
	r.must(err)
	i := &idler{r: r, session: session, address: r.Channels().Address(session, sharded), sub: Subscribe(bg, rdb, sharded), messages: make(chan Message, 100)}
	r.must(i.sub.Add(bg, []string{r.Channels().Control()}, []string{r.Channels().Of(session)}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := i.sub.Next(bg, func(string) bool { return true })
			if err != nil {
				return
			}
			if m.Kind != Nothing {
				i.messages <- m
			}
		}
	}()
	r.t.Cleanup(func() { i.sub.Close(); <-ended })
	i.hears(r.Channels().Control(), Subscribed)
	i.hears(r.Channels().Of(session), Subscribed)
	i.waits()
	return i
}

// waits registers the session, as one that has been idle for the shortest time.
func (i *idler) waits() {
	i.r.t.Helper()
	i.r.later()
	now, err := i.r.Now(bg)
	i.r.must(err)
	i.r.must(i.r.rdb.ZAdd(bg, i.r.keys.Idle, redis.Z{Score: float64(now.UnixMicro()), Member: i.address}).Err())
}

// registered reports whether the session waits to be woken.
func (i *idler) registered() bool {
	i.r.t.Helper()
	err := i.r.rdb.ZScore(bg, i.r.keys.Idle, i.address).Err()
	if err != redis.Nil {
		i.r.must(err)
	}
	return err == nil
}

// hears waits for a message, which is to be this.
func (i *idler) hears(channel string, kind Kind) {
	i.r.t.Helper()
	select {
	case m := <-i.messages:
		if m != (Message{Kind: kind, Channel: channel}) {
			i.r.t.Errorf("%s hears %v, want %v on %s", i.session, m, kind, channel)
		}
	case <-time.After(10 * time.Second):
		i.r.t.Fatalf("%s hears nothing, want %v on %s", i.session, kind, channel)
	}
}

// silent fails the test if a message came. One of the test's own, which comes behind it, says that none is under way.
func (i *idler) silent(what string) {
	i.r.t.Helper()
	channel := i.r.Channels().Of(i.session)
	if i.address[0] == 's' {
		i.r.must(i.r.rdb.SPublish(bg, channel, "look").Err())
	} else {
		i.r.must(i.r.rdb.Publish(bg, channel, "look").Err())
	}
	select {
	case m := <-i.messages:
		if m != (Message{Kind: Look, Channel: channel}) {
			i.r.t.Errorf("%s: %s hears %v", what, i.session, m)
			<-i.messages
		}
	case <-time.After(10 * time.Second):
		i.r.t.Fatal("the test's own message does not come")
	}
}

// listen has an idle session that wakes and takeWake look at.
func (r *rig) listen() {
	r.t.Helper()
	r.idle = r.idler("idle")
}

// wakes returns 1 if the idle session was woken, else 0.
func (r *rig) wakes() int {
	r.t.Helper()
	if r.idle.registered() {
		return 0
	}
	return 1
}

// takeWake takes the wake-up, which must be there, and waits for another.
func (r *rig) takeWake() {
	r.t.Helper()
	if r.wakes() == 0 {
		r.t.Fatal("nobody was woken")
	}
	r.idle.hears(r.Channels().Of(r.idle.session), Work)
	r.idle.waits()
}

// dropWake takes the wake-up, if there is one, and waits for another.
func (r *rig) dropWake() {
	r.t.Helper()
	if r.wakes() == 1 {
		r.takeWake()
	}
}

var idleTests = []storeTest{
	{"OldestIdleIsWoken", testOldestWoken},
	{"OneIsWokenAndOneStandsBy", testStandBy},
	{"WhoIsGoneIsPassedOver", testGonePassedOver},
	{"ClaimRegisters", testClaimRegisters},
	{"ClaimMadeAgainRegisters", testClaimAgainRegisters},
	{"FullClaimDoesNotRegister", testFullClaim},
	{"ClaimWakesAnother", testClaimWakesAnother},
	{"LeavingIsNotWoken", testLeaving},
	{"EndedSessionIsNotWoken", testEndedNotWoken},
	{"RenewTellsOfTheAddress", testRenewAddress},
	{"QuietWorker", testQuiet},
	{"StoppedWorker", testStop},
	{"DrainsAreShown", testDrains},
	{"QuietWorkersThatDied", testQuietDied},
	{"SettingsAreTold", testSettingsTold},
	{"SlotsOfAQueue", testSlots},
}

// Those that are idle are woken in turn, by the time since when.
func testOldestWoken(t *testing.T, r *rig) {
	first, second := r.idler("first"), r.idler("second")
	r.put("a")
	first.hears(r.Channels().Of("first"), Work)
	same(t, "the first is registered", first.registered(), false)
	same(t, "the second is registered", second.registered(), true)
	first.waits()
	r.put("b")
	same(t, "the first is registered", first.registered(), true)
	same(t, "the second is registered", second.registered(), false)
}

// One is woken, and the one that has been idle for the shortest time is to look whether it was there. It stays registered.
func testStandBy(t *testing.T, r *rig) {
	first, second, third := r.idler("first"), r.idler("second"), r.idler("third")
	r.put("a")
	first.hears(r.Channels().Of("first"), Work)
	third.hears(r.Channels().Of("third"), StandBy)
	second.silent("a wake-up of another")
	first.silent("after its wake-up")
	same(t, "the third is registered", third.registered(), true)
	r.put("b")
	second.hears(r.Channels().Of("second"), Work)
	third.hears(r.Channels().Of("third"), StandBy)
	third.waits()
	r.put("c") // the third alone is left, and nobody stands by
	third.hears(r.Channels().Of("third"), Work)
	third.silent("after its wake-up")
}

// A wake-up goes to the next if nobody listens at an address, however many there are of those.
func testGonePassedOver(t *testing.T, r *rig) {
	for _, session := range numbered("gone", 20) {
		i := r.idler(session)
		i.sub.Close()
	}
	last := r.idler("last")
	redistest.Eventually(t, func() bool {
		r.put(NewID())
		return !last.registered()
	}, "the one that listens is woken")
	last.hears(r.Channels().Of("last"), Work)
	same(t, "addresses that are left", r.rdb.ZCard(bg, r.keys.Idle).Val(), 0)
}

// address returns that of the rig's session, which nobody listens at.
func (r *rig) address() string {
	_, sharded := r.rdb.(*redis.ClusterClient)
	return r.Channels().Address(r.session, sharded)
}

// registered reports whether the rig's session waits to be woken.
func (r *rig) registered() bool {
	r.t.Helper()
	return (&idler{r: r, address: r.address()}).registered()
}

// A claim that gets less than it wants registers its session, and one that gets nothing. One that can't be woken isn't registered.
func testClaimRegisters(t *testing.T, r *rig) {
	r.open()
	register := func(what string, want bool, req ClaimRequest) {
		t.Helper()
		r.must(r.rdb.Del(bg, r.keys.Idle).Err())
		reply := r.call(req)
		same(t, "registered by "+what, r.registered(), want)
		for _, d := range reply.Deliveries {
			r.settled(settlement(d, Completed))
		}
	}
	register("a claim that gets nothing", true, ClaimRequest{Want: 1, Address: r.address()})
	register("a claim without an address", false, ClaimRequest{Want: 1})
	r.put("a")
	register("a claim that gets less than it wants", true, ClaimRequest{Want: 2, Address: r.address()})
	register("a claim that wants nothing", false, ClaimRequest{Address: r.address()})
	register("a claim of an unknown session", false, ClaimRequest{Session: "unknown", Want: 1, Address: r.address()})
	r.pause()
	register("a claim while the queue is paused", true, ClaimRequest{Want: 1, Address: r.address()})
	r.layout(layout.Protocol + 1)
	register("an older release", false, ClaimRequest{Want: 1, Address: r.address()})
}

// The reply of a claim was lost, and a job has woken its session, before it is made again: it registers the session again.
func testClaimAgainRegisters(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	for _, want := range []int{2, 1} {
		req := &ClaimRequest{Session: r.session, Want: want, Address: r.address()}
		first := r.call(*req)
		r.must(r.rdb.Del(bg, r.keys.Idle).Err())
		again, err := r.Sessions().Claim(bg, r.lane, req)
		r.must(err)
		equal(t, "claimed again", ids(again.Deliveries), ids(first.Deliveries))
		same(t, "cut short", again.CutShort, first.CutShort)
		same(t, "registered again", r.registered(), want == 2)
		r.settled(settlement(first.Deliveries[0], Return))
	}
}

// A claim that gets all that it wants says so, and leaves it to the next one to register its session.
func testFullClaim(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	reply := r.call(ClaimRequest{Want: 2, Address: r.address()})
	same(t, "cut short", reply.CutShort, true)
	same(t, "more", reply.More, false)
	same(t, "registered", r.registered(), false)
	reply = r.call(ClaimRequest{Settle: []Settlement{settlement(reply.Deliveries[0], Completed)}, Address: r.address()})
	same(t, "cut short, if nothing was wanted", reply.CutShort, true)
	reply = r.call(ClaimRequest{Want: 1, Address: r.address()})
	same(t, "cut short, if nothing was there", reply.CutShort, false)
	same(t, "registered", r.registered(), true)
}

// A claim that leaves jobs wakes another session than its own, though its own has been idle for longer.
func testClaimWakesAnother(t *testing.T, r *rig) {
	own, other := r.idler("own"), r.idler("other")
	r.session = "own"
	r.put("a", "b", "c")
	own.hears(r.Channels().Of("own"), Work)
	other.hears(r.Channels().Of("other"), StandBy)
	own.waits()
	other.waits()
	reply := r.call(ClaimRequest{Want: 1, Address: own.address})
	same(t, "more", reply.More, true)
	other.hears(r.Channels().Of("other"), Work)
	own.silent("its own claim")
}

// A session that needs no more wake-ups passes on the one that it may have got: for a job that is ready, and for one whose time is
// next. It is not registered any more.
func testLeaving(t *testing.T, r *rig) {
	r.open()
	r.listen()
	leave := func(what string, wakes int) {
		t.Helper()
		r.dropWake()
		r.must(r.rdb.ZAdd(bg, r.keys.Idle, redis.Z{Score: 1, Member: r.address()}).Err())
		r.call(ClaimRequest{Address: r.address(), Leaving: true})
		same(t, "registered after it left, "+what, r.registered(), false)
		same(t, "others woken, "+what, r.wakes(), wakes)
	}
	leave("with an empty queue", 0)
	r.enqueued(r.item("later", When{After: time.Hour}, 0))
	leave("with a job whose time will come", 1)
	r.put("a")
	leave("with a job that is ready", 1)
	r.settled(settlement(r.one(), Completed))
	r.cancel("later")

	// A job that is ready, and that nobody may start for now, expires. The session had the timer for that.
	r.dropWake()
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 1})
	r.must(err)
	r.idle.hears(r.keys.Control(), Look)
	r.put("runs")
	r.one()
	r.enqueued(r.made(signalbox.Job{ID: "expires", ExpireAfter: time.Hour}, "", When{}))
	leave("with a job that will expire", 1)
	r.must(r.rdb.HSet(bg, r.keys.Settings, "paused", "1").Err())
	leave("with a job that will expire in a queue that is paused", 1)
}

// Nobody is woken for a session that was closed, or taken back.
func testEndedNotWoken(t *testing.T, r *rig) {
	closed, dead, other := r.idler("closed"), r.idler("dead"), r.idler("other")
	_, err := r.Sessions().Close(bg, "closed", false)
	r.must(err)
	_, _, err = r.Sessions().Renew(bg, "dead", 0, "")
	r.must(err)
	r.reclaim("dead")
	same(t, "the closed one is registered", closed.registered(), false)
	same(t, "the dead one is registered", dead.registered(), false)
	r.put("a")
	other.hears(r.Channels().Of("other"), Work)
}

// A renewal says whether anybody listens at the session's address, and whether the session is registered.
func testRenewAddress(t *testing.T, r *rig) {
	i := r.idler("idle")
	tells := func(address string, heard, idle bool) {
		t.Helper()
		_, hints, err := r.Sessions().Renew(bg, "idle", time.Hour, address)
		r.must(err)
		same(t, "heard", hints.Heard, heard)
		same(t, "idle", hints.Idle, idle)
	}
	tells(i.address, true, true)
	r.put("a")
	i.hears(r.Channels().Of("idle"), Work)
	tells(i.address, true, false)
	tells("", true, false)
	i.silent("renewals")
	i.sub.Close()
	redistest.Eventually(t, func() bool {
		_, hints, err := r.Sessions().Renew(bg, "idle", time.Hour, i.address)
		r.must(err)
		return !hints.Heard
	}, "the server sees that nobody listens")
}

// A worker that is to be quiet gets no jobs, and passes wake-ups on. Others get them.
func testQuiet(t *testing.T, r *rig) {
	r.session = NewSession("me")
	me := r.As("me")
	other := r.Queue
	r.Queue = me
	r.open()
	r.listen()
	same(t, "here", must2(r.Queue.Settings().Quiet(bg, "nobody", true)), [2]bool{false, false})
	r.put("a", "b")
	d := r.claim(1)[0]
	same(t, "changed, here", must2(other.Settings().Quiet(bg, "me", true)), [2]bool{true, true})
	same(t, "changed again, here", must2(other.Settings().Quiet(bg, "me", true)), [2]bool{false, true})
	made, err := r.Settings().Read(bg)
	r.must(err)
	equal(t, "quiet", made.Quiet, []string{"me"})
	r.idle.hears(r.Channels().Of("idle"), Work)
	for range 2 {
		r.idle.hears(r.Channels().Control(), Look)
	}
	r.idle.waits()
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(d, Completed)}, Want: 1, Address: r.address()})
	same(t, "refused", len(reply.Refused), 0)
	same(t, "claimed", len(reply.Deliveries), 0)
	same(t, "withheld", reply.Withheld, Withheld{Quiet: true})
	same(t, "more", reply.More, false)
	same(t, "registered", r.registered(), false)
	r.takeWake()
	_, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	same(t, "withheld of a renewal", hints.Withheld, Withheld{Quiet: true})
	same(t, "more of a renewal", hints.More, false)
	lane := r.NewLane()
	lane.Next()
	got, err := other.Sessions().Claim(bg, lane, &ClaimRequest{Session: r.session, Want: 1})
	r.must(err)
	equal(t, "claimed by another", ids(got.Deliveries), []string{"b"})
	r.settled(settlement(got.Deliveries[0], Return))
	same(t, "changed, here", must2(other.Settings().Quiet(bg, "me", false)), [2]bool{true, true})
	d = r.claim(1)[0]
	same(t, "claimed then", d.Job.ID, "b")
	same(t, "changed, here", must2(other.Settings().Quiet(bg, "me", true)), [2]bool{true, true})
	_, err = r.Sessions().Close(bg, r.session, true)
	r.must(err)
	same(t, "it is to be quiet until its session ends", r.rdb.HExists(bg, r.keys.Settings, "quiet:me").Val(), true)
	r.settled(settlement(d, Completed))
	_, err = r.Sessions().Close(bg, r.session, true)
	r.must(err)
	same(t, "and no longer", r.rdb.HExists(bg, r.keys.Settings, "quiet:me").Val(), false)
}

// A worker that is to end gets no jobs, also of a queue that is paused, until its session ends. Nothing takes that back.
func testStop(t *testing.T, r *rig) {
	r.session = NewSession("me")
	other := r.Queue
	r.Queue = r.As("me")
	r.open()
	r.put("a")
	same(t, "here", must2(other.Settings().Stop(bg, "nobody")), [2]bool{false, false})
	same(t, "changed, here", must2(other.Settings().Quiet(bg, "me", true)), [2]bool{true, true})
	for _, changed := range []bool{true, false} {
		same(t, "changed, here", must2(other.Settings().Stop(bg, "me")), [2]bool{changed, true})
	}
	same(t, "a quiet worker goes on to end", must2(other.Settings().Quiet(bg, "me", true)), [2]bool{false, true})
	made, err := other.Settings().Read(bg)
	r.must(err)
	equal(t, "quiet", made.Quiet, []string{"me"})
	equal(t, "stopping", made.Stopping, []string{"me"})
	for _, paused := range []bool{false, true} {
		if paused {
			r.pause()
		}
		reply := r.call(ClaimRequest{Want: 1})
		same(t, "claimed", len(reply.Deliveries), 0)
		same(t, "withheld", reply.Withheld, Withheld{Quiet: true, Stop: true})
		_, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
		r.must(err)
		same(t, "withheld of a renewal", hints.Withheld, Withheld{Quiet: true, Stop: true})
	}
	changed, here, err := other.Settings().Quiet(bg, "me", false)
	if changed || !here || !errors.Is(err, settings.ErrStopping) {
		t.Errorf("to take jobs again: %v, %v, %v", changed, here, err)
	}
	made, err = other.Settings().Read(bg)
	r.must(err)
	equal(t, "stopping", made.Stopping, []string{"me"})
	_, err = r.Sessions().Close(bg, r.session, true)
	r.must(err)
	made, err = other.Settings().Read(bg)
	r.must(err)
	same(t, "stopping after its end", len(made.Stopping)+len(made.Quiet), 0)
}

// A worker that drains says so with its calls, for tools. Nobody has asked it to stop: so what it said goes with its session, also if others take back its
// jobs, and when it runs again.
func testDrains(t *testing.T, r *rig) {
	r.session = NewSession("me")
	other := r.Queue
	r.Queue = r.As("me")
	stopping := func(what string, want ...string) {
		t.Helper()
		made, err := other.Settings().Read(bg)
		r.must(err)
		equal(t, "stopping "+what, made.Stopping, want)
		equal(t, "quiet "+what, made.Quiet, want)
	}
	drains := func() []Delivery {
		t.Helper()
		r.open()
		r.put("a")
		list := r.claim(1)
		stopping("before it drains")
		r.call(ClaimRequest{Leaving: true})
		stopping("while it drains", "me")
		return list
	}
	d := drains()[0]
	if changed, here, err := other.Settings().Quiet(bg, "me", false); changed || !here || !errors.Is(err, settings.ErrStopping) {
		t.Errorf("to take jobs again: %v, %v, %v", changed, here, err)
	}
	r.settled(settlement(d, Completed))
	_, err := r.Sessions().Close(bg, r.session, true)
	r.must(err)
	stopping("after its end")

	r.session = NewSession("me")
	drains()
	r.expire()
	r.reclaim(r.session)
	stopping("after its death")

	r.session = NewSession("me")
	drains()
	r.session = NewSession("me")
	alive, hints, err := r.Sessions().Open(bg, r.session, time.Minute)
	r.must(err)
	same(t, "alive", alive, true)
	same(t, "withheld of a new run", hints.Withheld, Withheld{})
	stopping("in a new run")

	same(t, "changed, here", must2(other.Settings().Stop(bg, "me")), [2]bool{true, true})
	r.call(ClaimRequest{Leaving: true})
	_, hints, err = r.Sessions().Open(bg, NewSession("me"), time.Minute)
	r.must(err)
	same(t, "withheld of one that was asked to stop", hints.Withheld, Withheld{Quiet: true, Stop: true})
}

func must2(a, b bool, err error) [2]bool {
	if err != nil {
		panic(err)
	}
	return [2]bool{a, b}
}

// What is said of a worker that died is forgotten, a day later, when another is to be quiet.
func testQuietDied(t *testing.T, r *rig) {
	r.session = NewSession("me")
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	for worker, age := range map[string]time.Duration{"gone": 25 * time.Hour, "away": 23 * time.Hour, "me": 25 * time.Hour} {
		r.must(r.rdb.HSet(bg, r.keys.Settings, "quiet:"+worker, now.Add(-age).UnixMicro()).Err())
		r.must(r.rdb.HSet(bg, r.keys.Settings, "quiet:stopped-"+worker, fmt.Sprintf("stop %d", now.Add(-age).UnixMicro())).Err())
	}
	r.must(r.rdb.HSet(bg, r.keys.Settings, "quiet:odd", "x").Err())
	same(t, "changed, here", must2(r.Settings().Quiet(bg, "me", true)), [2]bool{false, true})
	made, err := r.Settings().Read(bg)
	r.must(err)
	equal(t, "quiet", made.Quiet, []string{"away", "me", "stopped-away"})
	equal(t, "stopping", made.Stopping, []string{"stopped-away"})
}

// All workers of a queue hear that its settings have changed.
func testSettingsTold(t *testing.T, r *rig) {
	first, second := r.idler("first"), r.idler("second")
	for what, change := range map[string]func() (bool, error){
		"a pause":  func() (bool, error) { return r.Settings().Pause(bg) },
		"a resume": func() (bool, error) { return r.Settings().Resume(bg) },
		"slots":    func() (bool, error) { return r.Settings().SetSlots(bg, 5) },
		"no slots": func() (bool, error) { return r.Settings().SetSlots(bg, 0) },
	} {
		_, err := change()
		r.must(err)
		for _, i := range []*idler{first, second} {
			i.hears(r.Channels().Control(), Look)
			same(t, "is registered after "+what, i.registered(), true)
		}
	}
}

// The replies of claims and renewals have the slots of the settings.
func testSlots(t *testing.T, r *rig) {
	r.open()
	for _, c := range []struct {
		set     func() (bool, error)
		changed bool
		slots   int
	}{
		{func() (bool, error) { return r.Settings().SetSlots(bg, 7) }, true, 7},
		{func() (bool, error) { return r.Settings().SetSlots(bg, 7) }, false, 7},
		{func() (bool, error) { return r.Settings().SetSlots(bg, settings.MaxSlots) }, true, settings.MaxSlots},
		{func() (bool, error) { return r.Settings().SetSlots(bg, 0) }, true, 0},
		{func() (bool, error) { return r.Settings().SetSlots(bg, 0) }, false, 0},
		{func() (bool, error) { return true, r.rdb.HSet(bg, r.keys.Settings, "slots", "many").Err() }, true, 0},
		{func() (bool, error) { return true, r.rdb.HSet(bg, r.keys.Settings, "slots", settings.MaxSlots+1).Err() }, true, 0},
	} {
		changed, err := c.set()
		r.must(err)
		same(t, "changed", changed, c.changed)
		same(t, "slots of a claim", r.call(ClaimRequest{}).Slots, c.slots)
		_, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
		r.must(err)
		same(t, "slots of a renewal", hints.Slots, c.slots)
		made, err := r.Settings().Read(bg)
		r.must(err)
		same(t, "slots of the settings", made.Slots, c.slots)
	}
}
