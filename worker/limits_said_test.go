package worker

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A worker whose Config says other limits than the queue has logs each of them, once. What Config leaves out, and what is equal, it doesn't log.
func TestOtherLimitsAreSaid(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := store.New(rdb, "", redistest.Name(t))
	start := func(cfg Queue) string {
		t.Helper()
		var said strings.Builder
		w, err := New(rdb, Config{Queues: Queues{s.Name(): cfg}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(w, s, s, 1, nil)
		for range 2 { // as when a session is opened again
			if !q.keeper.settings.seed(t.Context(), "open") {
				t.Fatal("the limits aren't seeded: ", said.String())
			}
		}
		return said.String()
	}
	rate := func(n int) signalbox.Limits { return signalbox.Limits{Rate: signalbox.Rate{Jobs: n}} }
	running := func(n int) signalbox.Limits { return signalbox.Limits{Running: n} }
	first := Queue{Limits: running(20), GroupLimits: rate(5), LimitsOf: map[string]signalbox.Limits{"a": running(2), "b": {Running: signalbox.NoLimit}, "c": {}}, MaxLength: 100}
	for _, cfg := range []Queue{first, first, {}, {Limits: running(20)}} {
		if said := start(cfg); said != "" {
			t.Errorf("with %+v the log has %s", cfg, said)
		}
	}
	said := start(Queue{Limits: running(30), GroupLimits: rate(6), LimitsOf: map[string]signalbox.Limits{"a": running(2), "b": running(3)}, MaxLength: 200})
	if n := strings.Count(said, "another limit than this worker's Config"); n != 4 {
		t.Errorf("%d lines:\n%s", n, said)
	}
	for _, want := range []string{
		`level=WARN`,
		`field=Limits config="30 running" queue_has="20 running"`,
		`field=GroupLimits config="6 per 1s with burst 1" queue_has="5 per 1s with burst 1"`,
		`field=MaxLength config=200 queue_has=100`,
		`config="3 running" queue_has="any number running"`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q isn't in\n%s", want, said)
		}
	}
}
