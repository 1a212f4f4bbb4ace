package store

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// arrival returns a job that can arrive.
func arrival(t *testing.T, q *Queue, id, name string, unique Unique) Arrival {
	t.Helper()
	now := time.Now().Truncate(time.Microsecond)
	s := NewStored(signalbox.Job{ID: id, Kind: "mail", Payload: []byte("{}"), Attempt: 1, MaxAttempts: 3, EnqueuedAt: now, ScheduledAt: now, Effect: "asynq/default/" + id}, signalbox.StateScheduled, unique)
	if err := q.Transfer().Prepare(&s); err != nil {
		t.Fatal(err)
	}
	return Arrival{Name: name, Stored: s}
}

// arrivesAs puts one job in and returns the answer.
func arrivesAs(t *testing.T, q *Queue, a Arrival) Acted {
	t.Helper()
	answers, err := q.Transfer().Arrive(t.Context(), []Arrival{a})
	if err != nil || len(answers) != 1 {
		t.Fatalf("Arrive = %v, %v", answers, err)
	}
	return answers[0].Acted
}

// A job that has arrived doesn't arrive again by the same name: not while it waits, and not after it has gone.
func TestArriveOnce(t *testing.T) {
	t.Parallel()
	q := onShared(t).Queue
	a := arrival(t, q, "a", "n1", Unique{})
	if got := arrivesAs(t, q, a); got != Done {
		t.Fatalf("the first call: %v", got)
	}
	if got := arrivesAs(t, q, a); got != Changed {
		t.Fatalf("while the job waits: %v", got)
	}
	if got := arrivesAs(t, q, arrival(t, q, "a", "n2", Unique{})); got != Occupied {
		t.Fatalf("another move of that ID: %v", got)
	}
	if err := q.rdb.ZRem(t.Context(), q.keys.Due, "a").Err(); err != nil {
		t.Fatal(err)
	}
	if err := q.rdb.HDel(t.Context(), q.keys.Jobs, "a").Err(); err != nil {
		t.Fatal(err)
	}
	if got := arrivesAs(t, q, a); got != Changed {
		t.Fatalf("after the job has gone: %v", got)
	}
	if got := arrivesAs(t, q, arrival(t, q, "a", "n2", Unique{})); got != Done {
		t.Fatalf("another move of the ID, which is free again: %v", got)
	}
}

// Either a job arrives or its move is given up, whichever call is first.
func TestRefuse(t *testing.T) {
	t.Parallel()
	q := onShared(t).Queue
	if got := arrivesAs(t, q, arrival(t, q, "a", "n1", Unique{})); got != Done {
		t.Fatal(got)
	}
	for range 2 {
		answers, err := q.Transfer().Refuse(t.Context(), []string{"n1", "n2", "n3"})
		if err != nil || len(answers) != 3 || answers[0].Acted != Changed || answers[1].Acted == Changed || answers[2].Acted == Changed {
			t.Fatalf("Refuse = %v, %v", answers, err)
		}
	}
	if got := arrivesAs(t, q, arrival(t, q, "b", "n2", Unique{})); got != Gone {
		t.Fatalf("a move that was given up: %v", got)
	}
	if _, found, err := q.Looks().ShowJob(t.Context(), "b"); found || err != nil {
		t.Fatalf("the job is there: %v, %v", found, err)
	}
	if got := arrivesAs(t, q, arrival(t, q, "b", "n4", Unique{})); got != Done {
		t.Fatal(got)
	}
}

// A job takes its unique key, and doesn't arrive if another one has it.
func TestArriveWithAKey(t *testing.T) {
	t.Parallel()
	q := onShared(t).Queue
	key := Unique{Key: UniqueKey("mail", "7", false), Scope: UntilEnded}
	if got := arrivesAs(t, q, arrival(t, q, "a", "n1", key)); got != Done {
		t.Fatal(got)
	}
	if got := arrivesAs(t, q, arrival(t, q, "b", "n2", key)); got != KeyTaken {
		t.Fatal(got)
	}
	if got := arrivesAs(t, q, arrival(t, q, "b", "n2", Unique{})); got != Done {
		t.Fatalf("the refusal has left a receipt: %v", got)
	}
}
