package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// order has a field of each kind that is easy to get wrong with JSON.
type order struct {
	ID       int64          `json:"id"`
	Customer customer       `json:"customer"`
	Lines    []line         `json:"lines"`
	Numbers  map[string]int `json:"numbers"`
	Due      time.Time
	Small    int8 `json:"small,omitempty"`
	embedded
	//lint:ignore U1000 JSON must not reach it
	hidden int
}

type customer struct {
	Name *string `json:"name"`
}

type line struct {
	Count int `json:"count"`
}

type embedded struct {
	Note string `json:"note"`
}

func (order) Kind() string { return "order" }

// decodeOrder returns the worker's error for a payload.
func decodeOrder(payload string, strict bool) error {
	h := newTyped(func(context.Context, *signalbox.Job, order) error { return nil })
	h.strict = strict
	_, err := h.decode([]byte(payload))
	return err
}

// tree is an argument of any depth.
type tree struct {
	Kid *tree `json:"kid"`
	N   int   `json:"n"`
}

func (tree) Kind() string { return "tree" }

// The search for a mistake has a maximum depth. Each level decodes everything below it again, and the sender of a payload chooses its
// depth.
func TestDepthOfAMisfitIsBounded(t *testing.T) {
	t.Parallel()
	h := newTyped(func(context.Context, *signalbox.Job, tree) error { return nil })
	for depth, want := range map[int]int{5: 5, 500: maxDepth} {
		payload := strings.Repeat(`{"kid":`, depth) + `{"n":"geheim"}` + strings.Repeat("}", depth)
		err := h.Handle(t.Context(), &signalbox.Job{Payload: []byte(payload)})
		if err == nil || strings.Count(err.Error(), "kid") != want || strings.Contains(err.Error(), "geheim") {
			t.Errorf("depth %d: %v; want a path of %d", depth, err, want)
		}
	}
}

// An error about arguments that don't decode names the JSON path, the Go field and its type. It has nothing else from the payload: no
// value, and no key of a map.
func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"id":"geheim"}`:                            `field "id" (in Go order.ID) must fit in a Go int64, and is a JSON string`,
		`{"ID":{"geheim":1}}`:                        `field "id" (in Go order.ID) must fit in a Go int64, and is a JSON object`,
		`{"small":4711}`:                             `field "small" (in Go order.Small) must fit in a Go int8, and is a JSON number`,
		`{"id":1,"customer":{"name":4711}}`:          `field "customer.name" (in Go customer.Name) must fit in a Go string, and is a JSON number`,
		`{"lines":[{"count":1},{"count":"geheim"}]}`: `field "lines[1].count" (in Go line.Count) must fit in a Go int, and is a JSON string`,
		`{"lines":"geheim"}`:                         `field "lines" (in Go order.Lines) must fit in a Go []worker.line, and is a JSON string`,
		`{"numbers":{"geheim":"x"}}`:                 `field "numbers[...]" (in Go order.Numbers) must fit in a Go int, and is a JSON string`,
		`{"Due":"geheim"}`:                           `field "Due" (in Go order.Due) must be a Go time.Time, whose own decoder refused the JSON string`,
		`{"note":[4711]}`:                            `field "note" (in Go order.Note) must fit in a Go string, and is a JSON array`,
		`["geheim"]`:                                 `the payload must fit in a Go worker.order, and is a JSON array`,
		` null `:                                     `the payload is null; worker.order needs an object`,
		``:                                           `the payload is empty; it must be JSON`,
		`{"id":geheim}`:                              `no valid JSON at byte 7`,
	} {
		err := decodeOrder(payload, false)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "decode the job's arguments: ") {
			t.Errorf("%s: %v, want %s", payload, err, want)
			continue
		}
		if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: the payload is in the error: %v", payload, err)
		}
		var refused *signalbox.PayloadError
		if !errors.As(err, &refused) {
			t.Errorf("%s: a %T, want a PayloadError", payload, err)
		}
		if strict := decodeOrder(payload, true); strict == nil {
			t.Errorf("%s: strict decoding takes it", payload)
		}
	}
}

func TestStrictDecoding(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"id":1,"order_id":2}`:                 `the payload has a field "order_id", which Go type worker.order doesn't have`,
		`{"customer":{"nom":"x"}}`:              `field "customer" (in Go order.Customer) has a field "nom", which Go type worker.customer doesn't have`,
		`{"lines":[{"count":1},{"cnt":1}]}`:     `field "lines[1]" (in Go order.Lines) has a field "cnt"`,
		`{"hidden":1}`:                          `has a field "hidden"`,
		`{"ann@example.com":1}`:                 `the payload has a field, which`, // may be more than a field's name
		`{"` + strings.Repeat("n", 41) + `":1}`: `the payload has a field, which`,
	} {
		err := decodeOrder(payload, true)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "ann@") {
			t.Errorf("%s: %v, want %s", payload, err, want)
		}
		if err := decodeOrder(payload, false); err != nil {
			t.Errorf("%s: decoding that isn't strict refuses it: %v", payload, err)
		}
	}
	if err := decodeOrder(`{"id":1} {"id":2}`, true); err == nil {
		t.Error("two values are taken")
	}
	for _, payload := range []string{`{}`, ` {"id":1,"customer":{"name":null},"lines":null,"Note":"x"} ` + "\n"} {
		for _, strict := range []bool{false, true} {
			if err := decodeOrder(payload, strict); err != nil {
				t.Errorf("%s, strict %v: %v", payload, strict, err)
			}
		}
	}
}

// Types for which null is a value, or for which it leaves no field unset.
type (
	nothing struct{}
	list    []int
	taker   struct{ N int }
)

func (nothing) Kind() string                { return "nothing" }
func (list) Kind() string                   { return "list" }
func (taker) Kind() string                  { return "taker" }
func (t *taker) UnmarshalJSON([]byte) error { t.N = 7; return nil }
func decodeAs[T signalbox.Args](p string) (T, error) {
	return newTyped(func(context.Context, *signalbox.Job, T) error { return nil }).decode([]byte(p))
}

func TestNullPayloads(t *testing.T) {
	t.Parallel()
	if _, err := decodeAs[nothing]("null"); err != nil {
		t.Error(err)
	}
	if _, err := decodeAs[list]("null"); err != nil {
		t.Error(err)
	}
	if got, err := decodeAs[taker]("null"); err != nil || got.N != 7 {
		t.Error(got, err)
	}
	if _, err := decodeAs[order]("null"); err == nil {
		t.Error("a struct with fields takes null")
	}
	if _, err := decodeAs[*order]("null"); err == nil {
		t.Error("a pointer to a struct with fields takes null")
	}
}

var errNegative = errors.New("amount is negative")

// Validate may be a method of the value or of the pointer. The arguments may be a pointer.
type (
	byValue   struct{ Amount int }
	byPointer struct{ Amount int }
)

func (byValue) Kind() string         { return "by.value" }
func (byPointer) Kind() string       { return "by.pointer" }
func (v byValue) Validate() error    { return validAmount(v.Amount) }
func (v *byPointer) Validate() error { return validAmount(v.Amount) }

func validAmount(n int) error {
	if n < 0 {
		return errNegative
	}
	return nil
}

func TestArgumentsAreValidated(t *testing.T) {
	t.Parallel()
	for name, decode := range map[string]func(string) error{
		"by value":     func(p string) error { _, err := decodeAs[byValue](p); return err },
		"by pointer":   func(p string) error { _, err := decodeAs[byPointer](p); return err },
		"pointer args": func(p string) error { _, err := decodeAs[*byValue](p); return err },
		"both":         func(p string) error { _, err := decodeAs[*byPointer](p); return err },
	} {
		if err := decode(`{"Amount":1}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err := decode(`{"Amount":-1}`)
		if _, ok := errors.AsType[*signalbox.PayloadError](err); !ok || !errors.Is(err, errNegative) {
			t.Errorf("%s: %v, want a PayloadError of Validate's", name, err)
		}
	}
}

// Decoding costs the same as with package json.
func TestDecodingAllocatesNothingMore(t *testing.T) {
	payload := []byte(`{"Amount":1}`)
	h := newTyped(func(context.Context, *signalbox.Job, byValue) error { return nil })
	ours := testing.AllocsPerRun(200, func() { _, _ = h.decode(payload) })
	plain := testing.AllocsPerRun(200, func() {
		var args byValue
		_ = json.Unmarshal(payload, &args)
	})
	if ours > plain {
		t.Errorf("%v allocations, json.Unmarshal alone makes %v", ours, plain)
	}
}

// twins has two fields whose names differ only by case.
type twins struct {
	One int    `json:"key"`
	Two string `json:"KEY"`
}

func (twins) Kind() string { return "twins" }

// If a name fits several fields except for its case, the error names the first one: package json decodes into that one.
func TestDecodeErrorOfAFoldedName(t *testing.T) {
	t.Parallel()
	h := newTyped(func(context.Context, *signalbox.Job, twins) error { return nil })
	_, err := h.decode([]byte(`{"Key":"x"}`))
	if want := `field "key" (in Go twins.One) must fit in a Go int`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
