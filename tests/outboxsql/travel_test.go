package outboxsql

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A job takes its sequence along: to the copy of its death, to another queue, into a file and out of it, and when an operator runs it again.
func TestSequenceTravels(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.SQLite)
	rdb := redistest.New(t).Client()
	ins, err := inspect.New(rdb, inspect.Config{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	for _, queue := range []string{"moved", "copies"} {
		must(store.New(rdb, "", queue).Presence().Register(bg))
	}
	box := b.box(outbox.Config{Ordered: true})
	var ids []string
	for i := range 2 {
		b.in(func(tx *sql.Tx) error {
			id, err := box.Enqueue(bg, tx, note{N: i}, scheduler.Serial("g"), scheduler.MaxAttempts(1))
			ids = append(ids, id)
			return err
		})
	}
	b.relay(rdb, outbox.RelayConfig{})
	redistest.Eventually(t, func() bool { return settled(b, 0) }, "not sent")
	has := func(queue, id string) int64 {
		t.Helper()
		job, err := ins.Job(bg, queue, id)
		must(err)
		n, ok := outbox.Sequence(&signalbox.Job{Headers: job.Headers})
		if !ok {
			t.Errorf("job %s of queue %s has no sequence", id, queue)
		}
		return n
	}
	first, second := has("default", ids[0]), has("default", ids[1])
	if first >= second {
		t.Fatalf("sequences %d and %d", first, second)
	}
	is := func(what, queue, id string, want int64) {
		t.Helper()
		if got := has(queue, id); got != want {
			t.Errorf("%s: the sequence is %d, want %d", what, got, want)
		}
	}

	_, err = ins.Do(bg, "default", ids[1], inspect.Move{To: "moved"})
	must(err)
	is("moved", "moved", ids[1], second)
	var file bytes.Buffer
	_, err = ins.Export(bg, "moved", &file, nil)
	must(err)
	_, err = ins.Import(bg, "imported", &file, inspect.Importing{})
	must(err)
	is("imported", "imported", ids[1], second)

	// The first one dies, and is copied.
	must(ins.SetCopyDead(bg, "default", "copies"))
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"default": {}}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must(err)
	worker.Handle(w, func(context.Context, *signalbox.Job, note) error { return errNo })
	ctx, stop := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	copied := ""
	redistest.Eventually(t, func() bool {
		for job, err := range ins.Jobs(bg, "copies", inspect.Filter{State: signalbox.StateReady}) {
			must(err)
			copied = job.ID
		}
		return copied != ""
	}, "no copy")
	stop()
	must(<-done)
	is("the copy of a dead job", "copies", copied, first)
	_, err = ins.Do(bg, "default", ids[0], inspect.Retry{})
	must(err)
	is("run again", "default", ids[0], first)
	_, err = ins.Do(bg, "default", ids[0], inspect.Reschedule{At: time.Now().Add(time.Hour)})
	must(err)
	is("put off", "default", ids[0], first)
}
