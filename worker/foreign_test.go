package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// Metrics name only kinds that have a handler, and use one value for all other kinds. Otherwise a producer could add new values without
// end. All deliveries count as consumed, whatever their outcome is.
func TestMetricsOfForeignJobs(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	crashed := r.addOne(signalbox.Job{Kind: "stranger-1"})
	record := r.record(crashed)
	r.put(crashed, record[:2]+string(rune(store.CrashLimit-1))+record[3:])
	r.die(1)
	r.add(signalbox.Job{}, signalbox.Job{Kind: "stranger-2"})
	broken := r.addOne(signalbox.Job{Kind: "stranger-3"})
	r.put(broken, strings.Replace(r.record(broken), "stranger-3", "stranger-\xff", 1))
	newer := r.addOne(signalbox.Job{})
	r.put(newer, "\x03"+r.record(newer)[1:])
	for _, kind := range []string{"task", "stranger-4"} {
		cut := r.addOne(signalbox.Job{Kind: kind})
		r.put(cut, r.record(cut)+"\xff") // its kind is at the beginning and can be read
	}
	reader := sdkmetric.NewManualReader()
	cfg := r.config(6)
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerWith(cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.until("all were looked at", func(c looks.Counts) bool { return c.Dead == 3 && c.Due == 3 && c.Total.Completed == 1 })
	run.stop()
	for name, want := range map[string]map[string]int64{
		"signalbox.jobs.settled": {
			"task completed": 1, "_OTHER returned": 2, "_OTHER dead": 1, " returned": 1, " dead": 2,
		},
		"messaging.client.consumed.messages": {"task ": 1, "_OTHER ": 2, " ": 3},
	} {
		got := make(map[string]int64)
		for set, n := range sums(t, reader, name) {
			kind, _ := set.Value("signalbox.job.kind")
			outcome, _ := set.Value("signalbox.job.outcome")
			got[kind.AsString()+" "+outcome.AsString()] += n
			if v, _ := set.Value("messaging.destination.name"); v.AsString() != r.name() {
				t.Errorf("%s: %v", name, set.ToSlice())
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// If a job's ID is not valid text, its spans and log records can still be read.
func TestTraceOfAForeignID(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	id := r.addOne(signalbox.Job{MaxAttempts: 1})
	const foreign = "\xff\n level=ERROR msg=forged \x1b[31m"
	record := r.record(id)
	ctx := context.Background()
	for _, err := range []error{
		r.rdb.HDel(ctx, r.key("jobs"), id).Err(), r.rdb.HSet(ctx, r.key("jobs"), foreign, record).Err(),
		r.rdb.LRem(ctx, r.key("ready:normal"), 0, id).Err(), r.rdb.RPush(ctx, r.key("ready:normal"), foreign).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var text, js strings.Builder
	cfg := r.config(1)
	cfg.Logger = slog.New(slog.NewMultiHandler(slog.NewTextHandler(&text, nil), slog.NewJSONHandler(&js, nil)))
	w := r.workerWith(cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return errBoom })
	run := r.start(w)
	for _, span := range append(r.n("process", 1), r.n("dead_letter", 1)...) {
		if got := value(span, "messaging.message.id").AsString(); got != strings.ToValidUTF8(foreign, "\uFFFD") {
			t.Errorf("%s is of %q", span.Name, got)
		}
	}
	run.stop()
	for name, log := range map[string]string{"text": text.String(), "JSON": js.String()} {
		for line := range strings.Lines(log) {
			if strings.Contains(line, "forged") && (!strings.Contains(line, "a job is dead") || !utf8.ValidString(line) || strings.Contains(line, "\x1b")) {
				t.Errorf("%s: %q", name, line)
			}
		}
		if fmt.Sprint(strings.Count(log, "forged"), strings.Count(log, "is dead")) != "1 1" {
			t.Errorf("%s: %s", name, log)
		}
	}
}
