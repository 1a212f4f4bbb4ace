package store

import (
	"math/bits"
	"strconv"
	"time"
)

// A Histogram counts durations by their length. Bucket i has those of more than 2^(i-1) ms and at most 2^i ms. The first one has all up to
// 1 ms, and the last one all that took longer than 2^22 ms, which is about 70 minutes.
type Histogram [24]int64

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	if d <= 0 { // a clock was set back
		h[0]++
		return
	}
	h[min(bits.Len64(uint64((d-1)/time.Millisecond)), len(h)-1)]++
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// HistogramBound returns the longest duration that bucket i counts; of the last bucket, the longest that the one before counts.
func HistogramBound(i int) time.Duration {
	return time.Millisecond << min(i, len(Histogram{})-2)
}

// text returns the histogram as scripts read it: "bucket:number", with commas between, without empty buckets.
func (h *Histogram) text() string {
	var b []byte
	for i, n := range h {
		if n == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// Times are a batch of times of deliveries: how long they waited from when they were due until they were claimed, and how long they ran.
// The batch is the call under way of its lane: Redis adds it once, however often it is sent.
type Times struct {
	Lane      *Lane
	Wait, Run Histogram
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
	return t.Lane.seq, t.Wait.text(), t.Run.text()
}

// timesLane returns the key of the lane that batches of times go through. If there is no batch, no script uses it.
func (q *Queue) timesLane() string {
	if q.times == nil {
		return q.keys.Lane("none")
	}
	return q.times.Lane.key
}
