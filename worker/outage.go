package worker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A contact knows whether Redis answers a queue's calls. Lanes, keeper, reclaimer and copier note how their calls end, and the guard looks for calls
// that hang.
type contact struct {
	q    *queue
	born time.Time // what heardAt and waits count from, in ns

	away    atomic.Bool     // the last call was not served; set by the worker's link
	heardAt atomic.Int64    // when a call was last answered
	waits   [lanes + 1]wait // of each lane, and of the keeper

	// The queue's mu guards these.
	outage   time.Time          // when Redis was last known not to be there in time
	refusals map[string]refused // kinds of calls that Redis refuses
}

// A wait records when the call under way of a lane, or of the keeper, began.
type wait struct{ began atomic.Int64 } // ns since the queue's born; 0 if no call is under way

func (w *wait) begin(q *queue, at time.Time) { w.began.Store(int64(at.Sub(q.contact.born))) }

func (w *wait) end() { w.began.Store(0) }

// failed notes that a call did not reach Redis, or that Redis refused it. began is when the call began.
func (ct *contact) failed(what string, began time.Time, err error) {
	if errors.Is(err, redis.ErrClosed) {
		ct.closed(err)
		return
	}
	if layout, ok := errors.AsType[*layout.Error](err); ok {
		ct.q.mu.Lock()
		ct.q.orders.misfits(layout, began)
		ct.q.mu.Unlock()
		return
	}
	var answer redis.Error
	refused := errors.As(err, &answer)
	away := isOutage(err)
	if away || what == "renew" || what == "open" { // if this worker can't renew, others perhaps can't either
		ct.disturbed()
	}
	if away && !refused && ct.q.w.pace.stoodSince(began) > 0 { // an answer may have come, and the time to read it was over: the next call shows it
		return
	}
	// A call that gets no answer for long says nothing new if another one was answered meanwhile: an outage that was over before may have cut it.
	if away && (refused || ct.heardAt.Load() <= int64(began.Sub(ct.born))) {
		if ct.gone(what, began, err) {
			return
		}
	}
	if refused {
		ct.noteRefusal(what, began, err)
	}
	ct.q.warn("call:"+what+":"+errorKind(err), "signalbox: a call to Redis failed, and is made again", "call", what, "error", err)
}

// gone notes that the queue is not served since the given time. It reports whether that is an outage.
func (ct *contact) gone(what string, since time.Time, err error) bool {
	return ct.q.w.link.lost(ct.q, what, since, err)
}

// closed ends the worker because its client was closed. At the end of a drain, calls of the worker's own client end the same way.
func (ct *contact) closed(err error) {
	ct.q.w.end(fmt.Errorf("worker: the client was closed while Run was under way; end Run's context and wait for Run to return before Close: %w", err))
}

// outages are the first words of Redis's errors in an outage. In an outage Redis refuses all workers for a while: it doesn't serve yet,
// it no longer serves, or it can't write.
var outages = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOAUTH", "WRONGPASS", "max number of clients reached",
	"MISCONF",    // its disk is full or broken
	"NOREPLICAS", // fewer replicas than min-replicas-to-write
	"OOM",
}

// isOutage reports whether all workers see such an error at the same time: Redis did not answer, or the error is one of outages.
func isOutage(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	return slices.ContainsFunc(outages, func(word string) bool { return redis.HasErrorPrefix(err, word) })
}

// isCut reports whether a connection broke under the call.
func isCut(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE}, func(cut error) bool { return errors.Is(err, cut) })
}

// answered notes that a call that began at start was answered.
func (ct *contact) answered(start time.Time) {
	now := time.Now()
	ct.heardAt.Store(int64(now.Sub(ct.born)))
	if ct.away.Load() && ct.away.CompareAndSwap(true, false) {
		ct.disturbed() // the outage ends now for other workers as well
		ct.q.w.link.back(ct.q)
		ct.q.hint(true) // a wake-up may have been lost with a connection
	}
	ct.slow(start, now)
}

// slow notes if a call took so long that renewals of other workers may have been late as well.
func (ct *contact) slow(start, end time.Time) {
	if end.Sub(start) >= ct.q.w.cfg.SessionTTL/3 {
		ct.disturbed()
	}
}

// disturbed notes that other workers may have been unable to renew their sessions until now. See calm.
func (ct *contact) disturbed() {
	ct.q.mu.Lock()
	ct.outage = time.Now()
	ct.q.mu.Unlock()
}

// errorKind returns the common part of errors with the same cause. That is the first word of Redis's reply, or the innermost error,
// which has no address and no port.
func errorKind(err error) string {
	var answer redis.Error
	if errors.As(err, &answer) {
		word, _, _ := strings.Cut(answer.Error(), " ")
		return word
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "timeout"
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return cut(err.Error(), 200)
}

// warn logs a warning, at most once a minute for each subject.
func (q *queue) warn(subject, msg string, args ...any) {
	q.mu.Lock()
	again := sayAgain(q.throttled, subject)
	q.mu.Unlock()
	if again {
		q.log.Warn(msg, args...)
	}
}

// sayAgain reports whether a minute has passed since it last returned true for the subject. said keeps the time of that.
func sayAgain(said map[string]time.Time, subject string) bool {
	now := time.Now()
	if last, ok := said[subject]; ok && now.Sub(last) < time.Minute {
		return false
	}
	if len(said) > 1000 {
		clear(said)
	}
	said[subject] = now
	return true
}

// noteRefusal keeps that Redis refuses a kind of call which the queue can't do without.
func (ct *contact) noteRefusal(call string, since time.Time, err error) {
	if !slices.Contains([]string{"claim", "renew", "open"}, call) {
		return
	}
	ct.q.mu.Lock()
	defer ct.q.mu.Unlock()
	if ct.refusals == nil {
		ct.refusals = make(map[string]refused)
	}
	if old, ok := ct.refusals[call]; ok {
		since = old.since
	}
	ct.refusals[call] = refused{since, publicReason(err)}
}

// accepted forgets that Redis refused a kind of call. The queue's mu is held.
func (ct *contact) accepted(call string) {
	if len(ct.refusals) > 0 {
		delete(ct.refusals, call)
	}
}

// refuses reports whether Redis refuses a kind of call. The queue's mu is held.
func (ct *contact) refuses(call string) bool {
	_, ok := ct.refusals[call]
	return ok
}

// newBackoff spaces calls that are made again: from 10 ms to a tenth of the TTL, jittered.
func newBackoff(ttl time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(min(ttl/10, time.Second)),
		backoff.WithMaxElapsedTime(0))
}
