package worker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
)

// The error of a drain without Redis counts deliveries: one may have been given back.
func TestUnheard(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		1: `worker: queue "mail": Redis was not told how the delivery of 1 job ended, and it runs again: no answer`,
		2: `worker: queue "mail": Redis was not told how the deliveries of 2 jobs ended, and they run again: no answer`,
	} {
		if got := unheard("mail", n, errors.New("no answer")).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A kind is read from a zero value.
type parcel struct{ kind string }

func (p parcel) Kind() string { return "par" + "cel" + p.kind }

type broken struct{}

func (broken) Kind() string { panic("oops") }

// A handler that takes a pointer is told to take the type.
func TestKindOfAPointer(t *testing.T) {
	t.Parallel()
	said := func(register func(*Worker)) (text string) {
		defer func() { text, _ = recover().(string) }()
		register(&Worker{})
		return ""
	}
	text := said(func(w *Worker) {
		Handle(w, func(context.Context, *signalbox.Job, *parcel) error { return nil })
	})
	if !strings.HasSuffix(text, "have the handler take worker.parcel, not a pointer") {
		t.Error(text)
	}
	text = said(func(w *Worker) {
		Handle(w, func(context.Context, *signalbox.Job, broken) error { return nil })
	})
	if !strings.HasSuffix(text, "it must return a constant") {
		t.Error(text)
	}
}
