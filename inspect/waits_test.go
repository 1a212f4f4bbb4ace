package inspect_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

var timeInText = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)

// A job that waits since its queue or its group is held back, or is at a limit, says so, and which limit that is. A user that only looks can see it.
func TestWaitsForHoldsAndLimits(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	if err := admin.Do(t.Context(), viewerRule(t)...).Err(); err != nil {
		t.Fatal(err)
	}
	viewer := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "viewer", "CHANGE-ME" })
	const (
		free   = "for a free slot"
		turn   = "for a free slot, and the turn of its group"
		one    = "for the jobs of its group that run, or wait for a retry" // of a serial group
		hourly = ", 1 per 1h0m0s: the next job may start at T"
	)
	hour := func(burst int) signalbox.Limits {
		return signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Hour, Burst: burst}}
	}
	all := func(text string) map[string]string {
		return map[string]string{"plain": text, "a2": text, "b": text, "serial": text, "z2": text, "soon": "its time has come; " + text}
	}
	but := func(id, text string) map[string]string {
		m := map[string]string{"plain": free, "a2": turn, "b": turn, "serial": turn, "z2": one, "soon": "its time has come; " + free}
		if id != "" {
			m[id] = text
		}
		return m
	}
	for name, c := range map[string]struct {
		queue, groups signalbox.Limits
		of            signalbox.Limits // of the group a
		holds         bool
		hold          string // key of the group, "" for the queue
		paused        string // group
		want          map[string]string
	}{
		"nothing":           {want: but("", "")},
		"queue held":        {holds: true, want: all("the queue is held back until T")},
		"queue running":     {queue: signalbox.Limits{Running: 3}, want: all("for the queue's limit of 3 running jobs")},
		"queue has room":    {queue: signalbox.Limits{Running: 4}, want: but("", "")},
		"queue rate":        {queue: hour(3), want: all("for the queue's rate" + hourly)},
		"queue burst":       {queue: hour(4), want: but("", "")},
		"group held":        {holds: true, hold: "ga", want: but("a2", "its group is held back until T")},
		"serial held":       {holds: true, hold: "sa", want: but("serial", "its group is held back until T")},
		"group paused":      {paused: "b", want: but("b", "its group is paused")},
		"both paused":       {paused: "a", holds: true, hold: "ga", want: map[string]string{"plain": free, "a2": "its group is paused", "serial": "its group is paused", "b": turn, "z2": one, "soon": "its time has come; " + free}},
		"group running":     {groups: signalbox.Limits{Running: 1}, want: but("a2", "for its group's limit of 1 running job")},
		"group of no limit": {groups: signalbox.Limits{Running: 1}, of: signalbox.Limits{Running: signalbox.NoLimit}, want: but("", "")},
		"group rate":        {of: hour(1), want: but("a2", "for its group's rate"+hourly)},
		"group burst":       {of: hour(2), want: but("", "")},
		"rate of groups":    {groups: hour(2), want: but("", "")},
		"inherited limit":   {groups: signalbox.Limits{Running: 1}, of: hour(9), want: but("a2", "for its group's limit of 1 running job")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newStage(t, admin), t.Context()
			s.ins = inspector(t, viewer, s.namespace)
			_, err := s.Settings().SetLimits(ctx, c.queue)
			s.must(err)
			_, err = s.Settings().SetGroupLimits(ctx, c.groups)
			s.must(err)
			_, err = s.Settings().SetLimitsOf(ctx, "a", c.of)
			s.must(err)
			s.puts("run")
			s.lines("a", false, store.When{}, "a1")
			s.lines("z", true, store.When{}, "z1")
			s.claim(3)
			s.puts("plain")
			s.lines("a", false, store.When{}, "a2")
			s.lines("b", false, store.When{}, "b")
			s.lines("a", true, store.When{}, "serial")
			s.lines("z", true, store.When{}, "z2")
			s.put(signalbox.Job{ID: "soon"}, store.When{After: time.Millisecond})
			if c.holds {
				_, err = s.Settings().HoldBack(ctx, c.hold, "", time.Hour)
				s.must(err)
			}
			if c.paused != "" {
				_, err = inspector(t, admin, s.namespace).PauseGroup(ctx, s.Name(), c.paused)
				s.must(err)
			}
			begin := s.one("soon", signalbox.StateScheduled).DueAt
			redistest.Eventually(t, func() bool { now, err := s.Now(ctx); return err == nil && now.After(begin) }, "the job's time has come")
			for id, want := range c.want {
				state := signalbox.StateReady
				if id == "soon" {
					state = signalbox.StateScheduled
				}
				said := s.one(id, state).Waits
				for _, at := range timeInText.FindAllString(said, -1) {
					until, err := time.Parse("2006-01-02 15:04:05 MST", at)
					if in := time.Until(until); err != nil || in < 50*time.Minute || in > 70*time.Minute {
						t.Errorf("job %s: %s is not in an hour, %v", id, at, err)
					}
				}
				if got := timeInText.ReplaceAllString(said, "T"); got != want {
					t.Errorf("job %s waits %q, want %q", id, got, want)
				}
				if id != "plain" && id != "soon" && !strings.Contains(said, "queue") {
					said = "" // a listing doesn't know what keeps a group's jobs
				}
				for listed, err := range s.ins.Jobs(ctx, s.Name(), inspect.Filter{State: state, IDPrefix: id}) {
					if s.must(err); listed.Waits != said {
						t.Errorf("job %s is listed as waiting %q, want %q", id, listed.Waits, said)
					}
				}
			}
		})
	}
}
