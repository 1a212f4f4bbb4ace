package outboxsql

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

// Rows of many shards, ordered ones among them, go into a queue with a maximum length, while others fill it too and jobs end. At no time does the queue have more jobs than its maximum.
// In the end all rows are in, in order in each group.
func TestRowsWaitForRoom(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		const most, rows, own, groups = 20, 150, 40, 3
		srv := redistest.New(t)
		rdb := srv.Client()
		q := store.New(rdb, "", "default")
		if _, err := q.Settings().SetMaxLength(bg, most); err != nil {
			t.Fatal(err)
		}
		loose, ordered := b.box(outbox.Config{}), b.box(outbox.Config{Ordered: true})
		want := make(map[string][]string)
		for n := range rows {
			b.in(func(tx *sql.Tx) (err error) {
				if n%3 > 0 {
					_, err = loose.Enqueue(bg, tx, note{N: n})
					return err
				}
				group := fmt.Sprint("g", n/3%groups)
				id, err := ordered.Enqueue(bg, tx, note{N: n, Group: group}, scheduler.Serial(group))
				want[group] = append(want[group], id)
				return err
			})
		}
		for range 2 {
			b.relay(rdb, outbox.RelayConfig{TakeOver: 200 * time.Millisecond})
		}
		var longest atomic.Int64
		look := func() bool { // whether the queue is full
			room, _, err := q.Room(bg)
			if err != nil {
				t.Fatal(err)
			}
			longest.Store(max(longest.Load(), most-room))
			return room <= 0
		}
		redistest.Eventually(t, look, "the queue isn't full")
		stop := runJobs(t, rdb)
		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range own { // another producer
			if _, err := s.Enqueue(bg, note{N: rows + n}, scheduler.WaitForRoom()); err != nil {
				t.Fatal(err)
			}
			look()
		}
		redistest.Eventually(t, func() bool { look(); return settled(b, 0) }, "rows wait for ever")
		redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") == rows+own }, "not all jobs are in")
		if n := longest.Load(); n > most {
			t.Errorf("the queue had %d jobs, with a maximum of %d", n, most)
		}
		_, ran := stop()
		for group, ids := range want {
			if fmt.Sprint(ran[group]) != fmt.Sprint(ids) {
				t.Errorf("group %s ran in the order %v, want %v", group, ran[group], ids)
			}
		}
	})
}

// A taker takes room for itself when a relay has asked how much there is.
type taker struct{ take func() }

func (h *taker) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *taker) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *taker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if len(cmds) > 1 && cmds[1].Name() == "hlen" {
			h.take()
		}
		return err
	}
}

// When a batch is made there is room for it, and when it is sent for a part of it. It doesn't wait for room that other producers never leave: its first rows go in, and the others when
// there is more.
func TestBatchThatNeverFits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		rdb, other := srv.ClientWith(nil), srv.Client()
		q := store.New(other, "", "default")
		if _, err := q.Settings().SetMaxLength(bg, 10); err != nil {
			t.Fatal(err)
		}
		box := b.box(outbox.Config{})
		b.in(func(tx *sql.Tx) (err error) {
			for n := 0; n < 10 && err == nil; n++ {
				_, err = box.Enqueue(bg, tx, note{N: n})
			}
			return err
		})
		s, err := scheduler.New(other, scheduler.Config{})
		if err != nil {
			t.Fatal(err)
		}
		rdb.AddHook(&taker{sync.OnceFunc(func() {
			for n := range 5 {
				if _, err := s.Enqueue(bg, note{N: 100 + n}); err != nil {
					t.Error(err)
				}
			}
		})})
		b.relay(rdb, outbox.RelayConfig{})
		redistest.Eventually(t, func() bool { return enqueued(t, other, "default") == 10 }, "no row goes in, though there is room")
		if _, err := q.Settings().SetMaxLength(bg, 0); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, func() bool { return settled(b, 0) && enqueued(t, other, "default") == 15 }, "the rest doesn't go in")
	})
}
