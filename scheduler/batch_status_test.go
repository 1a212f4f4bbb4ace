package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// BatchStatus says how a batch is, from when it is made until it is over.
func TestBatchStatus(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	b, err := s.Batch(ctx, q.Name(), FlowID("news-7"), OnEnd(call{"end"}), FlowTimeout(time.Hour), SealWithin(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := ParseRef(b.Ref().String())
	if err != nil || ref != (Ref{q.Namespace(), q.Name(), "news-7"}) {
		t.Fatal(ref, err)
	}
	want := BatchStatus{Ref: ref, State: "unsealed"}
	look := func(when string) {
		t.Helper()
		st, err := s.BatchStatus(ctx, ref)
		if err != nil {
			t.Fatal(when, err)
		}
		if st.CreatedAt.IsZero() || st.EndedAt.IsZero() == want.Over || st.SealBy.IsZero() != want.Sealed || st.EndBy.IsZero() != (want.Over || want.Cancelled) {
			t.Errorf("%s: %+v", when, st)
		}
		if !want.Sealed && st.SealBy.Sub(st.CreatedAt) < time.Minute || !st.EndBy.IsZero() && st.EndBy.Sub(st.CreatedAt) != time.Hour {
			t.Errorf("%s: the times %+v", when, st)
		}
		st.CreatedAt, st.EndedAt, st.SealBy, st.EndBy = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if st != want {
			t.Errorf("%s: %+v\nwant %+v", when, st, want)
		}
	}
	look("it is made")
	addAll(t, b, notes(0, 3))
	if _, err := b.Add(ctx, note{3}, ID("last")); err != nil {
		t.Fatal(err)
	}
	want.Total, want.Open = 4, 4
	look("it has members")
	if err := b.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	want.State, want.Sealed = "open", true
	look("it is sealed")
	if _, err := q.Do(ctx, store.DeleteJobs(), []string{"last"}); err != nil {
		t.Fatal(err)
	}
	want.State, want.Open, want.Gone = "failed", 3, 1
	look("a member is deleted")
	claimAll(t, q) // also the callback
	want.State, want.Over, want.Open, want.Completed = "over", true, 0, 3
	look("all have ended")

	b, err = s.Batch(ctx, q.Name(), FlowID("news-8"), FlowTimeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	session, lane := store.NewSession("w"), q.NewLane()
	if _, _, err := q.Sessions().Open(ctx, session, time.Minute); err != nil {
		t.Fatal(err)
	}
	addAll(t, b, notes(0, 1))
	lane.Next()
	reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		t.Fatal(reply, err)
	}
	if _, err := q.Flows().Cancel(ctx, facts.FlowRef{Name: "news-8"}); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := q.Flows().Pass(ctx, "news-8"); err != nil {
		t.Fatal(err)
	}
	ref.ID = "news-8"
	want = BatchStatus{Ref: ref, State: "cancelled", Sealed: true, Cancelled: true, Total: 1, Open: 1}
	look("it is cancelled while a member runs")
	lane.Next()
	back := store.Settlement{ID: reply.Deliveries[0].Job.ID, Token: reply.Deliveries[0].Job.Token, Outcome: store.Return}
	if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: []store.Settlement{back}}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Sessions().Close(ctx, session, false, lane); err != nil {
		t.Fatal(err)
	}
	want.State, want.Over, want.Open, want.Gone = "over", true, 0, 1
	look("it is over")
}

// What can't be said of a batch is an error that says why.
func TestBatchStatusErrors(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for what, c := range map[string]struct {
		ref  Ref
		want error
	}{
		"a zero one":             {Ref{}, signalbox.ErrInvalid},
		"that of no batch":       {(&Batch{}).Ref(), signalbox.ErrInvalid},
		"an ID too long":         {Ref{"default", q.Name(), strings.Repeat("a", 65)}, signalbox.ErrInvalid},
		"another namespace":      {Ref{"eu", q.Name(), "a"}, signalbox.ErrInvalid},
		"a queue that is unused": {Ref{"default", q.Name() + "-not", "a"}, ErrNoBatch},
	} {
		if st, err := s.BatchStatus(ctx, c.ref); !errors.Is(err, c.want) || st != (BatchStatus{}) {
			t.Errorf("%s: %+v, %v", what, st, err)
		}
	}
	res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BatchStatus(ctx, res.Ref()); !errors.Is(err, ErrNoBatch) || !strings.Contains(err.Error(), res.Ref().String()) {
		t.Errorf("a job: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := s.BatchStatus(ended, res.Ref()); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	claimAll(t, q)
}

// Asking needs no other rights than those of a producer.
func TestBatchStatusRights(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin, ctx := srv.Client(), context.Background()
	rules := []any{"ACL", "SETUSER", "user", "on", ">secret", "~*", "&*", "-@all", "+hello", "+ping", "+info", "+client|setname"}
	for _, command := range server.Commands(server.Producer) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	if err := admin.Do(ctx, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	q := checked(t, admin)
	b, err := newScheduler(t, admin).Batch(ctx, q.Name())
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "user", "secret" }))
	if st, err := s.BatchStatus(ctx, b.Ref()); err != nil || st.State != "unsealed" {
		t.Errorf("%+v, %v", st, err)
	}
	if err := admin.Do(ctx, "ACL", "SETUSER", "user", "-hget").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.BatchStatus(ctx, b.Ref()); err == nil || errors.Is(err, ErrNoBatch) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without the right: %v", err)
	}
}
