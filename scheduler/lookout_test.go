package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

const misspelt = "no worker has ever worked it"

// TestQueueOfATypo: if a queue has jobs and never had a worker, the log warns once.
func TestQueueOfATypo(t *testing.T) {
	t.Parallel()
	var said lockedBuffer
	s, q := setup(t)
	s.unseen.log = slog.New(slog.NewTextHandler(&said, nil))
	s.unseen.after = time.Millisecond
	// The check may come before this test's own job is enqueued, on a busy machine. This job is there earlier.
	if _, err := newScheduler(t, s.rdb).Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.EnqueueMany(t.Context(), many(2), Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, func() bool { return strings.Contains(said.String(), misspelt) }, "the log says so")
	}
	if !strings.Contains(said.String(), "queue="+q.Name()) || len(s.unseen.seen) != 1 {
		t.Errorf("the log says %q, and looks at %d queues", said.String(), len(s.unseen.seen))
	}
}

// TestQueueOfACronEntryIsLookedAt: a queue is also checked if only a cron entry names it.
func TestQueueOfACronEntryIsLookedAt(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	if err := s.Cron("daily", "@daily", note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	redistest.Eventually(t, func() bool {
		s.unseen.mu.Lock()
		defer s.unseen.mu.Unlock()
		return s.unseen.seen[q.Name()]
	}, "the queue is to be looked at")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestQueueThatIsWorked: no warning names a queue that has or had a worker, or a queue that can't be read.
func TestQueueThatIsWorked(t *testing.T) {
	t.Parallel()
	var said lockedBuffer
	s, q, p := proxied(t, noRetries) // jobs were claimed from it
	s.unseen.log = slog.New(slog.NewTextHandler(&said, nil))
	if _, err := s.Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	s.unseen.look(q)
	p.Refuse(true)
	p.Sever()
	s.unseen.look(store.New(s.rdb, "", "signalbox-nobody"))
	if said.String() != "" {
		t.Errorf("the log says %q", said.String())
	}
}

// TestLookoutIsBounded: a program may have a queue for each customer. At most maxQueues names are kept.
func TestLookoutIsBounded(t *testing.T) {
	t.Parallel()
	l := newLookout(slog.New(slog.DiscardHandler))
	l.after = 100 * time.Hour
	for i := range maxQueues + 10 {
		l.add(store.New(nil, "", fmt.Sprint("customer-", i)))
	}
	if len(l.seen) != maxQueues {
		t.Errorf("%d queues, want %d", len(l.seen), maxQueues)
	}
}
