package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The report comes while a log handler takes its time.
func TestHealthWhileTheLogIsSlow(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	slow := slowLog{Handler: slog.DiscardHandler, hit: make(chan struct{}), goOn: make(chan struct{})}
	q.w.log = slog.New(slow)
	for _, step := range []struct {
		what string
		do   func()
		want health.Severity
	}{
		{"an outage begins", func() { q.w.link.lost(q, "claim", time.Now(), errors.New("no answer")) }, health.Unready},
		{"it is over", func() { q.w.link.back(q) }, health.OK},
	} {
		ended, report := make(chan struct{}), make(chan health.Severity, 1)
		go func() { defer close(ended); step.do() }()
		<-slow.hit
		go func() { report <- found(q, health.RedisAway, time.Now()) }()
		select {
		case got := <-report:
			if got != step.want {
				t.Errorf("%s: %v, want %v", step.what, got, step.want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: there is no report while the log is slow", step.what)
		}
		slow.goOn <- struct{}{}
		<-ended
	}
}

// A call succeeds while another one's failure is logged. Then Redis hangs, which is reported.
func TestHangAfterAnAnswerMeanwhile(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	slow := slowLog{Handler: slog.DiscardHandler, hit: make(chan struct{}), goOn: make(chan struct{})}
	begin := time.Now()
	q.contact.failed("claim", begin, errors.New("one error"))
	q.w.log = slog.New(slow)
	var calls sync.WaitGroup
	calls.Go(func() { q.contact.failed("renew", begin, errors.New("another one")) })
	<-slow.hit
	calls.Go(func() { q.contact.answered(begin) })
	redistest.Eventually(t, func() bool { return !q.contact.away.Load() }, "the answer is noted")
	slow.goOn <- struct{}{}
	<-slow.hit // Redis is back
	slow.goOn <- struct{}{}
	calls.Wait()
	if got := found(q, health.RedisAway, time.Now()); got != health.OK {
		t.Fatalf("after an answer: %v", got)
	}
	q.w.log = slog.New(slog.DiscardHandler)
	q.contact.waits[0].begin(q, time.Now())
	q.contact.reportHang(0)
	if got := found(q, health.RedisAway, time.Now()); got != health.Unready {
		t.Errorf("while a call hangs: %v", got)
	}
}

// A call is cut by an outage, and its client tries again for long. When it gives up, another call was answered meanwhile: Redis isn't away, and
// a hang that follows is reported as one.
func TestLateFailureIsNoOutage(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	begin := time.Now()
	q.contact.answered(begin)
	q.contact.failed("renew", begin, errors.New("connection refused"))
	if got := found(q, health.RedisAway, time.Now()); got != health.OK {
		t.Errorf("a call that began before the last answer fails: %v", got)
	}
	q.contact.failed("renew", time.Now(), errors.New("connection refused"))
	if got := found(q, health.RedisAway, time.Now()); got != health.Unready {
		t.Errorf("a call that began after the last answer fails: %v", got)
	}
	q.contact.answered(time.Now())
	q.contact.failed("renew", begin, refusal("NOREPLICAS"))
	if got := found(q, health.RedisAway, time.Now()); got != health.Unready {
		t.Errorf("Redis refuses an old call: %v", got)
	}
}

// A slowLog says in hit that a record has come, and waits for goOn.
type slowLog struct {
	slog.Handler
	hit, goOn chan struct{}
}

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l slowLog) Handle(context.Context, slog.Record) error {
	l.hit <- struct{}{}
	<-l.goOn
	return nil
}
