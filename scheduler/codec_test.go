package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A boundCodec writes the kind and the payload key before the JSON, and counts its calls.
type boundCodec struct {
	mu    sync.Mutex
	calls int
	err   error
}

func (c *boundCodec) Encoding() string { return "bound" }

func (c *boundCodec) Encode(job *signalbox.Job, args any) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	data, err := json.Marshal(args)
	return fmt.Appendf(nil, "%s %s %s", job.Kind, job.EffectKey(), data), errors.Join(err, c.err)
}

func (c *boundCodec) Decode(*signalbox.Job, []byte, any) error { return errors.ErrUnsupported }

// The codec comes last: it gets the args and the final effect key, once for each job. That is the key with which the job is delivered.
func TestCodecComesLast(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, q := setup(t)
	c := &boundCodec{}
	s.codec = c
	u := &UncertainError{ID: "again", Err: ErrUncertain, incarnation: 7}
	_, err1 := s.Enqueue(ctx, note{1}, Queue(q.Name()))
	_, err2 := s.Enqueue(ctx, note{2}, Queue(q.Name()), ID("chosen"), Retain(time.Hour))
	_, err3 := s.Enqueue(ctx, note{3}, Queue(q.Name()), u.Again())
	_, err4 := s.EnqueueMany(ctx, []Item{{note{4}, nil}, {note{5}, []EnqueueOption{ID("many"), EffectKey("own")}}}, Queue(q.Name()))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if jobs := claimAll(t, q); len(jobs) != 5 || c.calls != 5 {
		t.Errorf("%d jobs, %d calls", len(jobs), c.calls)
	} else {
		checkBound(t, jobs)
	}

	if err := s.Cron("e", "@every 1s", note{6}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	var ticks []*signalbox.Job
	for until := time.Now().Add(time.Minute); len(ticks) < 2 && time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		ticks = append(ticks, claimAll(t, q)...)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if len(ticks) < 2 || ticks[0].ID == ticks[1].ID {
		t.Errorf("ticks: %v", ticks)
	}
	checkBound(t, ticks)
}

func checkBound(t *testing.T, jobs []*signalbox.Job) {
	t.Helper()
	for _, j := range jobs {
		if want := "note " + j.EffectKey() + ` {"N":`; !strings.HasPrefix(string(j.Payload), want) || j.Encoding != "bound" {
			t.Errorf("job %s has payload %s in encoding %q, want %s", j.ID, j.Payload, j.Encoding, want)
		}
	}
}

// The codec gets the key that a worker will see, in each namespace.
func TestCodecNamespace(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]string{"": "note {q}x {", "default": "note {q}x {", "shop": "note {shop:q}x {"} {
		s := offline(t)
		s.namespace, s.codec = namespace, &boundCodec{}
		job := signalbox.Job{Kind: "note", ID: "x", Queue: "q"}
		if err := s.encode(&job, note{1}); err != nil || !strings.HasPrefix(string(job.Payload), want) {
			t.Errorf("namespace %q: %s, %v", namespace, job.Payload, err)
		}
	}
}

// A job whose codec fails is not enqueued. A plan has the args without the codec.
func TestCodecFails(t *testing.T) {
	t.Parallel()
	s := offline(t)
	broken := errors.New("no key")
	s.codec = &boundCodec{err: broken}
	_, err1 := s.Enqueue(context.Background(), note{})
	results, err2 := s.EnqueueMany(context.Background(), many(1))
	for _, err := range []error{err1, err2, results[0].Err, s.Cron("e", "@daily", note{})} {
		if !errors.Is(err, broken) || !errors.Is(err, signalbox.ErrInvalid) || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "kind note") {
			t.Errorf("got %v", err)
		}
	}
	if plan, err := Resolve(note{7}); err != nil || string(plan.Job.Payload) != `{"N":7}` {
		t.Errorf("got %+v, %v", plan, err)
	}
	s.codec = panickingCodec{}
	if _, err := s.Enqueue(context.Background(), note{}); !errors.Is(err, signalbox.ErrInvalid) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

type panickingCodec struct{ signalbox.JSON }

func (panickingCodec) Encoding() string                           { return "panics" }
func (panickingCodec) Encode(*signalbox.Job, any) ([]byte, error) { panic("secret") }

type misnamed struct {
	signalbox.JSON
	name string
}

func (m misnamed) Encoding() string { return m.name }

// JSON as the codec is no codec: the records are the same, byte for byte. Another codec can't have its name.
func TestCodecNames(t *testing.T) {
	t.Parallel()
	rdb := offline(t).rdb
	s, err := New(rdb, Config{Codec: signalbox.JSON{}})
	if err != nil || s.codec != nil {
		t.Error(s, err)
	}
	for _, name := range []string{"json", "", "a b", "{a}", strings.Repeat("x", 201)} {
		if _, err := New(rdb, Config{Codec: misnamed{name: name}}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "Config.Codec") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
