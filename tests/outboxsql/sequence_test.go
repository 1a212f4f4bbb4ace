package outboxsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// A seen is a delivery, as its handler saw it.
type seen struct {
	id       string
	args     note
	sequence int64
	ok       bool
	attempt  int
}

// deliveries runs a worker of the default queue, and returns its deliveries when there are so many. fails says of which jobs the first attempt fails.
func deliveries(t *testing.T, rdb redis.UniversalClient, n int, fails func(note) bool) []seen {
	t.Helper()
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"default": {Concurrency: 8}}})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan seen, n+100)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, in note) error {
		s := seen{id: job.ID, args: in, attempt: job.Attempt}
		s.sequence, s.ok = outbox.Sequence(job)
		got <- s
		if job.Attempt == 1 && fails(in) {
			return signalbox.RetryAfter(time.Millisecond, errNo)
		}
		return nil
	})
	ctx, stop := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	}()
	all := make([]seen, 0, n)
	late := time.After(time.Minute)
	for len(all) < n {
		select {
		case s := <-got:
			all = append(all, s)
		case <-late:
			t.Fatalf("%d deliveries of %d", len(all), n)
		}
	}
	return all
}

// Many transactions of a few groups write jobs, some of them several, and some are rolled back. A job's sequence says which job of its group is newer: its order is that of the deliveries, and that of the
// transactions, which is known from a row that they change under the group's lock. A number that is drawn before Enqueue has another order.
func TestSequence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		const writers, each, groups = 8, 25, 3
		box := b.box(outbox.Config{Ordered: true})
		b.exec("CREATE TABLE numbers (grp INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
		for group := range groups {
			b.exec(fmt.Sprintf("INSERT INTO numbers (grp, n) VALUES (%d, 0)", group))
		}
		var (
			naive atomic.Int64 // as of a sequence of the database
			mu    sync.Mutex
			order = make(map[string]int) // by job ID: the number of its transaction in its group
		)
		write := func(group int, jobs []note, fails bool) error {
			var ids []string
			var n int
			err := b.try(func(tx *sql.Tx) (err error) {
				items := make([]scheduler.Item, len(jobs))
				for i, job := range jobs {
					items[i] = scheduler.Item{Args: job, Options: []scheduler.EnqueueOption{scheduler.Serial(fmt.Sprint("g", group))}}
				}
				if ids, err = box.EnqueueMany(bg, tx, items); err != nil {
					return err
				}
				if _, err := tx.Exec(fmt.Sprintf("UPDATE numbers SET n = n + 1 WHERE grp = %d", group)); err != nil {
					return err
				}
				if err := tx.QueryRow(fmt.Sprintf("SELECT n FROM numbers WHERE grp = %d", group)).Scan(&n); err != nil {
					return err
				}
				if fails {
					return errNo
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				for i, id := range ids {
					order[id] = 10*n + i
				}
			}
			return err
		}
		draw := func(group int) note { return note{N: int(naive.Add(1)), Group: fmt.Sprint("g", group)} }

		// The trap: the first transaction draws its number, the second one draws a larger one, and enqueues first.
		early := draw(0)
		if err := write(0, []note{draw(0)}, false); err != nil {
			t.Fatal(err)
		}
		if err := write(0, []note{early}, false); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range each {
					group, fails := (w+i)%groups, i%7 == 3
					jobs := []note{draw(group)}
					if i%5 == 0 {
						jobs = append(jobs, draw(group), draw(group))
					}
					if err := write(group, jobs, fails); (err != nil) != fails {
						t.Errorf("a transaction that fails=%v: %v", fails, err)
					}
				}
			})
		}
		all.Wait()
		rdb := redistest.New(t).Client()
		b.relay(rdb, outbox.RelayConfig{})
		got := deliveries(t, rdb, len(order), func(note) bool { return false })
		trap := false
		for group := range groups {
			var last *seen
			for i := range got {
				s := &got[i]
				if s.args.Group != fmt.Sprint("g", group) {
					continue
				}
				if !s.ok || s.sequence < 1 {
					t.Fatalf("job %s of a group has the sequence %d, %v", s.id, s.sequence, s.ok)
				}
				if last != nil {
					if s.sequence <= last.sequence || order[s.id] <= order[last.id] {
						t.Fatalf("group %d: the sequence %d of the transaction %d came after %d of %d", group, s.sequence, order[s.id], last.sequence, order[last.id])
					}
					trap = trap || s.args.N < last.args.N
				}
				last = s
			}
		}
		if !trap {
			t.Error("numbers that were drawn before Enqueue are in order, too: the test shows nothing")
		}
	})
}

// A job keeps its sequence: in each delivery, if Redis has lost it and a relay sends it again, and if its row was dead.
func TestSequenceStays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		box := b.box(outbox.Config{Ordered: true})
		put := func(n int, opts ...scheduler.EnqueueOption) {
			b.in(func(tx *sql.Tx) error {
				_, err := box.Enqueue(bg, tx, note{N: n}, append(opts, scheduler.Serial("g"))...)
				return err
			})
		}
		put(1)
		put(2, scheduler.ID("two"))
		put(3)
		b.exec("UPDATE signalbox_outbox SET id = 'not good' WHERE id = 'two'")
		srv := redistest.New(t)
		rdb := srv.Client()
		b.relay(rdb, outbox.RelayConfig{})
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not sent")
		first := deliveries(t, rdb, 3, func(in note) bool { return in.N == 1 })
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead"); n != 1 {
			t.Fatalf("%d dead rows", n)
		}
		of := func(all []seen, n int) (numbers []int64) {
			for _, s := range all {
				if s.args.N == n {
					numbers = append(numbers, s.sequence)
				}
			}
			return slices.Compact(numbers)
		}
		one, three := of(first, 1), of(first, 3)
		if len(one) != 1 || len(three) != 1 || one[0] >= three[0] {
			t.Fatalf("the sequences %v and %v: %+v", one, three, first)
		}

		// The dead row is mended, and sent again as docs/effects/outbox.md says: it is older than the third still.
		b.exec("UPDATE signalbox_outbox_dead SET id = 'two'")
		override := ""
		if b.dialect == outbox.PostgreSQL {
			override = "OVERRIDING SYSTEM VALUE "
		}
		b.exec("INSERT INTO signalbox_outbox (pos, shard, id, class, due, born, envelope) " + override +
			"SELECT pos, shard, id, class, due, born, envelope FROM signalbox_outbox_dead")
		b.exec("DELETE FROM signalbox_outbox_dead")
		second := deliveries(t, rdb, 1, func(note) bool { return false })
		if two := second[0].sequence; second[0].args.N != 2 || two <= one[0] || two >= three[0] {
			t.Errorf("the row that was dead: %+v, between %v and %v", second, one, three)
		}

		// Redis forgets all: the relay sends all again.
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not noted")
		if err := rdb.FlushAll(bg).Err(); err != nil {
			t.Fatal(err)
		}
		third := deliveries(t, rdb, 3, func(note) bool { return false })
		if !slices.Equal(of(third, 1), one) || !slices.Equal(of(third, 3), three) || !slices.Equal(of(third, 2), of(second, 2)) {
			t.Errorf("sent again: %+v; first %+v", third, first)
		}

		// New jobs have larger numbers than all before.
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not noted")
		put(4)
		if fourth := deliveries(t, rdb, 1, func(note) bool { return false }); fourth[0].sequence <= three[0] {
			t.Errorf("the next job: %+v, after %v", fourth, three)
		}
	})
}

// What has no order has no sequence. Nobody else sets it, and a job that has no room for it is refused before anything is written.
func TestSequenceIsOfTheOutbox(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		rdb := redistest.New(t).Client()
		ordered, loose := b.box(outbox.Config{Ordered: true}), b.box(outbox.Config{})
		largest := func() int { // the length of the text that just fits
			return sort.Search(1<<20, func(n int) bool {
				err := b.try(func(tx *sql.Tx) error {
					_, err := ordered.Enqueue(bg, tx, note{Group: strings.Repeat("x", n)}, scheduler.Serial("g"))
					if err == nil {
						return errNo
					}
					return err
				})
				if !errors.Is(err, errNo) && (!errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "payload: the job takes")) {
					t.Fatalf("%d bytes: %v", n, err)
				}
				return !errors.Is(err, errNo)
			}) - 1
		}
		large := note{N: 3, Group: strings.Repeat("x", largest())}
		b.in(func(tx *sql.Tx) error {
			for _, header := range []string{"signalbox-sequence", "Signalbox-Sequence"} {
				for _, box := range []*outbox.Outbox{ordered, loose} {
					if _, err := box.Enqueue(bg, tx, note{}, scheduler.Header(header, "7")); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "reserved") {
						t.Errorf("a header of one's own: %v", err)
					}
				}
			}
			tooLarge := []scheduler.Item{{Args: note{}}, {Args: note{Group: large.Group + "x"}, Options: []scheduler.EnqueueOption{scheduler.Serial("g")}}}
			if _, err := ordered.EnqueueMany(bg, tx, tooLarge); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "item 1") {
				t.Errorf("an item that has no room: %v", err)
			}
			if _, err := loose.Enqueue(bg, tx, note{N: 1}, scheduler.Serial("g")); err != nil {
				return err
			}
			if _, err := ordered.Enqueue(bg, tx, note{N: 2}); err != nil {
				return err
			}
			_, err := ordered.Enqueue(bg, tx, large, scheduler.Serial("h"))
			return err
		})
		b.relay(rdb, outbox.RelayConfig{})
		for _, s := range deliveries(t, rdb, 3, func(note) bool { return false }) {
			if s.ok != (s.args.N == 3) || s.ok != (s.sequence > 0) {
				t.Errorf("job %d has the sequence %d, %v", s.args.N, s.sequence, s.ok)
			}
		}
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead"); n != 0 {
			t.Errorf("%d dead rows", n)
		}
	})
}

// A test's stand-in gives the same numbers as a relay.
func TestSequenceInATest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		jobs := signalboxtest.New(t)
		b.in(func(tx *sql.Tx) error {
			_, err := b.box(outbox.Config{Ordered: true}).EnqueueMany(bg, tx, []scheduler.Item{
				{Args: note{}, Options: []scheduler.EnqueueOption{scheduler.Group("g")}},
				{Args: note{}},
				{Args: note{}, Options: []scheduler.EnqueueOption{scheduler.Group("g")}},
			})
			return err
		})
		jobs.Relay(bg, b.db)
		all := jobs.Enqueued()
		first, ok := outbox.Sequence(all[0])
		_, none := outbox.Sequence(all[1])
		second, again := outbox.Sequence(all[2])
		if !ok || none || !again || first < 1 || second <= first {
			t.Errorf("the sequences %d (%v), none (%v), %d (%v)", first, ok, none, second, again)
		}
	})
}
