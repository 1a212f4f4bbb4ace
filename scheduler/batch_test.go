package scheduler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A call is a callback of a batch.
type call struct{ Of string }

func (c call) Kind() string { return "call." + c.Of }

func notes(from, to int) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for n := from; n < to && yield(Item{Args: note{n}}); n++ {
		}
	}
}

// kindsOf returns the kinds of jobs, in order.
func kindsOf(jobs []*signalbox.Job) (kinds []string) {
	for _, job := range jobs {
		kinds = append(kinds, job.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func addAll(t *testing.T, b *Batch, items iter.Seq[Item], opts ...BulkOption) (added, before int) {
	t.Helper()
	for i, res := range b.AddSeq(context.Background(), items, opts...) {
		switch {
		case res.Err != nil:
			t.Fatalf("item %d: %v", i, res.Err)
		case res.New:
			added++
		default:
			before++
		}
	}
	return added, before
}

// A batch of several chunks has its callbacks when it is sealed and all have completed. A producer that begins again adds nothing twice.
func TestBatch(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	make := func() *Batch {
		t.Helper()
		b, err := s.Batch(ctx, q.Name(), FlowID("news-7"), OnSuccess(call{"success"}, Priority(signalbox.PriorityHigh)), OnEnd(call{"end"}), OnFailure(call{"failure"}))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := make()
	if b.ID() != "news-7" || b.Queue() != q.Name() || b.Resumed() {
		t.Errorf("%q in %q, resumed: %v", b.ID(), b.Queue(), b.Resumed())
	}
	if added, before := addAll(t, b, notes(0, 1200), Header("a", "b")); added != 1200 || before != 0 {
		t.Errorf("%d were added, %d before", added, before)
	}
	again := make()
	if added, before := addAll(t, again, notes(0, 1200), Header("a", "b")); !again.Resumed() || added != 0 || before != 1200 {
		t.Errorf("resumed: %v, %d were added, %d before", again.Resumed(), added, before)
	}
	res, err := again.Add(ctx, note{1200}, ID("the-last"))
	if err != nil || !res.New || res.ID != "the-last" || res.Ref().Queue != q.Name() {
		t.Errorf("%+v, %v", res, err)
	}
	sealed, err := s.Batch(ctx, q.Name(), FlowID("sealed"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sealed.Add(ctx, note{-1}, ID("a"), After(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := sealed.Seal(ctx); err != nil {
		t.Error(err)
	}
	if _, err := sealed.Add(ctx, note{-2}); !errors.Is(err, ErrBatchOver) || !strings.Contains(err.Error(), "it is sealed") {
		t.Errorf("a job for a batch that is sealed: %v", err)
	}
	jobs := claimAll(t, q)
	if kinds := slices.Compact(kindsOf(jobs)); len(jobs) != 1201 || !slices.Equal(kinds, []string{"note"}) || jobs[0].Headers["a"] != "b" {
		t.Errorf("%d jobs before the seal: %v", len(jobs), kinds)
	}
	for range 2 {
		if err := b.Seal(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if kinds := kindsOf(claimAll(t, q)); !slices.Equal(kinds, []string{"call.end", "call.success"}) {
		t.Errorf("callbacks: %v", kinds)
	}
	if _, err := again.Add(ctx, note{1}); !errors.Is(err, ErrBatchOver) {
		t.Errorf("a job for a batch that is over: %v", err)
	}
}

// A producer whose source failed in the midst of a chunk begins again, also by other calls: each job is in once.
func TestBatchResumesByOtherCalls(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	make := func() *Batch {
		b, err := s.Batch(ctx, q.Name(), FlowID("news-7"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if added, _ := addAll(t, make(), notes(0, 537)); added != 537 {
		t.Errorf("%d were added", added)
	}
	one := make()
	for n := range 600 {
		res, err := one.Add(ctx, note{n})
		if err != nil || res.New != (n >= 537) || res.New != (res.ID != "") {
			t.Fatalf("job %d: %+v, %v", n, res, err)
		}
	}
	all := make()
	if added, before := addAll(t, all, notes(0, 1200)); added != 600 || before != 600 {
		t.Errorf("%d were added, %d before", added, before)
	}
	for i, n := range []int{40, 1190} { // in a chunk of which it has got a part, and at the end of the last one
		other := make()
		var errs []error
		for _, res := range other.AddSeq(ctx, func(yield func(Item) bool) {
			for k := range 1250 {
				if k == n {
					k = -1
				}
				if !yield(Item{Args: note{k}}) {
					return
				}
			}
		}) {
			errs = append(errs, res.Err)
		}
		if err := errs[len(errs)-1]; !errors.Is(err, ErrOtherItems) {
			t.Errorf("case %d: other jobs are added: %v", i, err)
		}
	}
	if err := all.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	got := claimAll(t, q)
	for n, job := range got {
		if want := fmt.Sprintf(`{"N":%d}`, n); string(job.Payload) != want {
			t.Fatalf("job %d has %s", n, job.Payload)
		}
	}
	if len(got) != 1200 {
		t.Errorf("%d jobs", len(got))
	}
}

// A producer that begins again with other jobs is told so.
func TestBatchOfOtherItems(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for round, n := range []int{1, 2} {
		b, err := s.Batch(ctx, q.Name(), FlowID("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = b.Add(ctx, note{n}); round == 0 && err != nil || round == 1 && !errors.Is(err, ErrOtherItems) {
			t.Errorf("round %d: %v", round, err)
		}
	}
	claimAll(t, q)
}

// A producer that begins again, and gives fewer jobs than the one before it, doesn't seal the batch. One that gives none may: it is another program's.
func TestBatchOfFewerItems(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for round, n := range []int{3, 2, 0, 2} {
		b, err := s.Batch(ctx, q.Name(), FlowID("x"))
		if err != nil {
			t.Fatal(err)
		}
		addAll(t, b, notes(0, n))
		if round == 0 { // it dies
			continue
		}
		switch err := b.Seal(ctx); {
		case round == 1 && (!errors.Is(err, ErrOtherItems) || !strings.Contains(err.Error(), "3, and this program has given it 2")):
			t.Errorf("a batch of three jobs is sealed by a producer of two: %v", err)
		case round > 1 && err != nil: // in the last round it is sealed
			t.Errorf("round %d: %v", round, err)
		}
	}
	claimAll(t, q)
}

// A chunk goes in as a whole or not at all: a queue that has no room for it refuses it, and takes it later.
func TestBatchOfAFullQueue(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	if _, err := q.Settings().SetMaxLength(ctx, 4); err != nil {
		t.Fatal(err)
	}
	b, err := s.Batch(ctx, q.Name(), OnEnd(call{"end"}))
	if err != nil {
		t.Fatal(err)
	}
	var full *signalbox.QueueFullError
	n := 0
	for _, res := range b.AddSeq(ctx, notes(0, 5)) {
		if n++; !errors.As(res.Err, &full) || full.Length != 1 || full.Max != 4 || !strings.Contains(res.Err.Error(), "add at most 4 at a time") {
			t.Fatal(res.Err)
		}
	}
	if added, _ := addAll(t, b, notes(0, 3)); n != 5 || added != 3 {
		t.Errorf("%d were refused, %d were added", n, added)
	}
	if _, err := s.Batch(ctx, q.Name(), OnEnd(call{"end"})); !errors.Is(err, signalbox.ErrQueueFull) {
		t.Errorf("a batch with a callback for a full queue: %v", err)
	}
	if err := b.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	claimAll(t, q)
}

// A chunk that waits for room goes in as there is some, also where the queue never has room for all of it. What makes room tells it.
func TestBatchWaitsForRoom(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	s.roomLook = time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := q.Settings().SetMaxLength(ctx, 10); err != nil {
		t.Fatal(err)
	}
	b, err := s.Batch(ctx, q.Name(), OnEnd(call{"end"}))
	if err != nil {
		t.Fatal(err)
	}
	const all = 60
	type outcome struct {
		n   int
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		for i, res := range b.AddSeq(ctx, notes(0, all), WaitForRoom()) {
			if res.Err != nil || !res.New || i != o.n {
				o.err = fmt.Errorf("item %d: %+v", i, res)
				break
			}
			o.n++
		}
		ended <- o
	}()
	ran := 0
	for ran < all {
		redistest.Eventually(t, func() bool { n, err := q.Looks().Counts(ctx); return err != nil || n.Ready > 0 }, "jobs come in")
		ran += len(claimAll(t, q))
	}
	if o := <-ended; o.n != all || o.err != nil || ran != all {
		t.Errorf("%d were added, %v; %d ran", o.n, o.err, ran)
	}
	if err := b.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	if jobs := claimAll(t, q); len(jobs) != 1 || jobs[0].Kind != "call.end" {
		t.Errorf("behind the last member came %v", kindsOf(jobs))
	}
}

// Of a chunk whose wait ends, the jobs that are in are told as such.
func TestBatchWaitsForRoomInVain(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	if _, err := q.Settings().SetMaxLength(context.Background(), 4); err != nil {
		t.Fatal(err)
	}
	b, err := s.Batch(context.Background(), q.Name())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := make(chan string, 1)
	go func() {
		var in, out []int
		for i, res := range b.AddSeq(ctx, notes(0, 6), WaitForRoom()) {
			if res.Err == nil && res.New {
				in = append(in, i)
			} else if errors.Is(res.Err, context.Canceled) && (errors.Is(res.Err, signalbox.ErrQueueFull) || errors.Is(res.Err, ErrUncertain)) { // its context may end while it looks
				out = append(out, i)
			}
		}
		said <- fmt.Sprint(in, out)
	}()
	redistest.Eventually(t, func() bool { n, err := q.Looks().Counts(ctx); return err == nil && n.Ready == 4 }, "four are in")
	waitsFor(t, s, q, 1)
	cancel()
	if got := <-said; got != "[0 1 2 3] [4 5]" {
		t.Errorf("in and out are %s", got)
	}
	claimAll(t, q)
	if added, before := addAll(t, b, notes(4, 6)); added != 2 || before != 0 {
		t.Errorf("then %d are added, %d were before", added, before)
	}
	if err := b.Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
	claimAll(t, q)
}

// A Redis that is out of memory takes no batch and no members, and the error says what to do. It seals a batch, whose members end.
func TestBatchOfAFullRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t, "--maxmemory-policy", "noeviction").Client()
	s, q := newScheduler(t, rdb), checked(t, rdb)
	ctx := context.Background()
	b, err := s.Batch(ctx, q.Name(), OnSuccess(call{"success"}))
	if err != nil {
		t.Fatal(err)
	}
	addAll(t, b, notes(0, 3))
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	const want = "Redis is at its maxmemory"
	if _, err := b.Add(ctx, note{3}); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrUncertain) {
		t.Errorf("add: %v", err)
	}
	if _, err := s.Batch(ctx, q.Name(), OnEnd(call{"end"})); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrUncertain) {
		t.Errorf("batch: %v", err)
	}
	if err := b.Seal(ctx); err != nil {
		t.Errorf("seal: %v", err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(claimAll(t, q)); n != 4 {
		t.Errorf("%d jobs ran, want 3 and a callback", n)
	}
}

// Mistakes are reported with the option's name, and nothing is done.
func TestBatchMistakes(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for want, opts := range map[string][]BatchOption{
		"FlowID":              {FlowID("a b")},
		"flow ID: 65 bytes":   {FlowID(strings.Repeat("x", 65))},
		"FlowTimeout":         {FlowTimeout(0)},
		"SealWithin":          {SealWithin(-time.Second)},
		"number 2 of the":     {FlowTimeout(time.Hour), nil},
		"OnEnd: signalbox":    {OnEnd(nil)},
		"OnSuccess":           {OnSuccess(call{"a"}, After(time.Hour))},
		"OnFailure":           {OnFailure(call{"a"}, Unique("u", UntilStarted))},
		"all jobs of a batch": {OnEnd(call{"a"}, Queue("another"))},
		"OnEnd: signalbox: invalid ID report: another": {OnSuccess(call{"a"}, ID("report")), OnEnd(call{"b"}, ID("report"))},
	} {
		if _, err := s.Batch(ctx, q.Name(), opts...); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	b, err := s.Batch(ctx, q.Name())
	if err != nil {
		t.Fatal(err)
	}
	for want, opts := range map[string][]EnqueueOption{
		"Queue: another": {Queue("another")},
		"WaitReplicas":   {WaitReplicas(1, time.Second)},
		"Replace":        {Unique("u", UntilStarted), Replace()},
	} {
		if _, err := b.Add(ctx, note{1}, opts...); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := b.Add(ctx, nil); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("no arguments: %v", err)
	}
	if other, ok := BatchOf(ctx); ok {
		t.Error("a batch of no handler")
	} else if _, err := other.Add(ctx, note{1}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Error(err)
	} else if err := other.Seal(ctx); !errors.Is(err, signalbox.ErrInvalid) {
		t.Error(err)
	}
	taken, err := s.Batch(ctx, q.Name(), OnEnd(call{"a"}, ID("report")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Batch(ctx, q.Name(), OnEnd(call{"a"}, ID("report"))); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "report") {
		t.Errorf("a callback whose ID is taken: %v", err)
	}
	for _, b := range []*Batch{b, taken} {
		if err := b.Seal(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if kinds := kindsOf(claimAll(t, q)); !slices.Equal(kinds, []string{"call.a"}) {
		t.Errorf("%v", kinds)
	}
}

// A batch that is forgotten is ErrNoBatch.
func TestBatchForgotten(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	b := &Batch{s: s, queue: q.Name(), store: q, ref: facts.FlowRef{Name: "a", Mark: "b"}, lane: q.NewLane(), turn: make(chan struct{}, 1)}
	if _, err := b.Add(ctx, note{1}); !errors.Is(err, ErrNoBatch) {
		t.Error(err)
	}
	if err := b.Seal(ctx); !errors.Is(err, ErrNoBatch) {
		t.Error(err)
	}
}

// A call that is made in the loop of an AddSeq of the same batch ends with its ctx.
func TestBatchAddsInItsLoop(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	b, err := s.Batch(context.Background(), q.Name())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range b.AddSeq(context.Background(), notes(0, 1)) {
		cancel()
		if _, err := b.Add(ctx, note{1}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "another AddSeq of the batch goes on") {
			t.Error(err)
		}
	}
	if res, err := b.Add(context.Background(), note{1}); err != nil || !res.New {
		t.Errorf("%+v, %v", res, err)
	}
	claimAll(t, q)
}
