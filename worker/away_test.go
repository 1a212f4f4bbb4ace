package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/lock"
)

// still returns a queue that works nothing, with a session that lasts an hour.
func still(t *testing.T, slots int) *queue {
	t.Helper()
	return stillOn(t, redistest.Start(t).Client(), slots)
}

// stillOn is like still, with a client that may have no server.
func stillOn(t *testing.T, rdb redis.UniversalClient, slots int) *queue {
	t.Helper()
	w, err := New(rdb, Config{SessionTTL: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.link = newLink(w, &server.Findings{})
	s := store.New(rdb, "", redistest.Name(t))
	q := newQueue(w, s, s, slots, nil)
	listen(rdb, w.log, []*queue{q}, false)
	q.base = t.Context()
	q.keeper.claimUnder(&session{queue: q, id: store.NewID(), validity: lease.NewValidity(q.base)})
	q.session.validity.Extend(lease.Now(), time.Hour)
	q.sessions = []*session{q.session}
	return q
}

// However long the TTL, a call that failed is made again within a second and a half.
func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	for ttl, most := range map[time.Duration]time.Duration{
		minSessionTTL: 150 * time.Millisecond, DefaultSessionTTL: 1500 * time.Millisecond, maxSessionTTL: 1500 * time.Millisecond,
	} {
		pauses := newBackoff(ttl)
		for n := range 200 {
			if d := pauses.NextBackOff(); d <= 0 || d > most {
				t.Errorf("TTL %v: pause %d is %v, want at most %v", ttl, n+1, d, most)
				break
			}
		}
	}
}

// A call that took a third of the TTL or more counts as an outage: renewals may have been held up like it.
func TestSlowCallIsAnOutage(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]bool{0: false, 19 * time.Minute: false, 21 * time.Minute: true, 40 * time.Minute: true} {
		q := still(t, 1)
		now := time.Now()
		q.contact.slow(now.Add(-took), now) // of a TTL of an hour
		if got := !q.contact.outage.IsZero(); got != want {
			t.Errorf("a call of %v is an outage: %v, want %v", took, got, want)
		}
	}
}

// The first answer after an outage makes a lane look for work, also without a free slot.
func TestLookAfterAnOutage(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	hints := q.dispatch.hints
	q.contact.answered(time.Now())
	if q.dispatch.hints != hints || q.dispatch.probe {
		t.Error("an answer without an outage is a hint")
	}
	q.contact.away.Store(true)
	for range 2 {
		q.contact.answered(time.Now())
	}
	if q.dispatch.hints != hints+1 || !q.dispatch.probe {
		t.Errorf("%d hints after an outage, probe %v; want one that probes", q.dispatch.hints-hints, q.dispatch.probe)
	}
}

// A hint that comes while a claim is under way is for the next one: this one may have looked before.
func TestHintDuringAClaim(t *testing.T) {
	t.Parallel()
	q := still(t, 2)
	claim := func(during func()) {
		t.Helper()
		c := q.claimer.prepare()
		if c == nil || c.Want != 2 {
			t.Fatalf("there is no claim for two: %+v", c)
		}
		during()
		q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
	}
	claim(func() { q.hint(false) })
	claim(func() {})
	if c := q.claimer.prepare(); c != nil {
		t.Error("a claim without a hint")
	}
}

// A worker without a free slot makes a call when a job comes due: the call promotes it, and wakes a worker that has one.
func TestFullWorkerLooksForWhatIsDue(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.mu.Lock()
	q.dispatch.emptied = q.dispatch.hints
	q.slots.take(1)
	before := q.dispatch.hints
	q.armTimer(time.Now(), 0)
	q.mu.Unlock()
	probe := false
	redistest.Eventually(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		probe = q.dispatch.callable()
		return q.dispatch.hints > before
	}, "the timer goes off")
	if !probe {
		t.Error("there is no call to make")
	}
}

// Redis hangs when no call of the queue is answered. One call that takes long, while others are answered, is no outage.
func TestOneSlowCallIsNoHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &Worker{cfg: Config{SessionTTL: DefaultSessionTTL}, log: slog.New(slog.NewTextHandler(&log, nil))}
		w.link = newLink(w, &server.Findings{})
		q := newQueue(w, store.New(nil, "", "queue"), nil, 1, nil)
		time.Sleep(time.Second) // of the bubble's clock
		q.contact.waits[0].begin(q, time.Now())
		time.Sleep(time.Second)
		q.contact.answered(time.Now()) // another call
		time.Sleep(hungAfter)
		q.contact.reportHang(hungAfter)
		if q.contact.away.Load() || log.Len() > 0 {
			t.Errorf("a call took 3 s, and another was answered meanwhile: %s", &log)
		}
		q.contact.waits[lanes].begin(q, time.Now())
		time.Sleep(hungAfter)
		q.contact.reportHang(hungAfter)
		if !q.contact.away.Load() || !strings.Contains(log.String(), "Redis is away") || !strings.Contains(log.String(), "call=renew") {
			t.Errorf("nothing was answered for 2 s after a renewal was sent: %s", &log)
		}
		if strings.Contains(log.String(), "Redis is back") {
			t.Errorf("it is back without an answer: %s", &log)
		}
	})
}

// An outage lasts from the first call that failed, of whatever queue, until the last queue is served again.
func TestOutageLastsFromItsBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := newLink(&Worker{log: slog.New(slog.NewTextHandler(&log, nil))}, &server.Findings{})
		one, two := &queue{store: store.New(nil, "", "one")}, &queue{store: store.New(nil, "", "two")}
		fails := errors.New("no answer")
		for n := range 2 { // the second outage has a beginning of its own
			log.Reset()
			l.lost(one, "claim", time.Now(), fails)
			time.Sleep(20 * time.Second) // of the bubble's clock
			l.lost(two, "renew", time.Now(), fails)
			time.Sleep(5 * time.Second)
			l.back(one)
			if strings.Contains(log.String(), "Redis is back") {
				t.Errorf("outage %d: it is over for one queue, and not for the other: %s", n+1, &log)
			}
			time.Sleep(5 * time.Second)
			l.back(two)
			if strings.Count(log.String(), `"signalbox: Redis is back" after=30s`) != 1 {
				t.Errorf("outage %d: the log does not say that it lasted for 30 s: %s", n+1, &log)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// A warning whose cause goes on comes again each minute.
func TestWarningsComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said, begin, n := make(map[string]time.Time), time.Now(), 0
		for time.Since(begin) < 3*time.Minute {
			if sayAgain(said, "subject") {
				n++
			}
			time.Sleep(time.Second) // of the bubble's clock
		}
		if n != 3 {
			t.Errorf("said %d times in three minutes, want 3", n)
		}
	})
}

// An outage is over when every queue is served again, not with the first, and the log says so once.
func TestOutageIsOverForAllQueues(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	one, two := still(t, 1), still(t, 1)
	one.w.log = slog.New(slog.NewTextHandler(&log, nil))
	l := one.w.link
	for range 2 {
		log.Reset()
		down := errors.New("no answer")
		for _, q := range []*queue{one, two, one} {
			l.lost(q, "claim", time.Now(), down)
		}
		for _, q := range []*queue{two, two} {
			l.back(q)
		}
		if strings.Contains(log.String(), "Redis is back") {
			t.Errorf("a queue is not served yet:\n%s", &log)
		}
		l.back(one)
		if away, back := strings.Count(log.String(), "Redis is away"), strings.Count(log.String(), "Redis is back"); away != 1 || back != 1 {
			t.Errorf("begins %d times and ends %d times:\n%s", away, back, &log)
		}
	}
}

// While every other goroutine of a queue waits for Redis, the guard notices that the lease has ended.
func TestGuardNoticesTheLoss(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.w.cfg.SessionTTL = minSessionTTL // by which the guard looks
	q.session.validity.End(lock.ErrLost)
	ctx, cancel := context.WithCancel(t.Context())
	var guard sync.WaitGroup
	guard.Go(func() { q.w.guard(ctx, []*queue{q}) })
	defer guard.Wait()
	defer cancel()
	redistest.Eventually(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.session == nil
	}, "the session is lost")
}

// A session that was renewed after Redis had lost memory, and ends later, has not ended by that.
func TestLossIsOver(t *testing.T) {
	t.Parallel()
	for renewed, want := range map[bool]bool{false: true, true: false} {
		q := still(t, 1) // with a TTL of an hour
		s, begin := q.session, time.Now()
		s.opened, s.written = begin, begin
		if !q.memory.recall(s, &store.ClaimReply{Alive: true, Refused: []int{0}, Hints: store.Hints{At: begin.Add(time.Minute)}}) {
			t.Fatal("a delivery of a session that is alive was refused: Redis has lost memory")
		}
		if renewed {
			s.written = begin.Add(2 * time.Minute)
		}
		if got := q.memory.recall(s, &store.ClaimReply{Hints: store.Hints{At: begin.Add(5 * time.Hour)}}); got != want {
			t.Errorf("renewed after the loss: %t; that it has ended by it is %t, want %t", renewed, got, want)
		}
	}
}

// A lease that ends long after a renewal had failed, and went well again, has not ended by that failure.
func TestOldFailureIsNotBlamed(t *testing.T) {
	t.Parallel()
	for renewed, want := range map[bool]string{false: "cause=boom", true: "cause=\"no renewal was answered in time\""} {
		var log strings.Builder
		q := still(t, 1)
		q.log = slog.New(slog.NewTextHandler(&log, nil))
		s := q.session
		s.running, s.failing, s.failure = 1, true, errors.New("boom")
		if renewed {
			(&renewal{keeper: &q.keeper, session: s, start: lease.Now(), hints: store.Hints{At: time.Now()}}).prolong(time.Hour)
		}
		q.mu.Lock()
		q.keeper.lose(s)
		q.mu.Unlock()
		if !strings.Contains(log.String(), want) {
			t.Errorf("renewed after it had failed: %t; the log does not say %s: %s", renewed, want, &log)
		}
	}
}

// Only handlers that run are said to ignore that their context has ended. One whose slot is free again is not.
func TestStuckHandlersAreCounted(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	q := still(t, 2)
	q.log = slog.New(slog.NewTextHandler(&log, nil))
	s := q.session
	for _, sl := range q.slots.take(2) {
		sl.now = running(s, sl)
		sl.now.over = time.Now().Add(-DefaultStuckAfter)
	}
	q.dispatch.release(q.slots.all[0])
	s.end(lock.ErrLost)
	q.guard.reportStuck()
	if !strings.Contains(log.String(), "handlers ignore") || !strings.Contains(log.String(), "map[task:1]") {
		t.Errorf("one handler runs, and another has returned: %s", &log)
	}
}

// Middleware calls a handler again with a fresh context: only the end of that one counts then.
func TestFreshContextIsNotStuck(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]bool{"before it is reported": false, "after that": true} {
		q := still(t, 1)
		sl := q.slots.take(1)[0]
		d := running(q.session, sl)
		sl.now = d
		try := func() context.CancelFunc {
			ctx, cancel := context.WithCancel(context.Context(d))
			d.inner.Store(&ctx)
			return cancel
		}
		try()()
		q.guard.reportStuck()
		d.over = d.over.Add(-time.Hour)
		if stuck {
			q.guard.reportStuck()
		}
		end := try()
		q.guard.reportStuck()
		if !d.over.IsZero() || d.stuck || q.guard.stuck.handlers != 0 {
			t.Errorf("%s: its second context goes on, and it is stuck: %v, since %v", name, d.stuck, d.over)
		}
		end()
		q.guard.reportStuck()
		if d.over.IsZero() || time.Since(d.over) > DefaultStuckAfter || d.stuck {
			t.Errorf("%s: its second context ended now, and it is stuck: %v, since %v", name, d.stuck, d.over)
		}
	}
}

// running returns a delivery of a session in a slot.
func running(s *session, sl *slot) *delivery {
	d := &delivery{}
	d.begin(s, sl, store.Delivery{Job: &signalbox.Job{ID: "job", Kind: "task", Queue: "queue", Token: 7}}, time.Now())
	return d
}

// The end of one delivery's context is its own: neither its session nor another delivery ends. The end of the session is that of
// all, by the clock as well.
func TestContextOfADeliveryEndsAlone(t *testing.T) {
	t.Parallel()
	q := still(t, 2)
	q.session.validity.Extend(lease.Now(), time.Hour)
	slots := q.slots.take(2)
	one, other := running(q.session, slots[0]), running(q.session, slots[1])
	slots[0].now, slots[1].now = one, other
	child, cancel := context.WithCancel(context.WithValue(one, phaseKey{}, 1))
	defer cancel()
	one.own.End(lock.ErrTaken)
	if one.Err() == nil || !errors.Is(context.Cause(one), lock.ErrTaken) || !errors.Is(context.Cause(child), lock.ErrTaken) {
		t.Errorf("its context: %v, cause %v; a child's cause: %v", one.Err(), context.Cause(one), context.Cause(child))
	}
	if other.Err() != nil || q.session.over() {
		t.Errorf("another delivery: %v; their session has ended: %v", other.Err(), q.session.over())
	}
	q.guard.reportStuck()
	if one.over.IsZero() || !other.over.IsZero() {
		t.Error("the guard doesn't see which one has ended")
	}
	child, cancel = context.WithCancel(other)
	defer cancel()
	q.session.end(lock.ErrLost)
	if !errors.Is(context.Cause(other), lock.ErrLost) || !errors.Is(context.Cause(child), lock.ErrLost) || !errors.Is(context.Cause(one), lock.ErrTaken) {
		t.Errorf("after the session's end the causes are %v, %v and %v", context.Cause(other), context.Cause(child), context.Cause(one))
	}
}

type phaseKey struct{}

// Each outage has its errors in the log, also those that an outage within the same minute had.
func TestEachOutageHasItsErrors(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	l := newLink(&Worker{log: slog.New(slog.NewTextHandler(&log, nil))}, &server.Findings{})
	q := &queue{store: store.New(nil, "", "queue")}
	for n := range 2 {
		log.Reset()
		l.lost(q, "claim", time.Now(), errors.New("one"))
		for range 2 {
			l.lost(q, "renew", time.Now(), errors.New("another"))
		}
		l.back(q)
		if strings.Count(log.String(), "error=one") != 1 || strings.Count(log.String(), "still away\" error=another") != 1 {
			t.Errorf("outage %d: %s", n+1, &log)
		}
	}
}

// refusal is an error that Redis answers with.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// Where this worker can't renew a session, or open one, perhaps no other can: nobody's jobs are taken back then.
func TestRefusedLeaseIsAnOutage(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]bool{"renew": true, "open": true, "claim": false, "reclaim": false} {
		q := still(t, 1)
		q.contact.failed(call, time.Now(), refusal("ERR not now"))
		if got := !q.contact.outage.IsZero(); got != want {
			t.Errorf("a refused call %s holds others' jobs back: %v, want %v", call, got, want)
		}
	}
}

// A delivery that was superseded is told so, also in a call with others that nobody waits for the end of.
func TestSupersededAmongOthers(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	told := make(map[string]signalbox.Outcome)
	heard := func(id string) store.Settlement {
		d := &delivery{id: id, end: &signalbox.Settled{Asked: signalbox.OutcomeCompleted}}
		d.waiters = &handlerctx.Waiter{F: func(s signalbox.Settled) { told[id] = s.Outcome }}
		return store.Settlement{ID: id, Ref: d}
	}
	batch := []store.Settlement{{ID: "a"}, heard("b"), {ID: "c", Ref: &delivery{}}, heard("d"), heard("e")}
	q.tellSettled(batch, []int{0, 2, 3}, []int{4}, false)
	want := map[string]signalbox.Outcome{"b": signalbox.OutcomeCompleted, "d": signalbox.OutcomeSuperseded, "e": signalbox.OutcomeCancelled}
	if !maps.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// Each function that waits for an end is called once, in order, also after one that panics. The error has all panics.
func TestPanicsOfThoseThatWait(t *testing.T) {
	t.Parallel()
	var d delivery
	var heard []string
	for i := range 4 {
		d.ends.Add(func(s signalbox.Settled) {
			heard = append(heard, fmt.Sprint(i, " ", s.Outcome))
			if i%2 == 1 {
				panic(i)
			}
		})
	}
	err := tell(d.ends.Seal(), signalbox.Settled{Outcome: signalbox.OutcomeDead})
	if want := []string{"0 dead", "1 dead", "2 dead", "3 dead"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	p, ok := errors.AsType[*signalbox.PanicError](err)
	if !ok || p.Value != 1 || len(p.Stack) == 0 || len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Errorf("the error is %v, want both panics", err)
	}
}

// Errors of one cause are one kind, whatever the connection: the log says them once a minute.
func TestKindOfAnError(t *testing.T) {
	t.Parallel()
	reset := func(port int, err error) error {
		return fmt.Errorf("claim: %w", &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: os.NewSyscallError("read", err),
		})
	}
	one, same, other := reset(50001, syscall.ECONNRESET), reset(50002, syscall.ECONNRESET), reset(50001, syscall.EPIPE)
	if errorKind(one) != errorKind(same) || errorKind(one) == errorKind(other) {
		t.Errorf("kinds %q, %q and %q", errorKind(one), errorKind(same), errorKind(other))
	}
	if a, b := errorKind(refusal("MOVED 1 a:1")), errorKind(refusal("MOVED 2 b:2")); a != b || a != "MOVED" {
		t.Errorf("kinds %q and %q of what Redis answered", a, b)
	}
}
