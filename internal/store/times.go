package store

import "github.com/signalbox-go/signalbox/internal/store/facts"

// Times are a batch of times of deliveries: how long they waited from when they were due until they were claimed, and how long they ran.
// The batch is the call under way of its lane: Redis adds it once, however often it is sent.
type Times struct {
	Lane      *Lane
	Wait, Run facts.Histogram
}

// Taking returns the queue for calls of Open, Renew and Close that take a batch of times along. It returns q if there is none. The batch
// is added if the session is alive; Close adds it in any case.
func (q *Queue) Taking(t *Times) *Queue {
	if t == nil {
		return q
	}
	taking := *q
	taking.times = t
	return &taking
}

// args returns the arguments of a call that takes the batch along. There may be none.
func (t *Times) args() (seq int64, waited, ran string) {
	if t == nil {
		return 0, "", ""
	}
	return t.Lane.seq, t.Wait.Text(), t.Run.Text()
}

// timesLane returns the key of the lane that batches of times go through. If there is no batch, no script uses it.
func (q *Queue) timesLane() string {
	if q.times == nil {
		return q.keys.Lane("none")
	}
	return q.times.Lane.key
}
