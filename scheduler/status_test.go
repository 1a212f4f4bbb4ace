package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// Status says how a job is, from its enqueue to what is kept of it.
func TestStatus(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), After(time.Hour), Retain(time.Hour), MaxAttempts(3))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := ParseRef(res.Ref().String())
	if err != nil {
		t.Fatal(err)
	}
	status := func(want signalbox.State) Status {
		t.Helper()
		st, err := s.Status(ctx, ref)
		if err != nil || st.State != want || st.Ref != ref || st.Kind != "note" || st.MaxAttempts != 3 || st.EnqueuedAt.IsZero() || st.DueAt.IsZero() {
			t.Fatalf("%+v, %v; want %s", st, err, want)
		}
		if st.EndedAt.IsZero() != want.Live() || st.StartedAt.IsZero() == (want == signalbox.StateRunning || want == signalbox.StateCompleted) || st.Cancelling || st.Progress != nil && want != signalbox.StateRunning {
			t.Errorf("%s: %+v", want, st)
		}
		if value, err := ReadResult[note](st); want != signalbox.StateCompleted && !errors.Is(err, ErrNoResult) {
			t.Errorf("%s: the result %+v, %v", want, value, err)
		}
		return st
	}
	run := func() {
		t.Helper()
		if _, err := q.Do(ctx, store.RunJobs(time.Time{}), []string{ref.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if st := status(signalbox.StateScheduled); st.DueAt.Sub(st.EnqueuedAt) < time.Hour || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
	run()
	status(signalbox.StateReady)

	session, lane := store.NewSession("w"), q.NewLane()
	if _, _, err := q.Sessions().Open(ctx, session, time.Minute); err != nil {
		t.Fatal(err)
	}
	claim := func() store.Delivery {
		t.Helper()
		lane.Next()
		reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 1})
		if err != nil || len(reply.Deliveries) != 1 {
			t.Fatal(reply, err)
		}
		return reply.Deliveries[0]
	}
	settle := func(d store.Delivery, change func(r *store.Settlement)) {
		t.Helper()
		r := store.Settlement{ID: d.Job.ID, Kind: d.Job.Kind, Token: d.Job.Token, Size: d.Size()}
		change(&r)
		lane.Next()
		if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: []store.Settlement{r}}); err != nil {
			t.Fatal(err)
		}
	}
	d := claim()
	if err := q.Sessions().WriteProgress(ctx, session, time.Minute, []store.Progress{{ID: "another", Token: 1, Done: 9}, {ID: ref.ID, Token: d.Job.Token, Done: 3, Total: 7, Note: "rows", At: time.Unix(1_750_000_000, 0)}}); err != nil {
		t.Fatal(err)
	}
	if st := status(signalbox.StateRunning); st.Progress == nil || *st.Progress != (Progress{3, 7, "rows", time.Unix(1_750_000_000, 0)}) {
		t.Errorf("progress: %+v", st.Progress)
	}
	settle(d, func(r *store.Settlement) {
		r.Outcome = store.Dead
		r.Record, err = d.FailedAttempt("boom", &store.Attempt{Number: 1, Error: "boom"})
	})
	if st := status(signalbox.StateDead); st.Failed != 1 || st.LastError != "boom" {
		t.Errorf("%+v", st)
	}
	run()
	d = claim()
	if _, err := q.Do(ctx, store.CancelJobs("no"), []string{ref.ID}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(ctx, ref); err != nil || !st.Cancelling || st.State != signalbox.StateRunning {
		t.Errorf("%+v, %v", st, err)
	}
	settle(d, func(r *store.Settlement) { r.Outcome = store.Return })
	status(signalbox.StateCancelled)
	run()
	d = claim()
	at := time.Unix(1_750_000_000, 0)
	settle(d, func(r *store.Settlement) {
		r.Outcome, r.Keep = store.Completed, store.Kept(&store.Attempt{Number: 1, At: at, Worker: "w"}, []byte(`{"N":42}`))
	})
	st := status(signalbox.StateCompleted)
	if value, err := ReadResult[note](st); err != nil || value.N != 42 || !st.StartedAt.Equal(at) {
		t.Errorf("the result is %+v, %v, of %+v", value, err, st)
	}
	if _, err := ReadResult[[]int](st); err == nil || errors.Is(err, ErrNoResult) {
		t.Errorf("as another type: %v", err)
	}
	if _, err := q.Do(ctx, store.DeleteJobs(), []string{ref.ID}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(ctx, ref); !errors.Is(err, ErrNotFound) || st.State != "" || !strings.Contains(err.Error(), ref.String()) {
		t.Errorf("a job that was deleted: %+v, %v", st, err)
	}
	if _, err := q.Sessions().Close(ctx, session, false, lane); err != nil {
		t.Fatal(err)
	}
}

// What can't be said is an error that says why.
func TestStatusErrors(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for what, c := range map[string]struct {
		ref  Ref
		want error
	}{
		"a zero one":             {Ref{}, signalbox.ErrInvalid},
		"no ID":                  {Ref{"default", q.Name(), ""}, signalbox.ErrInvalid},
		"another namespace":      {Ref{"eu", q.Name(), "a"}, signalbox.ErrInvalid},
		"a queue that is unused": {Ref{"default", q.Name() + "-not", "a"}, ErrNotFound},
	} {
		if st, err := s.Status(ctx, c.ref); !errors.Is(err, c.want) || st.State != "" {
			t.Errorf("%s: %+v, %v", what, st, err)
		}
	}
	res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()))
	if err != nil {
		t.Fatal(err)
	}
	known := len(s.queues)
	for _, name := range []string{"made-up-1", "made-up-2"} {
		if _, err := s.Status(ctx, Ref{"default", name, "a"}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	if len(s.queues) != known {
		t.Error("a reference that somebody has made up has the scheduler use a queue")
	}
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	p.Reply(calls, "-NOPERM this user has no permissions to run the 'evalsha' command", -1)
	if _, err := newScheduler(t, p.Client()).Status(ctx, res.Ref()); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("where Redis refuses it: %v", err)
	}
	claimAll(t, q)
	if _, err := s.Status(ctx, res.Ref()); !errors.Is(err, ErrNotFound) {
		t.Errorf("a job that has completed and wasn't kept: %v", err)
	}
}

// sealed is a codec that binds values to their jobs, and has a key, or not.
type sealed struct{}

func (sealed) Encoding() string { return "sealed" }

func (sealed) Encode(job *signalbox.Job, args any) ([]byte, error) {
	b, err := json.Marshal(args)
	return append([]byte(job.EffectKey()+" "), b...), err
}

func (sealed) Decode(job *signalbox.Job, payload []byte, args any) error {
	text, bound := strings.CutPrefix(string(payload), job.EffectKey()+" ")
	if !bound {
		return errors.New("it is of another job")
	}
	return json.Unmarshal([]byte(text), args)
}

// The result goes through the job's codec, with the job to which it is bound.
func TestStatusCodec(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, namespace := range []string{"", redistest.Name(t)} {
		q := store.New(rdb, namespace, redistest.Name(t))
		ctx := context.Background()
		s, err := New(rdb, Config{Namespace: namespace, Codec: sealed{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), Retain(time.Hour), ID("a"))
		if err != nil {
			t.Fatal(err)
		}
		session, lane := store.NewSession("w"), q.NewLane()
		if _, _, err := q.Sessions().Open(ctx, session, time.Minute); err != nil {
			t.Fatal(err)
		}
		lane.Next()
		reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 1})
		if err != nil || len(reply.Deliveries) != 1 {
			t.Fatal(reply, err)
		}
		d := reply.Deliveries[0]
		var result []byte
		if result, err = (sealed{}).Encode(d.Job, note{42}); err != nil {
			t.Fatal(err)
		}
		lane.Next()
		done := store.Settlement{ID: "a", Token: d.Job.Token, Outcome: store.Completed, Keep: store.Kept(&store.Attempt{Number: 1}, result)}
		if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: []store.Settlement{done}}); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Sessions().Close(ctx, session, false, lane); err != nil {
			t.Fatal(err)
		}
		st, err := s.Status(ctx, res.Ref())
		if err != nil {
			t.Fatal(err)
		}
		if value, err := ReadResult[note](st); err != nil || value.N != 42 {
			t.Errorf("namespace %q: %+v, %v", namespace, value, err)
		}
		plain, err := New(rdb, Config{Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if st, err = plain.Status(ctx, res.Ref()); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResult[note](st); !errors.Is(err, signalbox.ErrUnknownEncoding) {
			t.Errorf("without the codec: %v", err)
		}
		if err := check.Queue(ctx, q.Site()); err != nil {
			t.Error(err)
		}
	}
}

// A producer needs two rights more.
func TestStatusRights(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin, ctx := srv.Client(), context.Background()
	rules := []any{"ACL", "SETUSER", "user", "on", ">secret", "~*", "&*", "-@all", "+hello", "+ping", "+info", "+client|setname", "+hgetall", "+lpos"}
	for _, command := range server.Commands(server.Producer) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	if err := admin.Do(ctx, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	q := checked(t, admin)
	s := newScheduler(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "user", "secret" }))
	res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(ctx, res.Ref()); err != nil || st.State != signalbox.StateReady {
		t.Errorf("a ready job: %+v, %v", st, err)
	}
	session, lane := store.NewSession("w"), q.NewLane()
	if _, _, err := q.Sessions().Open(ctx, session, time.Minute); err != nil {
		t.Fatal(err)
	}
	lane.Next()
	if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 1}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Status(ctx, res.Ref()); err != nil || st.State != signalbox.StateRunning {
		t.Errorf("a running one: %+v, %v", st, err)
	}
	if _, err := s.Status(ctx, Ref{"default", q.Name() + "-not", "a"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a queue that is unused: %v", err)
	}
	if err := admin.Do(ctx, "ACL", "SETUSER", "user", "-lpos").Err(); err != nil {
		t.Fatal(err)
	}
	other, err := s.Enqueue(ctx, note{2}, Queue(q.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Status(ctx, other.Ref()); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("without one of the rights: %v", err)
	}
	if _, err := q.Sessions().Close(ctx, session, false, lane); err != nil {
		t.Fatal(err)
	}
}
