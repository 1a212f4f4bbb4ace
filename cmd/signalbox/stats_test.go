package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestQueueStats(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "stats", "mail")
	sh.ok("enqueue", "email.welcome", "{}", "-q", "mail", "--after", "1h")
	if out, errs, code := sh.run("queue", "stats", "mail"); out != "" || code != 0 || !strings.Contains(errs, "Nothing is known of queue mail in the last 3h.") {
		t.Errorf("before any worker: %q, %q, %d", out, errs, code)
	}
	p := sh.works(srv)
	for range 3 {
		sh.ok("enqueue", "email.welcome", "{}", "-q", "mail")
	}
	sh.ok("enqueue", "email.welcome", `{"do":"die"}`, "-q", "mail", "--max-attempts", "1")
	sh.settled(1, 0)
	redistest.Eventually(t, func() bool {
		var got statsJSON
		sh.into(&got, "queue", "stats", "mail")
		return got.Total.Completed == 3
	}, "all have run")
	p.stop()

	for _, by := range []string{"minute", "hour"} {
		var got statsJSON
		sh.into(&got, "queue", "stats", "mail", "--by", by)
		if got.Queue != "mail" || got.By != by || got.At == nil || got.Total != (countsJSON{Enqueued: 5, Completed: 3, Dead: 1}) {
			t.Errorf("by %s: %+v", by, got)
		}
		completed, ran, inBuckets := int64(0), int64(0), int64(0)
		for _, b := range got.Buckets {
			if b.Start == nil || b.DurationSeconds <= 0 {
				t.Errorf("a bucket %+v", b)
			}
			completed += b.Completed
			ran += b.Run.Count
			for _, times := range b.Run.Histogram {
				inBuckets += times.Count
			}
		}
		if completed != 3 || ran != 4 || inBuckets != 4 {
			t.Errorf("by %s: %d completed, %d ran, %d in buckets", by, completed, ran, inBuckets)
		}
		if out := sh.ok("queue", "stats", "mail", "--by", by); !regexp.MustCompile(`(?m)^completed +3 +[ ▁-█]+$`).MatchString(out) || !regexp.MustCompile(`(?m)^run +4 +`).MatchString(out) || strings.Contains(out, "returned") {
			t.Errorf("by %s:\n%s", by, out)
		}
	}
	sh.fails(exitUsage, []string{"--by", "day", "minute or hour"}, "queue", "stats", "mail", "--by", "day")
	sh.fails(exitUsage, []string{"stats [QUEUE]"}, "queue", "stats", "mail", "sms")

	// What can't be read is an error. The rest is printed all the same.
	rdb := srv.Client()
	if err := rdb.HSet(t.Context(), "signalbox:{"+sh.namespace+":mail}:history", "h9", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := sh.run("queue", "stats", "mail", "--by", "hour"); code != exitFailure || !strings.Contains(out, "completed") || !strings.Contains(errs, "field h9") {
		t.Errorf("with a field that can't be read: %d, %q,\n%s", code, errs, out)
	}
}

// Without a queue, the statistics are a line for each queue and one for all, with the numbers that those of the queues have.
func TestStatsOfAllQueues(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	if out, errs, code := sh.run("queue", "stats"); out != "" || code != exitOK || !strings.Contains(errs, "There is no queue in namespace") {
		t.Errorf("without a queue: %q, %q, %d", out, errs, code)
	}
	p := sh.works(srv)
	for range 3 {
		sh.ok("enqueue", "email.welcome", "{}", "-q", "mail")
	}
	sh.ok("enqueue", "email.welcome", `{"do":"die"}`, "-q", "mail", "--max-attempts", "1")
	sh.ok("enqueue", "sms", "{}", "-q", "sms", "--after", "1h") // no worker notes what happens there
	sh.settled(1, 0)
	redistest.Eventually(t, func() bool {
		var got statsJSON
		sh.into(&got, "queue", "stats", "mail")
		return got.Total.Completed == 3
	}, "all have run")
	p.stop()

	for _, by := range []string{"minute", "hour"} {
		var got allStatsJSON
		sh.into(&got, "queue", "stats", "--by", by)
		var one statsJSON
		sh.into(&one, "queue", "stats", "mail", "--by", by)
		want := one.Total
		want.Enqueued = 0 // what was enqueued before the first worker noted anything is not in a bucket
		for _, b := range one.Buckets {
			want.Enqueued += b.Enqueued
		}
		if by != got.By || len(got.Queues) != 2 || got.Queues[0].Queue != "mail" || got.Queues[1].Queue != "sms" || got.Queues[1].At == nil {
			t.Fatalf("by %s: %+v", by, got)
		}
		if mail := got.Queues[0]; mail.Total != (countsJSON{Enqueued: 4, Completed: 3, Dead: 1}) || mail.Recent != want || mail.Run.Count != 4 {
			t.Errorf("by %s, mail: %+v", by, mail)
		}
		if sms := got.Queues[1]; sms.Total != (countsJSON{Enqueued: 1}) || sms.Recent != (countsJSON{}) || sms.Wait.Count != 0 {
			t.Errorf("by %s, sms: %+v", by, sms)
		}
		if all := got.All; all.Recent != want || all.Run.Count != 4 || all.Total.Enqueued != 5 || all.Total.Dead != 1 {
			t.Errorf("by %s, all: %+v", by, all)
		}
		out := sh.ok("queue", "stats", "--by", by)
		for _, line := range []string{`mail +\d +3 +0 +1 +0 +0 +\S+ +\S+ +\S+`, `sms +0 +0 +0 +0 +0 +0 +- +- +-`, `all of 2 queues +\d +3 +0 +1 +0 +0 +\S+ +\S+ +\S+`} {
			if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(out) {
				t.Errorf("by %s: no line %s in\n%s", by, line, out)
			}
		}
	}
	sh.fails(exitUsage, []string{"--by", "day", "minute or hour"}, "queue", "stats", "--by", "day")

	// A queue that can't be read is an error. The rest of it, and the others, are printed all the same.
	rdb := srv.Client()
	if err := rdb.HSet(t.Context(), "signalbox:{"+sh.namespace+":sms}:history", "h9", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := sh.run("queue", "stats", "--by", "hour"); code != exitFailure || !strings.Contains(out, "all of 2 queues") || !strings.Contains(errs, "queue sms") || !strings.Contains(errs, "field h9") {
		t.Errorf("with a field that can't be read: %d, %q,\n%s", code, errs, out)
	}
	if err := rdb.Set(t.Context(), "signalbox:{"+sh.namespace+":mail}:history", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := sh.run("queue", "stats"); code != exitFailure || strings.Contains(out, "mail") || !strings.Contains(out, "all of 1 queue ") || !strings.Contains(errs, "queue mail") {
		t.Errorf("with a queue that can't be read: %d, %q,\n%s", code, errs, out)
	}
}

// Every count is added up.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	var one, two inspect.Counts
	for i := range reflect.TypeFor[inspect.Counts]().NumField() {
		reflect.ValueOf(&one).Elem().Field(i).SetInt(int64(i + 1))
		reflect.ValueOf(&two).Elem().Field(i).SetInt(int64(100 * (i + 1)))
	}
	sum := plus(one, two)
	for i := range reflect.TypeFor[inspect.Counts]().NumField() {
		if got := reflect.ValueOf(sum).Field(i).Int(); got != int64(101*(i+1)) {
			t.Errorf("%s: %d", reflect.TypeFor[inspect.Counts]().Field(i).Name, got)
		}
	}
}

// made are statistics of three hours. For an hour nobody looked.
func made() *inspect.Stats {
	at := time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)
	s := &inspect.Stats{Queue: "mail", At: at}
	for m := 120; m > 0; m-- {
		b := inspect.Bucket{Start: at.Add(time.Duration(-m) * time.Minute), Duration: time.Minute}
		b.Enqueued = int64(120 - m)
		if m > 60 {
			b.Retried = 60
		} else {
			b.Completed = 1
		}
		s.Buckets = append(s.Buckets, b)
	}
	s.Buckets[60].Start = at.Add(-90 * time.Minute)
	s.Buckets[60].Duration = 31 * time.Minute
	s.Buckets = append(s.Buckets[:30], s.Buckets[60:]...)
	return s
}

// The bars keep within the terminal. What happened while nobody looked is spread, and the last line says so.
func TestStatsTable(t *testing.T) {
	t.Parallel()
	text := func(width int) string {
		var out bytes.Buffer
		a := &app{out: &out, err: &out, width: width, flush: func() {}, output: "table"}
		a.printStats(made(), inspect.ByMinute)
		return out.String()
	}
	same(t, text(80), `
		queue mail until 2026-01-31T03:00:00Z; each bar is 5m

		JOBS       NUMBER  LAST 3H
		enqueued     5805              ▂▂▂▃▃▃▂▂▂▂▂▂▅▆▆▆▆▇▇▇████
		completed      60              ▁▁▁▁▁▁▂▂▂▂▂▂▇███████████
		retried      1800              ██████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
		dead            0              ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
		cancelled       0              ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁

		No worker noted anything from 2026-01-31T01:30:00Z to 2026-01-31T02:01:00Z. What happened then is drawn as if evenly.`)
	for _, width := range []int{0, 40, 60, 80, 100, 133, 200} {
		for line := range strings.SplitSeq(text(width), "\n") {
			if width > 0 && cells(line) > width && !strings.HasPrefix(line, "No worker") && !strings.HasPrefix(line, "queue") {
				t.Errorf("in %d cells: %d: %s", width, cells(line), line)
			}
		}
	}
}

// Many long gaps are one line.
func TestStatsGaps(t *testing.T) {
	t.Parallel()
	s := made()
	same(t, gaps(&inspect.Stats{}, inspect.ByMinute), "")
	for _, i := range []int{3, 7} {
		s.Buckets[i].Duration = 10 * time.Minute
	}
	same(t, gaps(s, inspect.ByMinute),
		"3 times no worker noted anything, the longest from 2026-01-31T01:30:00Z to 2026-01-31T02:01:00Z. What happened then is drawn as if evenly.")
}

func TestDraw(t *testing.T) {
	t.Parallel()
	same(t, draw([]float64{-1, 0, 0.1, 4, 7, -1, 3.5}), " ▁▂▅█ ▅")
	same(t, draw([]float64{0, 0, -1, 0}), "▁▁ ▁")
	if got := draw(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// TestStatsJSON: docs/cli/json.md has the fields of the statistics, and they are these.
func TestStatsJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(statsOf(made(), "minute"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"queue":"mail","at":"2026-01-31T03:00:00Z","by":"minute","total":{"enqueued":0,"completed":0,"retried":0,"delayed":0,"returned":0,"dead":0,"cancelled":0,"crashed":0,"deleted":0,"revived":0,"expired":0},` +
		`"buckets":[{"start":"2026-01-31T01:00:00Z","duration_seconds":60,"enqueued":0,"completed":0,"retried":60,"delayed":0,"returned":0,"dead":0,"cancelled":0,"crashed":0,"deleted":0,"revived":0,"expired":0,` +
		`"wait":{"count":0,"p50_seconds":0,"p95_seconds":0,"p99_seconds":0,"histogram":[]},"run":{"count":0,"p50_seconds":0,"p95_seconds":0,"p99_seconds":0,"histogram":[]}},`
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("got\n%.900s\nwant\n%s", text, want)
	}
	_, section, _ := strings.Cut(page(t), "`queue stats QUEUE`: ")
	section, _, _ = strings.Cut(section, "`job ls`, a line each")
	if _, more, ok := strings.Cut(section, "`queue stats` without a queue"); ok {
		section += strings.NewReplacer(`"`, "`").Replace(more)
	}
	for _, v := range []any{statsJSON{}, bucketJSON{}, countsJSON{}, timesJSON{}, timeBucketJSON{}, allStatsJSON{}, queueSumJSON{}, sumJSON{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			if name := typ.Field(i).Tag.Get("json"); name != "" && !strings.Contains(section, "`"+name+"`") {
				t.Errorf("docs/cli/json.md doesn't have %s of queue stats", name)
			}
		}
	}
}
