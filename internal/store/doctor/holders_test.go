package doctor

import (
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A count of holders that is too high counts only if no job has begun to wait since the jobs that wait were looked for.
func TestHoldersThatMove(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	q := store.New(redistest.Start(t).Client(), "", redistest.Name(t))
	lane := q.NewLane()
	enqueue := func(id, group string) {
		it, err := store.NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: []byte("1"), Group: group, Serial: true}, store.When{})
		must(err)
		lane.Next()
		_, err = q.Enqueue(ctx, lane, []store.Item{it})
		must(err)
	}
	claim := func(settle ...store.Settlement) []store.Delivery {
		lane.Next()
		reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: "s1", Want: 1, Settle: settle})
		must(err)
		return reply.Deliveries
	}
	_, _, err := q.Sessions().Open(ctx, "s1", time.Minute)
	must(err)
	enqueue("r1", "r") // its delivery ends, and it holds its group while it waits
	got := claim()
	enqueue("s1", "s") // it runs
	claim(store.Settlement{ID: got[0].Job.ID, Token: got[0].Job.Token, Outcome: store.Delay, Delay: time.Hour})

	d := &doctor{q: q.Site(), Checkup: Checkup{Pause: -1, Found: func(f Finding) { t.Errorf("%+v", f) }}, told: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
	keys := []string{"sr", "ss"}
	_, moved, err := d.lookAtGroups(ctx, nil, nil)
	must(err)
	waiting, err := d.holders(ctx, keys)
	must(err)
	if len(waiting) != 1 || len(waiting["sr"]) != 1 {
		t.Fatalf("waiting: %v", waiting)
	}
	delete(waiting, "sr") // as one that was seen nowhere
	surplus := make(map[string]int)
	for _, then := range []string{"another", "another", "another", moved} {
		left, err := d.compare(ctx, keys, waiting, then, surplus)
		must(err)
		if !slices.Equal(left, []string{"sr"}) {
			t.Fatalf("to be looked at again: %v", left)
		}
	}
	found := 0
	d.Checkup.Found = func(Finding) { found++ }
	left, err := d.compare(ctx, []string{"sr"}, waiting, moved, surplus)
	must(err)
	if found != 1 || len(left) > 0 {
		t.Errorf("after two rounds: %d, %v", found, left)
	}
}
