package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/examples/internal/stage/stagetest"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redistest.Main(m)
}

// TestRun: each event is delivered in order, within the rate, and none during the pause. It prints what README.md says.
func TestRun(t *testing.T) {
	t.Parallel()
	stagetest.Follows(t, "redis://"+redistest.New(t).Addr(), "webhooks", run)
}

// The customers' servers notice what goes wrong.
func TestCustomer(t *testing.T) {
	t.Parallel()
	one := &customer{away: 1}
	for _, c := range []struct {
		number int
		id     string
		at     time.Duration
		taken  bool
	}{
		{1, "a", 0, false},
		{1, "a", time.Second, true},
		{1, "a", time.Second, true}, // once more
		{2, "b", time.Second, true},
	} {
		if got := one.take(c.number, c.id, c.at); got != c.taken {
			t.Errorf("event %d at %v: taken %v", c.number, c.at, got)
		}
	}
	if one.broken+one.over+one.hushed != 0 || one.last != 2 {
		t.Errorf("all is well, and it counts %+v", one)
	}
	one.take(4, "d", time.Second)
	one.take(3, "c", time.Millisecond)
	one.paused = true
	one.take(4, "e", time.Second)
	if one.broken != 1 || one.over != 1 || one.hushed != 1 || one.last != 4 {
		t.Errorf("one is out of order, one too early, one in the pause, and it counts %+v", one)
	}
}

// A result that isn't as it should be is a problem.
func TestProblem(t *testing.T) {
	t.Parallel()
	good := result{customers: 5, delivered: 150, refused: 3}
	if err := good.Problem(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(r *result){
		"an event is missing": func(r *result) { r.delivered-- },
		"nobody was away":     func(r *result) { r.refused = 0 },
		"out of order":        func(r *result) { r.orderBroken++ },
		"too many":            func(r *result) { r.overRate++ },
		"during the pause":    func(r *result) { r.whilePaused++ },
		"forged":              func(r *result) { r.forged++ },
	} {
		bad := good
		spoil(&bad)
		if bad.Problem() == nil {
			t.Errorf("%s: no problem", name)
		}
	}
}
