package worker

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// A build is a worker of a program's build: with its Config it tells the queue's settings, as it does each minute.
type build struct {
	*queue
	t    *testing.T
	said strings.Builder
}

func newBuild(t *testing.T, rdb redis.UniversalClient, s *store.Queue, cfg Queue) *build {
	t.Helper()
	b := &build{t: t}
	w, err := New(rdb, Config{Queues: Queues{s.Name(): cfg}, Logger: slog.New(slog.NewTextHandler(&b.said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	b.queue = newQueue(w, s, s, 1, nil)
	return b
}

// tells tells it twice, and returns what the log has since.
func (b *build) tells() string {
	b.t.Helper()
	b.said.Reset()
	for range 2 {
		if !b.keeper.settings.tell(b.t.Context(), "open") {
			b.t.Fatal("it can't tell: ", b.said.String())
		}
	}
	return b.said.String()
}

// What a Config changes, what it doesn't, and why not is logged, each once. What Config leaves out, and what is equal, isn't.
func TestOtherSettingsAreSaid(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := store.New(rdb, "", redistest.Name(t))
	rate := func(n int) signalbox.Limits { return signalbox.Limits{Rate: signalbox.Rate{Jobs: n}} }
	running := func(n int) signalbox.Limits { return signalbox.Limits{Running: n} }
	first := Queue{Limits: running(20), GroupLimits: rate(5), LimitsOf: map[string]signalbox.Limits{"a": running(2), "b": {Running: signalbox.NoLimit}, "c": {}}, MaxLength: 100}
	says := func(said string, lines int, all ...string) {
		t.Helper()
		if n := strings.Count(said, "\n"); n != lines {
			t.Errorf("%d lines, want %d:\n%s", n, lines, said)
		}
		for _, want := range all {
			if !strings.Contains(said, want) {
				t.Errorf("%q isn't in\n%s", want, said)
			}
		}
	}
	for _, cfg := range []Queue{first, first, {}, {Limits: running(20)}} {
		says(newBuild(t, rdb, s, cfg).tells(), 0)
	}
	second := newBuild(t, rdb, s, Queue{Limits: running(30), GroupLimits: rate(6), LimitsOf: map[string]signalbox.Limits{"a": running(2), "b": running(3)}, MaxLength: 200})
	says(second.tells(), 4, "level=INFO", "a new setting of Config",
		`field=Limits config="30 running" queue_has="30 running" before="20 running"`,
		`field=GroupLimits config="6 per 1s with burst 1" queue_has="6 per 1s with burst 1" before="5 per 1s with burst 1"`,
		`field=MaxLength config=200 queue_has=200 before=100`,
		`config="3 running" queue_has="3 running" before="any number running"`)
	old := newBuild(t, rdb, s, first)
	says(old.tells(), 4, "other workers of the queue have a newer Config", `field=Limits config="20 running" queue_has="30 running" set_by="worker `+second.w.id+`"`, "field=LimitsOf ")
	says(old.tells(), 0)
	if _, err := s.By("ann").Settings().SetLimits(t.Context(), running(7)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.By("ann").Settings().SetLimitsOf(t.Context(), "a", running(8)); err != nil {
		t.Fatal(err)
	}
	says(second.tells(), 2, "an operator has set another value", `field=Limits config="30 running" queue_has="7 running" set_by="operator ann" set_at=`, `config="2 running" queue_has="8 running" set_by="operator ann"`)
	says(second.tells(), 0)
	third := newBuild(t, rdb, s, Queue{Limits: running(31), LimitsOf: map[string]signalbox.Limits{"a": running(4)}})
	says(third.tells(), 2, "level=WARN", "has replaced what an operator had set", `field=Limits config="31 running" queue_has="31 running" before="7 running" set_by="operator ann" set_at=`,
		`config="4 running" queue_has="4 running" before="8 running" set_by="operator ann"`)
	// The reply to the call that applies a value is lost. The next one says it.
	fourth := newBuild(t, rdb, s, Queue{Limits: running(31)})
	says(fourth.tells(), 0)
	fourth.keeper.settings.q.w.cfg.Queues[s.Name()] = Queue{Limits: running(32)}
	if _, err := s.Settings().Tell(t.Context(), fourth.w.id, settings.Wanted{Limits: running(32)}); err != nil {
		t.Fatal(err)
	}
	says(fourth.tells(), 1, "a new setting of Config", `queue_has="32 running"`)
}

// A worker says that it has applied a value whose reply was lost, also if Redis' clock has stood still since another value was applied.
func TestAppliedAtOneTime(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	b := newBuild(t, rdb, store.New(rdb, "", redistest.Name(t)), Queue{})
	told := func(by string, running int) *settings.Told {
		value := fmt.Sprint(running, " running")
		return &settings.Told{Setting: "Limits", Want: value, Value: value, Counts: value, Ours: true, Set: true, By: by, At: time.UnixMicro(1), Before: "none"}
	}
	me := "worker " + b.w.id
	for i, step := range []struct {
		told *settings.Told
		says bool
	}{{told("worker other", 1), false}, {told(me, 2), true}, {told(me, 2), false}, {told(me, 3), true}, {told("worker other", 4), false}} {
		b.said.Reset()
		b.keeper.settings.say(step.told)
		if got := strings.Contains(b.said.String(), "a new setting of Config"); got != step.says {
			t.Errorf("step %d: said: %v, want %v: %s", i, got, step.says, b.said.String())
		}
	}
}

// Two builds with unlike Configs don't fight in a rolling deploy, also if workers of the older one restart: the newer one's values count from its first call on.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := store.New(rdb, "", redistest.Name(t))
	cfg := func(n int) Queue {
		return Queue{
			Limits: signalbox.Limits{Running: n}, GroupLimits: signalbox.Limits{Running: n}, LimitsOf: map[string]signalbox.Limits{"a": {Running: n}},
			MaxLength: n, CopyDead: strings.Repeat("q", n), Retention: signalbox.Retention{Jobs: int64(n)}, CompletedRetention: signalbox.Retention{Jobs: int64(n)},
		}
	}
	has := func(n int) {
		t.Helper()
		got, err := s.Settings().Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		of, err := s.Settings().GroupLimits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range []int{got.Limits.Running, got.GroupLimits.Running, of["a"].Running, got.MaxLength, len(got.Copies), int(got.Retention.Jobs), int(got.Completed.Jobs)} {
			if one != n {
				t.Fatalf("the queue has %+v and %+v, want all to be %d", got, of, n)
			}
		}
	}
	old := newBuild(t, rdb, s, cfg(1))
	old.tells()
	has(1)
	young := newBuild(t, rdb, s, cfg(2))
	young.tells()
	has(2)
	for range 3 {
		for _, b := range []*build{old, newBuild(t, rdb, s, cfg(1)), young, newBuild(t, rdb, s, cfg(2))} {
			b.tells()
			has(2)
		}
	}
}
