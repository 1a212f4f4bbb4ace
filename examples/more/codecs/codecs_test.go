package codecs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/examples/more/codecs"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// A Letter has arguments that any codec but Proto encodes.
type Letter struct {
	To   string
	Text string
}

// Kind names the work.
func (Letter) Kind() string { return "letter" }

// A Receipt is a message of protocol buffers, as generated code would have it.
type Receipt struct{ structpb.Value }

// Kind names the work.
func (*Receipt) Kind() string { return "receipt" }

var (
	quiet = slog.New(slog.DiscardHandler)
	keyA  = bytes.Repeat([]byte{1}, 32)
	keyB  = bytes.Repeat([]byte{2}, 32)
)

func sealed(t testing.TB, current string, keys map[string][]byte) signalbox.Codec {
	t.Helper()
	s, err := codecs.NewSealed(codecs.NewZstd(signalbox.JSON{}), current, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rig has a scheduler with a codec, and the jobs that it enqueues.
func rig(t *testing.T, codec signalbox.Codec) (*signalboxtest.Jobs, *scheduler.Scheduler) {
	t.Helper()
	jobs := signalboxtest.New(t)
	s, err := scheduler.New(jobs.Client(), scheduler.Config{Codec: codec, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return jobs, s
}

// handle gives the only job to a worker with the codecs. It returns the arguments that the handler got.
func handle[T signalbox.Args](t *testing.T, jobs *signalboxtest.Jobs, job *signalbox.Job, codecs ...signalbox.Codec) (got T, v signalboxtest.Verdict) {
	t.Helper()
	w, err := worker.New(jobs.Client(), worker.Config{Codecs: codecs, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in T) error {
		got = in
		return nil
	})
	return got, jobs.Work(t.Context(), w, job)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	letter := Letter{"ada", strings.Repeat("dear ", 100)}
	for _, codec := range []signalbox.Codec{
		codecs.MsgPack{}, codecs.NewZstd(signalbox.JSON{}), codecs.NewZstd(codecs.MsgPack{}), sealed(t, "a", map[string][]byte{"a": keyA}),
	} {
		jobs, s := rig(t, codec)
		if _, err := s.Enqueue(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
		job := jobs.Enqueued()[0]
		if json.Valid(job.Payload) || job.Encoding != codec.Encoding() {
			t.Errorf("%s: encoding %q, payload %q", codec.Encoding(), job.Encoding, job.Payload)
		}
		if got, v := handle[Letter](t, jobs, job, codec); got != letter || v.Outcome != signalbox.OutcomeCompleted {
			t.Errorf("%s: %v, %v", codec.Encoding(), v, got)
		}
	}
}

func TestProto(t *testing.T) {
	t.Parallel()
	jobs, s := rig(t, codecs.Proto{})
	in := &Receipt{}
	in.Value.Kind = &structpb.Value_NumberValue{NumberValue: 17}
	if _, err := s.Enqueue(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if got, v := handle[*Receipt](t, jobs, jobs.Enqueued()[0], codecs.Proto{}); v.Outcome != signalbox.OutcomeCompleted || got.GetNumberValue() != 17 {
		t.Errorf("%v, %v", v, got)
	}
	if _, err := s.Enqueue(t.Context(), Letter{}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("arguments that are no message: %v", err)
	}
}

// The payload of one job doesn't open in another one, and not after a change. No handler gets it.
func TestSealedIsBound(t *testing.T) {
	t.Parallel()
	codec := sealed(t, "a", map[string][]byte{"a": keyA})
	jobs, s := rig(t, codec)
	for _, to := range []string{"ada", "bob"} {
		if _, err := s.Enqueue(t.Context(), Letter{To: to}, scheduler.ID(to)); err != nil {
			t.Fatal(err)
		}
	}
	ada, bob := jobs.Enqueued()[0], jobs.Enqueued()[1]
	for name, forge := range map[string]func(*signalbox.Job){
		"of another job":       func(j *signalbox.Job) { j.Payload = bob.Payload },
		"of another kind":      func(j *signalbox.Job) { j.Kind = "other" },
		"of an earlier job":    func(j *signalbox.Job) { j.Incarnation++ },
		"changed":              func(j *signalbox.Job) { j.Payload = append(bytes.Clone(j.Payload[:len(j.Payload)-1]), 0) },
		"too short":            func(j *signalbox.Job) { j.Payload = j.Payload[:1] },
		"empty":                func(j *signalbox.Job) { j.Payload = nil },
		"not encrypted at all": func(j *signalbox.Job) { j.Payload = []byte(`{"To":"eve"}`) },
	} {
		forged := *ada
		forge(&forged)
		var out Letter
		if err := codec.Decode(&forged, forged.Payload, &out); err == nil || out != (Letter{}) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	if got, v := handle[Letter](t, jobs, ada, codec); got.To != "ada" {
		t.Error(v)
	}
}

// Keys are rotated: jobs of the old key still run, and a worker that lacks the new one puts its jobs back.
func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	older := sealed(t, "a", map[string][]byte{"a": keyA})
	newer := sealed(t, "b", map[string][]byte{"a": keyA, "b": keyB})
	jobs, s := rig(t, older)
	if _, err := s.Enqueue(t.Context(), Letter{To: "ada"}); err != nil {
		t.Fatal(err)
	}
	if got, v := handle[Letter](t, jobs, jobs.Enqueued()[0], newer); got.To != "ada" {
		t.Errorf("a job of the old key: %v", v)
	}
	jobs, s = rig(t, newer)
	if _, err := s.Enqueue(t.Context(), Letter{To: "bob"}); err != nil {
		t.Fatal(err)
	}
	job := jobs.Enqueued()[0]
	if _, v := handle[Letter](t, jobs, job, older); v.Delay <= 0 || v.Next == nil || v.Next.Attempt != 1 || !errors.Is(v.Err, signalbox.ErrUnknownEncoding) {
		t.Errorf("without the new key: %v", v)
	}
	if got, v := handle[Letter](t, jobs, job, newer); got.To != "bob" {
		t.Errorf("with it: %v", v)
	}
	if _, err := codecs.NewSealed(signalbox.JSON{}, "c", map[string][]byte{"a": keyA}); err == nil {
		t.Error("it encrypts with a key that isn't there")
	}
	if _, err := codecs.NewSealed(signalbox.JSON{}, "a", map[string][]byte{"a": {1}}); err == nil {
		t.Error("it takes a key of one byte")
	}
}

// A job that an operator has moved to another queue still opens there.
func TestMovedJobOpens(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start(embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	codec := sealed(t, "a", map[string][]byte{"a": keyA})
	s, err1 := scheduler.New(rdb, scheduler.Config{Codec: codec, Logger: quiet, Namespace: "shop"})
	ins, err2 := inspect.New(rdb, inspect.Config{Namespace: "shop"})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), Letter{To: "ada"}, scheduler.Queue("there")); err != nil { // a queue must be known
		t.Fatal(err)
	}
	for _, opts := range [][]scheduler.EnqueueOption{nil, {scheduler.ID("chosen")}, {scheduler.EffectKey("own")}} {
		res, err := s.Enqueue(t.Context(), Letter{To: "ada"}, append(opts, scheduler.Queue("here"))...)
		if err == nil {
			_, err = ins.Do(t.Context(), "here", res.ID, inspect.Move{To: "there"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w, err := worker.New(rdb, worker.Config{
		Namespace: "shop", Queues: worker.Queues{"there": {}}, Codecs: []signalbox.Codec{codec}, Logger: quiet,
		OnRetry: func(_ context.Context, f worker.Failure) { t.Error(f.Err); stop() },
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 4)
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in Letter) error {
		if got <- in.To; len(got) == cap(got) {
			stop()
		}
		return nil
	})
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	for range cap(got) {
		select {
		case to := <-got:
			if to != "ada" {
				t.Errorf("to %s", to)
			}
		default:
			t.Error("a job did not run")
		}
	}
}
