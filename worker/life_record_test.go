package worker_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

func testUndecodable(r *rig) {
	w := r.worker(10)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		r.Error("the handler ran")
		return nil
	})
	r.start(w)
	ids := r.add(
		signalbox.Job{MaxAttempts: 1, Payload: []byte(`{"n":"geheim-1"}`)},
		signalbox.Job{MaxAttempts: 1, Payload: []byte(`geheim-2`)},
		signalbox.Job{MaxAttempts: 1, Payload: []byte{}},
	)
	r.until("all are dead", func(c looks.Counts) bool { return c.Dead == 3 })
	for i, want := range []string{`field "n" (in Go task.N) must fit in a Go int`, "no valid JSON at byte 1", "the payload is empty"} {
		if job := r.job(ids[i]); !strings.Contains(job.LastError, want) || strings.Contains(job.LastError, "geheim") {
			r.Errorf("last error %q, want one that says %s and no payload", job.LastError, want)
		}
	}
	if r.log.count("geheim") > 0 {
		r.Error("a payload is in the log")
	}
}

func testUnknownKind(r *rig) {
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	begin := time.Now()
	strangers := make([]signalbox.Job, 20)
	for i := range strangers {
		strangers[i].Kind = "stranger"
	}
	ids := r.add(strangers...)
	r.until("they are put back", func(c looks.Counts) bool { return c.Due == 20 })
	r.add(signalbox.Job{}) // they must not be in the way
	r.until("the known one is completed", func(c looks.Counts) bool { return c.Total.Completed == 1 })

	if c := r.counts(); c.Total.Delayed < 20 || c.Total.Retried != 0 {
		r.Errorf("each was to be put back with no attempt used: %+v", c)
	}
	for _, id := range ids {
		job := r.job(id)
		if d := job.ScheduledAt.Sub(begin); job.Attempt != 1 || d < 400*time.Millisecond || d > 65*time.Second {
			r.Errorf("attempt %d is due in %v, want 1 and from half a second to a minute", job.Attempt, d)
		}
	}
	if n := r.log.count("WARN", "no handler", "stranger"); n != 1 {
		r.Errorf("%d warnings, want one", n)
	}
}

func testNewerRecord(r *rig) {
	id := r.addOne(signalbox.Job{ID: "from-the-future"})
	raw := "\x03" + r.record(id)[1:] + "what only a newer release can read"
	r.put(id, raw)
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		r.Error("the handler ran")
		return nil
	})
	r.start(w)
	r.until("it is put back", func(c looks.Counts) bool { return c.Due == 1 })
	// Only the time at which it is due has changed, in bytes 11 to 18.
	if now := r.record(id); now[:12] != raw[:12] || now[20:] != raw[20:] {
		r.Errorf("the record was changed from %q to %q", raw, now)
	}
	if r.log.count("WARN", "newer release", id) != 1 {
		r.Error("the log doesn't say so")
	}
}

func testCorruptRecord(r *rig) {
	ids := r.add(signalbox.Job{}, signalbox.Job{}, signalbox.Job{}, signalbox.Job{})
	rubbish := []string{"{\"json\":true}", "", r.record(ids[2])[:20] + "\xff\xff\xff"}
	for i, raw := range rubbish {
		r.put(ids[i], raw)
	}
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.until("three are dead, the fourth is completed", func(c looks.Counts) bool { return c.Dead == 3 && c.Total.Completed == 1 })
	for i, raw := range rubbish {
		if now := r.record(ids[i]); now != raw {
			r.Errorf("the bytes %q were not kept: %q", raw, now)
		}
	}
}

func testMutatedJob(r *rig) {
	w := r.worker(10)
	ran := make(chan signalbox.Job, 2)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- *job
		if job.Attempt == 2 {
			return nil
		}
		clear(job.Payload)
		clear(job.Headers)
		*job = signalbox.Job{ID: "another", Kind: "nobody's", Attempt: 77, MaxAttempts: 1, Token: 1, Priority: signalbox.PriorityLow}
		return errBoom
	}, worker.Retry(soon))
	r.start(w)
	id := r.addOne(signalbox.Job{Headers: map[string]string{"a": "b"}, MaxAttempts: 2, Payload: payload(task{7})})
	get(r.T, ran, "the first attempt")
	job := get(r.T, ran, "the second attempt")
	if job.ID != id || job.Attempt != 2 || job.MaxAttempts != 2 || job.Headers["a"] != "b" || string(job.Payload) != `{"n":7}` {
		r.Errorf("the handler changed the job: %+v", job)
	}
	r.completed(1)
}

func testRubbish(r *rig) {
	ctx := context.Background()
	ids := r.add(signalbox.Job{}, signalbox.Job{}, signalbox.Job{})
	// An ID that is twice in the list, and IDs without a job.
	if err := r.rdb.RPush(ctx, r.key("ready:normal"), ids[0], "nobody", ids[1], ids[0], "").Err(); err != nil {
		r.Fatal(err)
	}
	w := r.worker(2)
	var mu sync.Mutex
	ran := make(map[string]int)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		mu.Lock()
		defer mu.Unlock()
		ran[job.ID]++
		return nil
	})
	r.start(w)
	r.completed(3)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if ran[id] != 1 {
			r.Errorf("job %s ran %d times", id, ran[id])
		}
	}
	if len(ran) != 3 {
		r.Errorf("jobs that ran: %v", ran)
	}
}
