package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// seeding is a Config with all that a queue gets from it.
func (r *rig) seeding(to string) worker.Config {
	cfg := r.config(4)
	cfg.Queues[r.name()] = worker.Queue{
		Concurrency: 4, Limits: signalbox.Limits{Running: 40}, GroupLimits: signalbox.Limits{Running: 20},
		LimitsOf: map[string]signalbox.Limits{"a": {Running: 3}}, MaxLength: 1000, CopyDead: to,
		Retention: signalbox.Retention{Jobs: 70, Bytes: 7 << 20, Age: time.Hour}, CompletedRetention: signalbox.Retention{Jobs: 50, Bytes: 5 << 20, Age: time.Hour},
	}
	return cfg
}

// seeds returns what the queue has of such a Config.
func (r *rig) seeds() map[string]string {
	r.Helper()
	ctx := context.Background()
	all := r.rdb.HGetAll(ctx, r.key("settings")).Val()
	for field := range all {
		if field == "layout" || field == "changes" || field == "limits_of" || strings.HasPrefix(field, "of ") { // what is remembered of them
			delete(all, field)
		}
	}
	for field, limits := range r.rdb.HGetAll(ctx, r.key("limits")).Val() {
		if field[0] == 'g' {
			all["limits of "+field] = limits
		}
	}
	return all
}

// Redis loses its memory while a worker runs. All that the queue has from the worker's Config is back before the next job starts: so that job's
// death is copied, and the next one that completes is kept. The log says once what was missing.
func TestSettingsOfConfigComeBack(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	to := newRigOn(t, server.Client())
	r.start(r.failing(r.rdb, r.seeding(to.name())))
	r.addOne(signalbox.Job{Payload: []byte(`{"n":-1}`)})
	r.completed(1)
	before := r.seeds()
	if len(before) != 7 {
		t.Fatalf("the queue has %d settings of Config: %v", len(before), before)
	}
	flush(t, r, server)
	completes := r.addOne(signalbox.Job{Payload: []byte(`{"n":-1}`)})
	dead := r.addOne(dies)
	r.until("both have ended", func(c looks.Counts) bool { return c.Dead == 1 && c.Completed == 1 })
	for field, want := range before {
		if got := r.seeds()[field]; got != want {
			t.Errorf("once the first jobs have ended, %s is %q, want %q", field, got, want)
		}
	}
	if of := to.copies(1); of[dead] != 1 {
		t.Errorf("copies %v, want one of %s", of, dead)
	}
	if view, _, _, err := r.queue.Looks().Show(t.Context(), completes); err != nil || view.State != signalbox.StateCompleted {
		t.Errorf("the job that completed: %v, %v", view.State, err)
	}
	// Each is said once. They may take two lines, if Redis forgot them while the worker was about to read them again.
	fields := []string{"CompletedRetention", "CopyDead", "GroupLimits", "Limits", "LimitsOf", "MaxLength", "Retention"}
	var said []string
	redistest.Eventually(t, func() bool {
		said = said[:0]
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, "the queue's settings were missing in Redis") {
				_, list, _ := strings.Cut(line, " fields=")
				list, _, _ = strings.Cut(list, " last_seen=")
				said = append(said, strings.Split(list, ", ")...)
			}
		}
		return len(said) >= len(fields)
	}, "the log says what was missing")
	slices.Sort(said)
	if !slices.Equal(said, fields) {
		t.Errorf("said to have been missing are %v, want each of %v once:\n%s", said, fields, r.log)
	}
}
