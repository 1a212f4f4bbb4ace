package signalbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-go/signalbox"
)

type settledTestKey struct{}

// Each function that was registered is called once, in order, even if one of them panics.
func TestOnSettled(t *testing.T) {
	t.Parallel()
	d := &signalbox.DeliveryContext{Context: context.WithValue(t.Context(), settledTestKey{}, 7)}
	ctx, cancel := context.WithCancel(d) // what a middleware passes on
	defer cancel()
	if ctx.Value(settledTestKey{}) != 7 {
		t.Error("the values of the context are hidden")
	}
	var heard []string
	for i := range 4 {
		if !signalbox.OnSettled(ctx, func(s signalbox.Settled) {
			heard = append(heard, fmt.Sprint(i, " ", s.Outcome))
			if i%2 == 1 {
				panic(i)
			}
		}) {
			t.Errorf("number %d will not be called", i)
		}
	}
	settle := d.Seal()
	if signalbox.OnSettled(ctx, func(signalbox.Settled) { t.Error("one that came too late is called") }) {
		t.Error("one that comes too late will be called")
	}
	err := settle(signalbox.Settled{Outcome: signalbox.OutcomeDead})
	if want := []string{"0 dead", "1 dead", "2 dead", "3 dead"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	p, ok := errors.AsType[*signalbox.PanicError](err)
	if !ok || p.Value != 1 || len(p.Stack) == 0 || len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Errorf("the error is %v, want both panics", err)
	}
	if d.Seal() != nil {
		t.Error("the end can be told again")
	}
}

// With a context that belongs to no delivery, OnSettled returns false.
func TestOnSettledElsewhere(t *testing.T) {
	t.Parallel()
	if signalbox.OnSettled(t.Context(), func(signalbox.Settled) {}) {
		t.Error("it will be called")
	}
}

// If no function is registered, the end of a delivery allocates nothing.
func TestOnSettledUnused(t *testing.T) {
	ctx := t.Context()
	var d signalbox.DeliveryContext
	if n := testing.AllocsPerRun(100, func() {
		d = signalbox.DeliveryContext{Context: ctx}
		if d.Seal() != nil {
			t.Error("somebody waits")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A middleware learns how deliveries ended in Redis, not only what handlers returned. This one counts dead jobs. A test
// of it needs no worker.
func ExampleOnSettled() {
	dead := 0
	countDead := func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			signalbox.OnSettled(ctx, func(s signalbox.Settled) {
				if s.Outcome == signalbox.OutcomeDead {
					dead++
					fmt.Println("dead:", job.Kind, "-", s.Err)
				}
			})
			return next.Handle(ctx, job)
		})
	}
	// A program passes countDead to worker.Use. The worker does the rest.
	handler := countDead(signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error {
		return errors.New("mail server busy")
	}))
	ctx := &signalbox.DeliveryContext{Context: context.Background()}
	err := handler.Handle(ctx, &signalbox.Job{Kind: "email.welcome"})
	ctx.Seal()(signalbox.Settled{Outcome: signalbox.OutcomeDead, Err: err})
	fmt.Println(dead)
	// Output:
	// dead: email.welcome - mail server busy
	// 1
}
