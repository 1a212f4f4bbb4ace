package outboxsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// The code of docs/testing.md that needs a database: TestGuide of package signalboxtest compares it. First what is tested: a shop that enqueues through an outbox.

// A Receipt is sent for each order.
type Receipt struct{ Order int }

// Kind names the work.
func (Receipt) Kind() string { return "mail.receipt" }

// A Shop takes orders.
type Shop struct {
	db  *sql.DB
	box *outbox.Outbox
}

var errNoStock = errors.New("out of stock")

// Buy takes an order, and has a receipt sent after an hour.
func (s *Shop) Buy(ctx context.Context, order int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := s.box.Enqueue(ctx, tx, Receipt{Order: order}, scheduler.Queue("mail"), scheduler.After(time.Hour), scheduler.MaxAttempts(3)); err != nil {
		return err
	}
	if order == 13 {
		return errNoStock
	}
	return tx.Commit()
}

func registerShop(w *worker.Worker) {
	worker.Handle(w, func(context.Context, *signalbox.Job, Receipt) error { return nil })
}

// newShop returns a shop with an empty database.
func newShop(t *testing.T) (*Shop, *sql.DB) {
	t.Helper()
	b := open(t, outbox.SQLite)
	return &Shop{b.db, b.box(outbox.Config{})}, b.db
}

func TestBuy(t *testing.T) {
	shop, db := newShop(t) // a database of the test's own
	jobs := signalboxtest.New(t)

	if err := shop.Buy(t.Context(), 7); err != nil {
		t.Fatal(err)
	}

	jobs.Relay(t.Context(), db)
	job := signalboxtest.One[Receipt](jobs)
	if job.Args.Order != 7 || job.Queue != "mail" || job.MaxAttempts != 3 {
		t.Errorf("enqueued %+v with %+v", job.Job, job.Args)
	}
	// ...
	w, err := worker.New(jobs.Client(), worker.Config{Queues: worker.Queues{"mail": {}}})
	if err != nil {
		t.Fatal(err)
	}
	registerShop(w)
	if v := jobs.Work(t.Context(), w, job.Job); v.Outcome != signalbox.OutcomeCompleted {
		t.Error(v)
	}
	for jobs.Relay(t.Context(), db) > 0 {
		jobs.WorkAll(t.Context(), w)
	}
}

func TestBuyWithoutStock(t *testing.T) {
	shop, db := newShop(t)
	jobs := signalboxtest.New(t)
	if err := shop.Buy(t.Context(), 13); err == nil {
		t.Fatal("no error")
	}
	if n := jobs.Relay(t.Context(), db); n != 0 {
		t.Errorf("%d jobs were written", n)
	}
}

// The rows that a stand-in takes are the jobs that a relay enqueues, with all that their options say.
func TestRowsOfATest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		jobs := signalboxtest.New(t)
		box, named := b.box(outbox.Config{Ordered: true}), b.box(outbox.Config{Namespace: "eu"})
		at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		b.in(func(tx *sql.Tx) error {
			items := []scheduler.Item{
				{Args: note{N: 0}, Options: []scheduler.EnqueueOption{scheduler.Queue("mail"), scheduler.At(at), scheduler.Priority(signalbox.PriorityHigh), scheduler.Header("k", "v")}},
				{Args: note{N: 1}, Options: []scheduler.EnqueueOption{scheduler.Serial("acme"), scheduler.Timeout(time.Minute), scheduler.ID("one")}},
				{Args: note{N: 2}, Options: []scheduler.EnqueueOption{scheduler.Unique("u", scheduler.UntilEnded)}},
				{Args: note{N: 3}, Options: []scheduler.EnqueueOption{scheduler.Unique("u", scheduler.UntilEnded)}}, // is left out
				{Args: note{N: 4}, Options: []scheduler.EnqueueOption{scheduler.ExpireAfter(time.Minute)}},
			}
			if _, err := box.EnqueueMany(bg, tx, items); err != nil {
				return err
			}
			_, err := named.Enqueue(bg, tx, note{N: 5})
			return err
		})
		if n := jobs.Relay(bg, b.db); n != 6 {
			t.Errorf("%d rows", n)
		}
		all := signalboxtest.All[note](jobs)
		var of []int
		for _, job := range all {
			of = append(of, job.Args.N)
		}
		if fmt.Sprint(of) != "[0 1 2 4 5]" {
			t.Fatalf("jobs %v", of)
		}
		if j := all[0]; j.Queue != "mail" || !j.ScheduledAt.Equal(at) || j.Priority != signalbox.PriorityHigh || j.Headers["k"] != "v" {
			t.Errorf("job 0: %+v", j.Job)
		}
		if j := all[1]; j.Group != "acme" || !j.Serial || j.Timeout != time.Minute || j.ID != "one" {
			t.Errorf("job 1: %+v", j.Job)
		}
		if j := all[3]; j.ExpireAfter <= 0 || j.ExpireAfter > time.Minute {
			t.Errorf("job 4: %+v", j.Job)
		}
		if j := all[4]; j.Namespace != "eu" {
			t.Errorf("job 5: %+v", j.Job)
		}
		// What was moved is gone, and what is written then comes next.
		if n := jobs.Relay(bg, b.db); n != 0 || b.number("SELECT COUNT(*) FROM signalbox_outbox") != 0 {
			t.Errorf("%d rows again", n)
		}
		// In the test's own transaction, which nobody else sees, the rows come before it commits.
		tx, err := b.db.BeginTx(bg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := box.Enqueue(bg, tx, note{N: 6}); err != nil {
			t.Fatal(err)
		}
		if n := jobs.Relay(bg, tx); n != 1 {
			t.Errorf("%d rows in the transaction", n)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if n := jobs.Relay(bg, b.db); n != 0 {
			t.Errorf("%d rows after the rollback", n)
		}
		// Handlers that enqueue through the outbox.
		w, err := worker.New(jobs.Client(), worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in note) error {
			if in.N < 100 {
				return nil
			}
			return b.try(func(tx *sql.Tx) error {
				_, err := box.Enqueue(ctx, tx, note{N: in.N - 1})
				return err
			})
		})
		b.in(func(tx *sql.Tx) error {
			_, err := box.Enqueue(bg, tx, note{N: 102})
			return err
		})
		done := 0
		for jobs.Relay(bg, b.db) > 0 && done < 100 {
			done += len(jobs.WorkAll(bg, w))
		}
		if done != 3+5 { // with those of before that are due, in the default namespace
			t.Errorf("%d deliveries", done)
		}
	})
}

// failing is a test that is told that it has failed.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// What a stand-in can't take ends the test, and says why.
func TestRowsOfATestFail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		f := &failing{TB: t}
		jobs := signalboxtest.New(f)
		says := func(db signalboxtest.DB, want ...string) {
			t.Helper()
			f.said = nil
			n := jobs.Relay(bg, db)
			for _, text := range want {
				if n != 0 || len(f.said) != 1 || !strings.Contains(f.said[0], text) {
					t.Errorf("%d rows, it says %q; want %q", n, f.said, text)
				}
			}
		}
		b.in(func(tx *sql.Tx) error {
			_, err := b.box(outbox.Config{}).Enqueue(bg, tx, note{N: 1})
			return err
		})
		b.exec("UPDATE signalbox_outbox SET shard = 'nowhere'")
		says(b.db, "row 1", `"nowhere"`)
		b.exec("UPDATE signalbox_outbox SET shard = 'default:q/0', id = 'not good'")
		says(b.db, "row 1", "job ID")
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != 1 || len(jobs.Enqueued()) != 0 {
			t.Errorf("%d rows are left, %d jobs", n, len(jobs.Enqueued()))
		}
		says(nil, "db is nil")
		says(empty(t, b.dialect).db, "outbox.Schema")
	})
}
