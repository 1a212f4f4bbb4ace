package web

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// minutes returns statistics of which each bucket is a minute, the last one ending at noon.
func minutes(counts ...inspect.Counts) inspect.Stats {
	s := inspect.Stats{At: noon}
	for i, c := range counts {
		s.Buckets = append(s.Buckets, inspect.Bucket{Start: noon.Add(time.Duration(i-len(counts)) * time.Minute), Duration: time.Minute, Counts: c})
	}
	return s
}

// Each rule of what is wrong, with the least that it wants, and with a little less.
func TestTroubles(t *testing.T) {
	t.Parallel()
	fails := func(done, retried, dead, expired int64) map[string]inspect.Stats {
		return map[string]inspect.Stats{"mail": minutes(inspect.Counts{Completed: done, Retried: retried, Dead: dead, Expired: expired}, inspect.Counts{Completed: done, Retried: retried, Dead: dead, Expired: expired})}
	}
	has := []string{"w"}
	for name, tc := range map[string]struct {
		queue    inspect.Queue
		stats    map[string]inspect.Stats
		workers  []inspect.Worker
		entries  []inspect.Entry
		outboxes []inspect.Outbox
		want     string // "danger" or "caution", the word, and since when; "": all is well
	}{
		"nothing":               {},
		"a fifth fails":         {stats: fails(8, 2, 0, 0), want: "caution failing 11:58"},
		"half of them fail":     {stats: fails(5, 4, 1, 0), want: "danger failing 11:58"},
		"less fail":             {stats: fails(81, 19, 0, 0)},
		"too few to tell":       {stats: fails(0, 4, 0, 0)},
		"they expired":          {stats: fails(10, 0, 10, 10)},
		"it got better":         {stats: map[string]inspect.Stats{"mail": minutes(inspect.Counts{Retried: 10}, inspect.Counts{Completed: 100})}},
		"long ago":              {stats: map[string]inspect.Stats{"mail": minutes(inspect.Counts{Retried: 99}, inspect.Counts{}, inspect.Counts{}, inspect.Counts{}, inspect.Counts{}, inspect.Counts{}, inspect.Counts{})}},
		"paused, jobs wait":     {queue: inspect.Queue{Paused: true, PausedSince: noon.Add(-time.Hour), Ready: 1, Workers: has}, want: "caution paused 11:00"},
		"paused":                {queue: inspect.Queue{Paused: true, PausedSince: noon, Workers: has}},
		"no worker":             {queue: inspect.Queue{Ready: 3, Oldest: time.Minute}, want: "danger no worker 11:59"},
		"no worker, no job":     {queue: inspect.Queue{Scheduled: 3}},
		"held back":             {queue: inspect.Queue{Ready: 1, HeldUntil: noon.Add(time.Hour), Workers: has}, want: "caution held back not known"},
		"waits, nothing ends":   {queue: inspect.Queue{Ready: 1, Oldest: 6 * time.Minute, Workers: has}, stats: fails(0, 0, 0, 0), want: "danger waits long 11:54"},
		"waits, something ends": {queue: inspect.Queue{Ready: 1, Oldest: 6 * time.Minute, Workers: has}, stats: fails(1, 0, 0, 0), want: "caution waits long 11:54"},
		"waits, not known":      {queue: inspect.Queue{Ready: 1, Oldest: 6 * time.Minute, Workers: has}, want: "caution waits long 11:54"},
		"waits a little":        {queue: inspect.Queue{Ready: 1, Oldest: 5 * time.Minute, Workers: has}},
		"full":                  {queue: inspect.Queue{Scheduled: 95, MaxLength: 100, Workers: has}, want: "caution full not known"},
		"nearly full":           {queue: inspect.Queue{Scheduled: 94, MaxLength: 100, Workers: has}},
		"stuck": {
			workers: []inspect.Worker{{ID: "w", Running: []inspect.RunningJob{{Queue: "mail", ID: "1", Stuck: &inspect.Stuck{Since: noon.Add(-time.Minute)}}}}}, want: "danger handler stuck 11:59",
		},
		"gone":          {workers: []inspect.Worker{{ID: "w", Sessions: []inspect.Session{{Queue: "mail", Until: noon.Add(-time.Second), Left: -time.Second}}}}, want: "caution worker gone 11:59"},
		"gone for long": {workers: []inspect.Worker{{ID: "w", Sessions: []inspect.Session{{Queue: "mail", Until: noon.Add(-2 * time.Minute), Left: -2 * time.Minute}}}}, want: "danger worker gone 11:58"},
		"entry gone":    {entries: []inspect.Entry{{Queue: "mail", Name: "e", Gone: true, Seen: noon.Add(-time.Hour)}}, want: "caution cron entry gone 11:00"},
		"entry given up": {
			entries: []inspect.Entry{{Queue: "mail", Name: "e", Gone: true, Seen: noon.Add(-25 * time.Hour)}, {Queue: "mail", Name: "f", Gone: true, Paused: true, Seen: noon.Add(-time.Hour)}, {Queue: "mail", Name: "g"}},
		},
		"outbox":        {outboxes: []inspect.Outbox{{Queue: "mail", ID: "o", At: noon, Lag: 2 * time.Minute}}, want: "caution outbox lags 11:58"},
		"outbox, dead":  {outboxes: []inspect.Outbox{{Queue: "mail", ID: "o", At: noon, Dead: 1}}, want: "caution outbox lags 12:00"},
		"outbox, quick": {outboxes: []inspect.Outbox{{Queue: "mail", ID: "o", At: noon, Lag: time.Minute}}},
	} {
		tc.queue.Name = "mail"
		s := &state{at: noon, queues: []inspect.Queue{tc.queue}, stats: tc.stats, workers: tc.workers, entries: tc.entries, outboxes: tc.outboxes}
		got := ""
		for _, x := range s.troubles() {
			since := "not known"
			if !x.Since.IsZero() {
				since = x.Since.Format("15:04")
			}
			got += x.Class() + " " + x.Word + " " + since
			if x.Queue != "mail" || x.About == "" || !strings.HasPrefix(x.To, "./") {
				t.Errorf("%s: %+v", name, x)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Dangers come first, and of each kind what has been so for longest.
func TestTroublesAreSorted(t *testing.T) {
	t.Parallel()
	s := &state{at: noon, queues: []inspect.Queue{
		{Name: "a", Paused: true, PausedSince: noon.Add(-time.Minute), Ready: 1}, {Name: "b", Ready: 1, Oldest: time.Minute}, {Name: "c", Ready: 1, Oldest: time.Hour}, {Name: "d", Paused: true, PausedSince: noon.Add(-time.Hour), Ready: 1},
	}}
	var order []string
	for _, x := range s.troubles() {
		order = append(order, x.Queue)
	}
	if strings.Join(order, "") != "cbda" {
		t.Errorf("the order is %v", order)
	}
}

// The columns of a chart are filled from buckets that are shorter, longer, or missing.
func TestColumns(t *testing.T) {
	t.Parallel()
	s := minutes(inspect.Counts{Enqueued: 60}, inspect.Counts{Enqueued: 120})
	s.Buckets = slices.Insert(s.Buckets, 0, inspect.Bucket{Start: noon.Add(-5 * time.Minute), Duration: 2 * time.Minute, Counts: inspect.Counts{Enqueued: 240}})
	var got []float64
	for _, c := range columns(&s, 6, time.Minute) {
		if !c.known {
			c.in = -1
		}
		got = append(got, c.in)
	}
	if want := []float64{-1, 2, 2, -1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if list := columns(&inspect.Stats{At: noon}, 3, time.Hour); len(list) != 3 || list[0].known {
		t.Errorf("of no buckets: %v", list)
	}
}

// What a user of some queues gets of a state has nothing of the others.
func TestStateWithin(t *testing.T) {
	t.Parallel()
	s := &state{
		at: noon, queues: []inspect.Queue{{Name: "a", CopyDead: "b"}, {Name: "b"}}, stats: map[string]inspect.Stats{"a": {}, "b": {}},
		workers:  []inspect.Worker{{ID: "both", Sessions: []inspect.Session{{Queue: "a"}, {Queue: "b"}}, Running: []inspect.RunningJob{{Queue: "b"}, {Queue: "a"}}}, {ID: "other", Sessions: []inspect.Session{{Queue: "b"}}}},
		entries:  []inspect.Entry{{Queue: "b"}, {Queue: "a"}},
		outboxes: []inspect.Outbox{{Queue: "b"}},
	}
	s.miss("statistics of b", inspect.ErrNoQueue)
	got := s.within(Scope{Queue: func(name string) bool { return name == "a" }})
	if len(got.queues) != 1 || got.queues[0].CopyDead != "" || len(got.stats) != 1 || len(got.workers) != 1 || len(got.workers[0].Sessions) != 1 || len(got.workers[0].Running) != 1 ||
		len(got.entries) != 1 || len(got.outboxes) != 0 || strings.Contains(strings.Join(got.missing, ""), "b") {
		t.Errorf("%+v", got)
	}
	if len(s.workers[0].Sessions) != 2 || s.workers[0].Running[0].Queue != "b" || s.queues[0].CopyDead != "b" {
		t.Errorf("the state of all was changed: %+v", s)
	}
	if none := s.within(Scope{}); len(none.queues)+len(none.workers)+len(none.entries)+len(none.stats) != 0 {
		t.Errorf("a user who sees nothing sees %+v", none)
	}
}
