package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A reference goes as text, also in JSON, and comes back.
func TestRef(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 200)
	for text, want := range map[string]Ref{
		"{default:mail}order-17":                                 {"default", "mail", "order-17"},
		"{eu:a:b/c}d:e/f?g=h&i":                                  {"eu", "a:b/c", "d:e/f?g=h&i"},
		"{" + name + ":" + name + "}" + name:                     {name, name, name},
		Ref{"default", "default", "0Ab"}.String():                {"default", "default", "0Ab"},
		(&Result{ID: "a", queue: nil}).Ref().String() + "{a:b}c": {"a", "b", "c"},
	} {
		got, err := ParseRef(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		type page struct{ Job, None Ref }
		b, err := json.Marshal(page{Job: want})
		var back page
		if err != nil || json.Unmarshal(b, &back) != nil || back != (page{Job: want}) {
			t.Errorf("%s: in JSON it is %s, %v, and then %+v", text, b, err, back)
		}
	}
	for _, text := range []string{
		"", "order-17", "{mail}order-17", "{default:mail", "{default:mail}", "{default:}a", "{:mail}a", "default:mail}a", "{default:mail}a}", "{default:mail}{a",
		"{default:mail}a b", "{default:mail}a\n", " {default:mail}a", "{default:m\u00fcll}a", "{default:mail}" + name + "n", "{{a:b}c", "{default:mail}\x00",
	} {
		got, err := ParseRef(text)
		if !errors.Is(err, signalbox.ErrInvalid) || got != (Ref{}) || len(err.Error()) > 600 {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		var ref Ref
		if err := ref.UnmarshalText([]byte(text)); (err == nil) != (text == "") || ref != (Ref{}) {
			t.Errorf("%q: unmarshalled to %+v, %v", text, ref, err)
		}
	}
	for _, ref := range []Ref{{"", "mail", "a"}, {"default", "", "a"}, {"default", "mail", ""}, {"a:b", "mail", "a"}, {"default", "m}l", "a"}} {
		if text, err := ref.MarshalText(); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%+v: %s, %v", ref, text, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("{default:mail}order-17")
	f.Add("{a:b:c}d}")
	f.Fuzz(func(t *testing.T, text string) {
		if ref, err := ParseRef(text); err == nil && ref.String() != text {
			t.Errorf("%q: %+v is %q", text, ref, ref.String())
		}
	})
}

// A result has the reference of the job that is there: its own, or the one that it met.
func TestResultRef(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	in := Queue(q.Name())
	check := func(what string, res Result, id string) {
		t.Helper()
		if want := (Ref{"default", q.Name(), id}); res.Ref() != want {
			t.Errorf("%s: %v, want %v", what, res.Ref(), want)
		}
	}
	first, err := s.Enqueue(ctx, note{1}, in, Unique("k", UntilEnded))
	if err != nil {
		t.Fatal(err)
	}
	check("one that is in", first, first.ID)
	second, err := s.Enqueue(ctx, note{2}, in, Unique("k", UntilEnded))
	if err != nil || second.New {
		t.Fatal(second, err)
	}
	check("one whose unique key another job has", second, first.ID)
	results, err := s.EnqueueMany(ctx, []Item{{note{1}, []EnqueueOption{ID("a")}}, {note{2}, []EnqueueOption{Unique("k", UntilEnded)}}, {note{2}, []EnqueueOption{ID(" ")}}}, in)
	if err == nil || results[0].Err != nil {
		t.Fatal(results, err)
	}
	check("one of many", results[0], "a")
	check("one of many that is kept out", results[1], first.ID)
	if ref := results[2].Ref(); ref != (Ref{}) {
		t.Errorf("one whose options are wrong: %v", ref)
	}
	for i, res := range s.EnqueueSeq(ctx, func(yield func(Item) bool) { yield(Item{note{1}, []EnqueueOption{After(time.Hour)}}) }, in) {
		if i != 0 || res.Err != nil {
			t.Fatal(i, res)
		}
		check("one of an iterator", res, res.ID)
	}
	if res, err := s.Enqueue(ctx, note{1}, in, Timeout(-1)); err == nil || res.Ref() != (Ref{}) {
		t.Errorf("a wrong option: %v, %v", res.Ref(), err)
	}
}
