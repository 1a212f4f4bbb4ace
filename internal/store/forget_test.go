package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// What a queue knows of an outbox is forgotten after a day, and no longer keeps the queue; unless a relay has reported the queue, or sends a batch meanwhile.
func TestForgetOutbox(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	forget := func(what, box string, want Forgotten) {
		t.Helper()
		got, err := r.Outboxes().Forget(bg, box)
		r.must(err)
		same(t, what, got, want)
	}
	keeps := func(what string, want ...string) {
		t.Helper()
		named, err := Named(bg, r.rdb, "", r.Name())
		r.must(err)
		var got []string
		for _, key := range named[r.Name()] {
			got = append(got, fmt.Sprint(key.Kind, " ", key.Of))
		}
		slices.Sort(got)
		equal(t, what, got, want)
	}
	ttl := func(box string, shard int) time.Duration { return r.rdb.PTTL(bg, r.keys.Outbox(box, shard)).Val() }
	send := func(box string, shard int, seq int64, after Place) Place {
		t.Helper()
		p := Place{Seq: seq, Nonce: fmt.Sprint("n", seq)}
		_, err := r.Outboxes().Relay(bg, box, shard, &Batch{Place: p, After: after, Items: []Item{r.item(NewID(), When{}, 0)}})
		r.must(err)
		return p
	}

	forget("it has sent nothing", "b*x", OutboxUnknown)
	last := send("b*x", 0, 1, Place{})
	send("b*x", 7, 1, Place{})
	for _, other := range []string{"bax", "b*x:1", "b*"} {
		send(other, 0, 1, Place{})
	}
	keeps("before", "outbox b*", "outbox b*x", "outbox b*x", "outbox b*x:1", "outbox bax")

	// Its relays run.
	at := func(ago time.Duration) string { return fmt.Sprintf(`{"at":%d}`, time.Now().Add(-ago).UnixMicro()) }
	for what, text := range map[string]string{"a report": at(time.Second), "one of a database whose clock is ahead": at(-time.Hour), "one of a later release": "x"} {
		r.must(r.Outboxes().Set(bg, "b*x", text, time.Minute))
		forget(what, "b*x", OutboxLives)
		same(t, what, ttl("b*x", 0), -1)
	}
	// Reports of others keep an old one of it.
	r.must(r.Outboxes().Set(bg, "bax", at(0), time.Minute))
	r.must(r.Outboxes().Set(bg, "b*x", at(6*time.Minute), time.Minute))
	for range 2 { // it may be called again
		forget("its relays have ended", "b*x", OutboxForgotten)
	}
	for shard := range 8 {
		if got := ttl("b*x", shard); (shard == 0 || shard == 7) != (got > ForgetAfter-time.Minute && got <= ForgetAfter) {
			t.Errorf("shard %d is kept for %v", shard, got)
		}
	}
	keeps("after", "outbox b*", "outbox b*x:1", "outbox bax")

	// A relay that comes back finds what it has sent, and what it goes on with stays.
	places, err := r.Outboxes().Relayed(bg, "b*x", 0)
	r.must(err)
	same(t, "the last batch", places[0], last)
	send("b*x", 0, 2, last)
	same(t, "the shard that sends", ttl("b*x", 0), -1)
	keeps("when it sends again", "outbox b*", "outbox b*x", "outbox b*x:1", "outbox bax")
}
