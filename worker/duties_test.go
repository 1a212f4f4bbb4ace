package worker

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A sweep is due each minute, for as long as the queue is worked.
func TestSweepIsDueEachMinute(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(rdb, "", redistest.Name(t))
	q := newQueue(w, s, s, 1, nil)
	for i := range 3 {
		before := q.keeper.swept
		if q.keeper.sweep(context.Background()); !q.keeper.swept.After(before) {
			t.Errorf("sweep %d was not made", i+1)
		}
		last := q.keeper.swept
		if q.keeper.sweep(context.Background()); q.keeper.swept != last {
			t.Errorf("sweep %d was made twice", i+1)
		}
		q.keeper.swept = time.Now().Add(-sweepEvery)
	}
}

// What is kept of jobs that have ended is as the newest Config says, until an operator changes it, and is there again after Redis has lost it.
func TestRetentionOfConfig(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := store.New(rdb, "", redistest.Name(t))
	var said strings.Builder
	start := func(cfg Queue) *queue {
		t.Helper()
		w, err := New(rdb, Config{Queues: Queues{s.Name(): cfg}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(w, s, s, 1, nil)
		for range 2 {
			q.keeper.swept = time.Time{}
			q.keeper.sweep(t.Context())
		}
		return q
	}
	has := func(retention, completed signalbox.Retention) {
		t.Helper()
		settings, err := s.Settings().Read(t.Context())
		if err != nil || settings.Retention != retention || settings.Completed != completed {
			t.Errorf("the queue has %+v and %+v, want %+v and %+v: %v", settings.Retention, settings.Completed, retention, completed, err)
		}
	}
	two, three := signalbox.Retention{Jobs: 2, Bytes: 1000, Age: time.Hour}, signalbox.Retention{Jobs: 3, Bytes: 1000, Age: time.Hour}
	nearly := two
	nearly.Age += time.Nanosecond
	if start(Queue{}).handlers.keeps.Load() {
		t.Error("completed jobs are kept, and nobody has asked for it")
	}
	if !start(Queue{Retention: nearly, CompletedRetention: nearly}).handlers.keeps.Load() || !start(Queue{}).handlers.keeps.Load() {
		t.Error("completed jobs aren't kept, as a Config asks for")
	}
	start(Queue{Retention: two, CompletedRetention: two})
	if said.Len() > 0 {
		t.Errorf("the log has %s", said.String())
	}
	has(two, two)
	q := start(Queue{Retention: three, CompletedRetention: three})
	has(three, three)
	if got := said.String(); strings.Count(got, "a new setting of Config") != 2 || !strings.Contains(got, `field=Retention config="3 jobs, 1000 bytes, for 1h0m0s" queue_has="3 jobs, 1000 bytes, for 1h0m0s" before="2 jobs, 1000 bytes, for 1h0m0s"`) {
		t.Errorf("the log has %s", got)
	}
	if err := errors.Join(s.Settings().SetCompleted(t.Context(), signalbox.Retention{}), s.Settings().SetRetention(t.Context(), two)); err != nil {
		t.Fatal(err)
	}
	if start(Queue{Retention: three, CompletedRetention: three}).handlers.keeps.Load() {
		t.Error("completed jobs are kept, and an operator has ended it")
	}
	has(two, signalbox.Retention{})
	// Redis loses it. The worker that runs notices, and says so once.
	said.Reset()
	if err := rdb.Del(t.Context(), "signalbox:{default:"+s.Name()+"}:settings").Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		q.keeper.swept = time.Time{}
		q.keeper.sweep(t.Context())
	}
	has(three, three)
	if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `fields="Retention, CompletedRetention"`) {
		t.Errorf("the log has %s", got)
	}
	for field, cfg := range map[string]Queue{"Retention": {Retention: signalbox.Retention{Jobs: -1}}, "CompletedRetention": {CompletedRetention: signalbox.Retention{Jobs: -1}}} {
		if _, err := New(rdb, Config{Queues: Queues{"q": cfg}}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), `worker.Config.Queues["q"]`) {
			t.Errorf("%s: New = %v", field, err)
		}
	}
}

// A sweep continues until all surplus jobs are gone.
func TestSweepDropsAll(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := store.New(rdb, "", redistest.Name(t))
	w, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	dead := make([]redis.Z, 1200)
	for i := range dead {
		dead[i] = redis.Z{Score: 1, Member: strconv.Itoa(i)}
	}
	key := "signalbox:{default:" + s.Name() + "}:dead"
	if err := rdb.ZAdd(t.Context(), key, dead...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.HSet(t.Context(), "signalbox:{default:"+s.Name()+"}:settings", "layout", layout.Number).Err(); err != nil {
		t.Fatal(err)
	}
	newQueue(w, s, s, 1, nil).keeper.sweep(t.Context())
	if n := rdb.ZCard(t.Context(), key).Val(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// If nobody has ever put a job into a queue, the log names the queue once, a minute after the worker's start. Other queues are not named.
func TestQueueThatNobodyUses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, used := range map[string]bool{"unused": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said strings.Builder
			w, err := New(rdb, Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
			if err != nil {
				t.Fatal(err)
			}
			s := store.New(rdb, "", redistest.Name(t))
			q := newQueue(w, s, s, 1, nil)
			if used {
				item, err := store.NewItem(&signalbox.Job{ID: "a", Kind: "k"}, store.When{})
				if err != nil {
					t.Fatal(err)
				}
				lane := s.NewLane()
				lane.Next()
				if _, err := s.Enqueue(t.Context(), lane, []store.Item{item}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 {
				q.keeper.sweep(t.Context())
				q.keeper.swept = q.keeper.swept.Add(-sweepEvery)
				want := 0
				if i > 0 && !used {
					want = 1
				}
				if n := strings.Count(said.String(), "nobody has ever put a job into this queue"); n != want {
					t.Errorf("after %d minutes %d lines, want %d: %s", i, n, want, said.String())
				}
			}
		})
	}
}

// If renewals are rare, an idle queue looks now and then for jobs whose wake-up was lost.
func TestRarelyRenewed(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]bool{
		minSessionTTL: false, DefaultSessionTTL: false, DefaultSessionTTL + 3: true, time.Minute: true, maxSessionTTL: true,
	} {
		if got := rarelyRenewed(ttl); got != want {
			t.Errorf("with a TTL of %v: %v, want %v", ttl, got, want)
		}
	}
}

// Only the session that claims can look for work. A call that settles for a lost session doesn't count as a look.
func TestLookIsNotForALostSession(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	lost := &session{id: store.NewID(), unconfirmed: 1, completed: []store.Settlement{{ID: "a", Token: 1, Outcome: store.Completed}}}
	q.sessions = append([]*session{lost}, q.sessions...)
	q.dispatch.unsent = 1
	q.dispatch.emptied = q.dispatch.hints
	q.dispatch.probe = true
	if c := q.claimer.prepare(); c == nil || c.session != lost || len(c.Settle) != 1 {
		t.Fatalf("there is no call for the lost session: %+v", c)
	}
	if c := q.claimer.prepare(); c == nil || c.session != q.session {
		t.Errorf("nobody looks: %+v", c)
	}
}
