package scheduler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A recordingCodec puts the ID in front of each payload, and records its calls.
type recordingCodec struct {
	mu    sync.Mutex
	asked []string
}

func (c *recordingCodec) encode(kind, id string, payload []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, kind+" "+id+" "+string(payload))
	return []byte(`{"id":"` + id + `","was":` + string(payload) + `}`), nil
}

// The codec comes last: it gets the bytes of the args and the final ID, once for each job.
func TestCodecComesLast(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, q := setup(t)
	c := &recordingCodec{}
	s.codec = c.encode
	u := &UncertainError{ID: "again", Err: ErrUncertain, incarnation: 7}
	res, err1 := s.Enqueue(ctx, note{1}, Queue(q.Name()))
	_, err2 := s.Enqueue(ctx, note{2}, Queue(q.Name()), ID("chosen"))
	_, err3 := s.Enqueue(ctx, note{3}, Queue(q.Name()), u.Again())
	results, err4 := s.EnqueueMany(ctx, []Item{{note{4}, nil}, {note{5}, []EnqueueOption{ID("many")}}}, Queue(q.Name()))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	want := []string{"note " + res.ID + ` {"N":1}`, `note chosen {"N":2}`, `note again {"N":3}`, "note " + results[0].ID + ` {"N":4}`, `note many {"N":5}`}
	if got := strings.Join(c.asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("it was asked\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	jobs := claimAll(t, q)
	if len(jobs) != 5 {
		t.Errorf("%d jobs", len(jobs))
	}
	checkEncoded(t, jobs)

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
	checkEncoded(t, ticks)
}

func checkEncoded(t *testing.T, jobs []*signalbox.Job) {
	t.Helper()
	for _, j := range jobs {
		if !strings.HasPrefix(string(j.Payload), `{"id":"`+j.ID+`","was":{"N":`) {
			t.Errorf("job %s has payload %s", j.ID, j.Payload)
		}
	}
}

// A job whose codec fails is not enqueued. A plan has the args without the codec.
func TestCodecFails(t *testing.T) {
	t.Parallel()
	s := offline(t)
	broken := errors.New("no key")
	s.codec = func(string, string, []byte) ([]byte, error) { return nil, broken }
	_, err1 := s.Enqueue(context.Background(), note{})
	results, err2 := s.EnqueueMany(context.Background(), many(1))
	for _, err := range []error{err1, err2, results[0].Err, s.Cron("e", "@daily", note{})} {
		if !errors.Is(err, broken) || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "kind note") {
			t.Errorf("got %v", err)
		}
	}
	if plan, err := Resolve(note{7}); err != nil || string(plan.Job.Payload) != `{"N":7}` {
		t.Errorf("got %+v, %v", plan, err)
	}
}
