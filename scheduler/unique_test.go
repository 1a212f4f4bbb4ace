package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// An order is the arguments of the jobs of these tests.
type order struct {
	User int            `json:"user"`
	Note string         `json:"note,omitempty"`
	Tags map[string]any `json:"tags"`
}

func (order) Kind() string { return "order" }

// A sentence is encoded as a JSON string.
type sentence string

func (sentence) Kind() string { return "sentence" }

// reversed has the same JSON object as order, with its fields in another order.
type reversed struct {
	Tags map[string]any `json:"tags"`
	User int            `json:"user"`
}

func (reversed) Kind() string { return "order" }

func TestUniqueOptions(t *testing.T) {
	t.Parallel()
	keyOf := func(args signalbox.Args, opts ...EnqueueOption) string {
		t.Helper()
		plan, err := Resolve(args, opts...)
		if err != nil || plan.UniqueKey == "" {
			t.Fatalf("%v: key %q, %v", args, plan.UniqueKey, err)
		}
		return plan.UniqueKey
	}
	tags := map[string]any{"a": 1, "b": []int{1, 2}}
	all, byUser := UniqueBy(UntilEnded), UniqueBy(UntilEnded, "user")
	for name, same := range map[string]bool{
		"equal arguments":          keyOf(order{User: 1, Tags: tags}, all) == keyOf(order{User: 1, Tags: map[string]any{"b": []int{1, 2}, "a": 1}}, all),
		"another order of fields":  keyOf(order{User: 1, Tags: tags}, all) == keyOf(reversed{User: 1, Tags: tags}, all),
		"the user alone":           keyOf(order{User: 1, Note: "x"}, byUser) == keyOf(order{User: 1, Note: "y"}, byUser),
		"the fields in any order":  keyOf(order{User: 1, Tags: tags}, UniqueBy(0, "user", "tags")) == keyOf(order{User: 1, Tags: tags, Note: "x"}, UniqueBy(0, "tags", "user")),
		"the last option":          keyOf(order{User: 1}, byUser, Unique("k", UntilEnded)) == "k",
		"the last option, reverse": keyOf(order{User: 1}, Unique("k", UntilEnded), byUser) == keyOf(order{User: 1}, byUser),
	} {
		if !same {
			t.Errorf("%s: the keys differ", name)
		}
	}
	for name, same := range map[string]bool{
		"another user":          keyOf(order{User: 1}, byUser) == keyOf(order{User: 2}, byUser),
		"another field":         keyOf(order{User: 1, Note: "x"}, all) == keyOf(order{User: 1}, all),
		"all, and one":          keyOf(order{User: 1}, all) == keyOf(order{User: 1}, byUser),
		"numbers of 17 digits":  keyOf(order{User: 90071992547409921}, byUser) == keyOf(order{User: 90071992547409922}, byUser),
		"a user of another day": keyOf(order{User: 1}, byUser) == "1",
	} {
		if same {
			t.Errorf("%s: the keys are the same", name)
		}
	}
	for _, c := range []struct {
		args signalbox.Args
		opt  EnqueueOption
		want string
	}{
		{order{}, Unique("", UntilEnded), "unique key: it is empty"},
		{order{}, Unique("a b", UntilEnded), `byte 1 is ' '`},
		{order{}, Unique(strings.Repeat("k", 201), UntilEnded), "201 bytes"},
		{order{}, Unique("k", Window(time.Microsecond)), "want UntilEnded, UntilStarted or Window(d)"},
		{order{}, Unique("k", Window(10_001*24*time.Hour)), "want UntilEnded"},
		{order{}, UniqueBy(-7), "UniqueBy"},
		{order{}, UniqueBy(UntilEnded, "usr"), `no field "usr"`},
		{order{}, UniqueBy(UntilEnded, "note"), `no field "note"`},
		{order{}, Replace(), "Replace: it is given without a unique key"},
		{order{}, Debounce("k", time.Second, time.Millisecond), "Debounce"},
		{order{}, Debounce("", time.Second, time.Minute), "unique key"},
		{sentence("text"), UniqueBy(UntilEnded, "user"), "no JSON object"},
	} {
		if _, err := Resolve(c.args, c.opt); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	plan, err := Resolve(order{}, Unique("k", Window(time.Hour)))
	if err != nil || plan.UniqueScope != Window(time.Hour) {
		t.Errorf("%+v, %v", plan, err)
	}
}

// The result names the job that has the key, and its state.
func TestUniqueResults(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	in := Queue(q.Name())
	unique := Unique("k", UntilEnded)
	res, err := s.Enqueue(ctx, note{1}, in, ID("a"), unique)
	if want := (Result{ID: "a", New: true}); err != nil || res.said() != want {
		t.Fatal(res, err)
	}
	res, err = s.Enqueue(ctx, note{2}, in, ID("b"), unique)
	if want := (Result{ID: "b", Existing: "a", State: signalbox.StateReady}); err != nil || res.said() != want {
		t.Errorf("%+v, %v; want %+v", res, err, want)
	}
	res, err = s.Enqueue(ctx, note{2}, in, ID("a"), Unique("other", UntilEnded))
	if want := (Result{ID: "a", Existing: "a", State: signalbox.StateReady}); err != nil || res.said() != want {
		t.Errorf("%+v, %v; want %+v", res, err, want)
	}
	results, err := s.EnqueueMany(ctx, []Item{
		{note{3}, []EnqueueOption{ID("c")}},
		{note{4}, []EnqueueOption{ID("d"), After(time.Hour)}},
		{note{4}, []EnqueueOption{ID("e")}},
		{note{5}, []EnqueueOption{ID("f"), unique}},
		{note{6}, []EnqueueOption{ID("g"), UniqueBy(UntilEnded, "M")}},
	}, in, UniqueBy(UntilStarted))
	want := []Result{
		{ID: "c", New: true},
		{ID: "d", New: true},
		{ID: "e", Existing: "d", State: signalbox.StateScheduled},
		{ID: "f", Existing: "a", State: signalbox.StateReady},
		{ID: "g", Err: results[4].Err},
	}
	same := func(a, b Result) bool { return a.said() == b }
	if !errors.Is(err, signalbox.ErrInvalid) || !slices.EqualFunc(results, want, same) {
		t.Errorf("%+v, %v; want %+v", results, err, want)
	}
	if jobs := claimAll(t, q); len(jobs) != 2 {
		t.Errorf("%d jobs", len(jobs))
	}
	if res, err = s.Enqueue(ctx, note{2}, in, ID("b"), unique); err != nil || !res.New {
		t.Errorf("after the end: %+v, %v", res, err)
	}
}

// Calls of one key make one job, with the arguments of the last one. It is due when no call has come for a while, or after the longest delay.
func TestDebounce(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	in := Queue(q.Name())
	first, err := s.Enqueue(ctx, note{1}, in, Debounce("k", time.Hour, 90*time.Minute))
	if err != nil || !first.New || first.Updated {
		t.Fatal(first, err)
	}
	res, err := s.Enqueue(ctx, note{2}, in, ID("b"), Debounce("k", 2*time.Hour, 90*time.Minute))
	if want := (Result{ID: "b", Existing: first.ID, State: signalbox.StateScheduled, Updated: true}); err == nil || res.said() == want {
		t.Errorf("a delay above the longest: %+v, %v", res, err)
	}
	res, err = s.Enqueue(ctx, note{2}, in, ID("b"), Debounce("k", time.Millisecond, 90*time.Minute))
	if want := (Result{ID: "b", Existing: first.ID, State: signalbox.StateScheduled, Updated: true}); err != nil || res.said() != want {
		t.Errorf("%+v, %v; want %+v", res, err, want)
	}
	redistest.Eventually(t, func() bool {
		jobs := claimAll(t, q)
		return len(jobs) == 1 && jobs[0].ID == first.ID && string(jobs[0].Payload) == `{"N":2}`
	}, "the job is due, with the last arguments")
	results, err := s.EnqueueMany(ctx, []Item{{Args: note{3}}, {Args: note{4}}}, in, Unique("m", UntilStarted), Replace())
	if err != nil || !results[0].New || !results[1].Updated || results[1].Existing != results[0].ID {
		t.Errorf("%+v, %v", results, err)
	}
	if jobs := claimAll(t, q); len(jobs) != 1 || string(jobs[0].Payload) != `{"N":4}` {
		t.Errorf("%+v", jobs)
	}
}

// A saltedCodec makes another payload each time, as one that encrypts does, and binds it to the job.
type saltedCodec struct {
	boundCodec
	salt int
}

func (c *saltedCodec) Encode(job *signalbox.Job, args any) ([]byte, error) {
	data, err := c.boundCodec.Encode(job, args)
	c.salt++
	return fmt.Appendf(data, " %d", c.salt), err
}

// The arguments count, and not what a codec makes of them. The payload that replaces another one is bound to the key with which it is delivered.
func TestUniqueWithCodec(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	by := UniqueBy(UntilStarted, "user")
	first, err1 := s.Enqueue(ctx, order{User: 1, Note: "old"}, Queue(q.Name()), by, Retain(time.Hour))
	s.codec = &saltedCodec{}
	second, err2 := s.Enqueue(ctx, order{User: 1, Note: "other"}, Queue(q.Name()), by)
	results, err3 := s.EnqueueMany(ctx, []Item{{order{User: 1, Note: "newer"}, nil}, {order{User: 2}, nil}}, Queue(q.Name()), by)
	third, err4 := s.Enqueue(ctx, order{User: 1, Note: "new"}, Queue(q.Name()), by, Replace())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if !first.New || second.Existing != first.ID || results[0].Existing != first.ID || !results[1].New || third.Existing != first.ID || !third.Updated {
		t.Errorf("%+v, %+v, %+v, %+v", first, second, results, third)
	}
	// Older workers, which know no codecs, must not take it for JSON.
	if record, err := s.rdb.HGet(ctx, "signalbox:{default:"+q.Name()+"}:jobs", first.ID).Result(); err != nil || record[0] != 2 {
		t.Errorf("the updated record is of version %d, %v", record[0], err)
	}
	later := []EnqueueOption{Queue(q.Name()), Debounce("k", time.Millisecond, time.Second)}
	fourth, err1 := s.Enqueue(ctx, sentence("old"), later...)
	fifth, err2 := s.Enqueue(ctx, sentence("new"), later...)
	if err := errors.Join(err1, err2); err != nil || !fourth.New {
		t.Fatal(fourth, fifth, err)
	}
	jobs := make(map[string]*signalbox.Job)
	redistest.Eventually(t, func() bool {
		for _, j := range claimAll(t, q) {
			jobs[j.ID] = j
		}
		return len(jobs) == 3 || !fifth.Updated && len(jobs) == 4
	}, "all jobs are due")
	for _, j := range jobs {
		if want := j.Kind + " " + j.EffectKey() + " "; !strings.HasPrefix(string(j.Payload), want) || j.Encoding != "bound" {
			t.Errorf("job %s has payload %s in encoding %q, want %s", j.ID, j.Payload, j.Encoding, want)
		}
	}
	if j := jobs[first.ID]; j == nil || !strings.Contains(string(j.Payload), `"note":"new"`) {
		t.Errorf("the updated job: %+v", j)
	}
}

// A call that waits for replicas says which job has the key, also if the replicas don't come, and if the caller leaves.
func TestUniqueWaitsForReplicas(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	ctx, unique := context.Background(), Unique("k", UntilEnded)
	first, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), unique)
	if err != nil {
		t.Fatal(err)
	}
	short := WaitReplicas(1, time.Millisecond)
	res, err := s.Enqueue(ctx, note{2}, Queue(q.Name()), unique, short)
	if !errors.Is(err, ErrNotDurable) || res.New || res.Existing != first.ID {
		t.Errorf("%+v, %v", res, err)
	}
	results, err := s.EnqueueMany(ctx, []Item{{note{2}, nil}, {note{3}, []EnqueueOption{ID("b"), Unique("other", UntilEnded)}}, {note{4}, nil}}, Queue(q.Name()), unique, short)
	if !errors.Is(err, ErrNotDurable) || results[0].Existing != first.ID || !results[1].New || results[2].Existing != first.ID {
		t.Errorf("%+v, %v", results, err)
	}
	held, free := p.HoldReplies(redistest.Command("wait"))
	defer free()
	leaving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		var err error
		res, err = s.Enqueue(leaving, note{2}, Queue(q.Name()), unique, WaitReplicas(1, time.Hour))
		ended <- err
	}()
	<-held
	cancel()
	if err := <-ended; !errors.Is(err, ErrNotDurable) || res.New || res.Existing != first.ID {
		t.Errorf("left: %+v, %v", res, err)
	}
}

// EnqueueSeq names the jobs that have the keys. When it is made again after a crash, the jobs that are in keep their keys for themselves.
func TestUniqueOfASeq(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	items := func(yield func(Item) bool) {
		for i := range 300 {
			if !yield(Item{note{i}, []EnqueueOption{ID(fmt.Sprint("job", i)), Unique(fmt.Sprint("k", i/2), Window(time.Hour))}}) {
				return
			}
		}
	}
	for round := range 2 {
		n := 0
		for i, res := range s.EnqueueSeq(context.Background(), items, Queue(q.Name()), IfAbsent()) {
			n++
			has := fmt.Sprint("job", i/2*2)
			if first := round == 0 && i%2 == 0; res.Err != nil || res.New != first || !first && res.Existing != has {
				t.Fatalf("round %d, item %d: %+v", round, i, res)
			}
		}
		if n != 300 {
			t.Errorf("%d results", n)
		}
	}
}

// Calls of one key start one job in a window, and the last one's arguments run at its end.
func TestThrottle(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	in := Queue(q.Name())
	opts := []EnqueueOption{in, Throttle("k", 100*time.Millisecond)}
	first, err := s.Enqueue(ctx, note{1}, opts...)
	if err != nil || !first.New {
		t.Fatal(first, err)
	}
	jobs := claimAll(t, q)
	if len(jobs) != 1 || jobs[0].ID != first.ID {
		t.Fatalf("the first one isn't due: %v", jobs)
	}
	results, err := s.EnqueueMany(ctx, []Item{{note{2}, nil}, {note{3}, nil}}, in, Throttle("k", time.Minute))
	if err != nil || !results[0].New || results[1].New || !results[1].Updated || results[1].Existing != results[0].ID {
		t.Fatalf("%+v, %v", results, err)
	}
	var last []*signalbox.Job
	redistest.Eventually(t, func() bool { last = append(last, claimAll(t, q)...); return len(last) > 0 }, "the last one is due")
	if len(last) != 1 || last[0].ID != results[0].ID || string(last[0].Payload) != `{"N":3}` {
		t.Errorf("%+v", last)
	}
	if apart := last[0].ClaimedAt.Sub(jobs[0].ClaimedAt); apart < 100*time.Millisecond {
		t.Errorf("it starts %v after the first one", apart)
	}
	plan, err := Resolve(note{1}, opts...)
	if err != nil || plan.Throttle != 100*time.Millisecond || plan.UniqueKey != "k" || plan.UniqueScope != UntilStarted || !plan.Replace {
		t.Errorf("%+v, %v", plan, err)
	}
	for want, opts := range map[string][]EnqueueOption{
		"1ns; want":         {Throttle("k", 1)},
		"240001h0m0s; want": {Throttle("k", 240_001*time.Hour)},
		"unique key":        {Throttle("", time.Minute)},
		"At, After or":      {Throttle("k", time.Minute), After(time.Second)},
		"Debounce; want":    {Debounce("k", time.Second, time.Minute), Throttle("k", time.Minute)},
	} {
		if _, err := Resolve(note{1}, opts...); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
