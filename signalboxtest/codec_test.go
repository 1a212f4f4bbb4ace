package signalboxtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// backwards is a codec: JSON from its last byte to the first one. keyed says that it has its key.
type backwards struct{ keyed bool }

func (backwards) Encoding() string { return "nosj" }

func (backwards) Encode(_ *signalbox.Job, args any) ([]byte, error) {
	data, err := json.Marshal(args)
	return reversed(data), err
}

func (b backwards) Decode(_ *signalbox.Job, payload []byte, args any) error {
	if !b.keyed {
		return fmt.Errorf("%w: no key 7", signalbox.ErrUnknownEncoding)
	}
	return json.Unmarshal(reversed(payload), args)
}

func reversed(data []byte) []byte {
	out := bytes.Clone(data)
	for i, b := range data {
		out[len(data)-1-i] = b
	}
	return out
}

// A worker decodes by the codec that the job names. One that lacks it, or its key, puts the job back, and no attempt is used. JSON that was
// enqueued before still runs.
func TestCodec(t *testing.T) {
	t.Parallel()
	jobs := signalboxtest.New(t)
	plain, err1 := scheduler.New(jobs.Client(), scheduler.Config{Logger: silent})
	s, err2 := scheduler.New(jobs.Client(), scheduler.Config{Logger: silent, Codec: backwards{true}})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_, err1 = plain.Enqueue(t.Context(), note{1})
	_, err2 = s.Enqueue(t.Context(), note{2})
	_, err3 := s.Enqueue(t.Context(), note{-3}) // refused by Validate
	if !errors.Is(err3, signalbox.ErrInvalid) || errors.Join(err1, err2) != nil {
		t.Fatal(err1, err2, err3)
	}
	jobs.Codecs(backwards{true})
	all := signalboxtest.All[note](jobs)
	if len(all) != 2 || all[0].Args.N != 1 || all[1].Args.N != 2 || all[0].Encoding != "" || all[1].Encoding != "nosj" || string(all[1].Payload) != `}2:"N"{` {
		t.Fatalf("enqueued: %+v", all)
	}
	encoded, terminal := all[1].Job, true
	var refused *signalbox.PayloadError
	work := func(handler bool, codecs ...signalbox.Codec) (got []int, v signalboxtest.Verdict) {
		t.Helper()
		w, err := worker.New(jobs.Client(), worker.Config{Logger: silent, Codecs: codecs})
		if err != nil {
			t.Fatal(err)
		}
		if handler {
			worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in note) error {
				got = append(got, in.N)
				return nil
			}, worker.Terminal(func(error) bool { return terminal }))
		} else {
			w.HandleKind("note", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error {
				got = append(got, -1)
				return nil
			}))
		}
		return got, jobs.Work(t.Context(), w, encoded)
	}
	for name, codecs := range map[string][]signalbox.Codec{"no codec": nil, "no key": {backwards{}}} {
		got, v := work(true, codecs...)
		if len(got) > 0 || v.Delay <= 0 || v.Next == nil || v.Next.Attempt != 1 || !errors.Is(v.Err, signalbox.ErrUnknownEncoding) || errors.As(v.Err, &refused) ||
			!strings.Contains(v.Next.LastError, `encoding "nosj"`) || v.Next.Encoding != "nosj" || !bytes.Equal(v.Next.Payload, encoded.Payload) {
			t.Errorf("%s: %v, next %+v", name, v, v.Next)
		}
	}
	if got, v := work(false); len(got) > 0 || v.Next == nil {
		t.Errorf("a handler that reads the payload by itself got one that the worker can't know: %v", v)
	}
	terminal = false
	broken := *encoded
	broken.Payload = []byte("{")
	encoded = &broken
	if _, v := work(true, backwards{true}); v.Outcome != signalbox.OutcomeRetried || !errors.As(v.Err, &refused) {
		t.Errorf("a broken payload: %v", v)
	}
	encoded = all[1].Job
	if _, v := work(true, backwards{true}); v.Outcome != signalbox.OutcomeCompleted {
		t.Errorf("with its codec: %v", v)
	}
	encoded = all[0].Job
	if _, v := work(true, backwards{true}); v.Outcome != signalbox.OutcomeCompleted {
		t.Errorf("JSON: %v", v)
	}
	for name, codecs := range map[string][]signalbox.Codec{"nil": {nil}, "twice": {backwards{}, backwards{true}}} {
		if _, err := worker.New(jobs.Client(), worker.Config{Codecs: codecs}); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
