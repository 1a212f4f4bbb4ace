package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

const (
	// firstRepeat is the pause before a release without a reply is sent again. It doubles each time, up to mostRepeat.
	firstRepeat = 10 * time.Millisecond
	// mostRepeat is the longest such pause.
	mostRepeat = time.Second
	// maxRepeats bounds the releases of one locker that wait to be sent again.
	maxRepeats = 4096
	// repeatLinger is how long after the end of the TTL a release is still sent again. Clocks differ.
	repeatLinger = time.Second
)

// A handover gives up one lock. That may be a holder's lock, the lock of a waiter that doesn't use its turn,
// or what an acquire took whose reply nobody got. It may take several calls of release.lua: by
// Release, by a repeated Release, and in the background. All of them name the same new values, and only the
// first answer counts. So one waiter gets the next grant, whichever reply is lost.
type handover struct {
	place place
	value string    // what the lock holds now
	token int64     // of the grant; 0: unknown
	row   row       // the row that the grant was in
	keep  time.Time // the lock stays held until then; zero: it need not
	ttl   time.Duration
	lock  *held.Lock // the holder's; nil: it was granted to nobody

	mu        sync.Mutex
	next      string        // the lock's new value if the script grants it to this process; only the reply carries it
	offer     string        // the lock's new value if the script offers it to a process; only the message carries it
	start     lease.Instant // before the first call that may hand the lock over
	until     time.Time     // no call is sent after that
	pause     time.Duration // before the next call
	repeating bool          // another call is due
	unsure    bool          // a call got no reply, or none in time, so Redis may have run it
	settled   bool          // Redis has answered
	err       error         // the outcome, once it is settled
}

// begin notes when the first try is made. It reports whether Redis has answered already, and with what outcome.
func (h *handover) begin() (settled bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until.IsZero() {
		h.until = time.Now().Add(h.ttl + repeatLinger)
	}
	return h.settled, h.err
}

// draw makes the two new values before the first call that may hand the lock over. Most releases need none.
func (h *handover) draw() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next == "" {
		h.start = lease.Now()
		h.next = spec.NewValue()
		h.offer = h.next + "+" // differs from every value that NewValue returns
	}
}

// settle notes an answer. It reports whether it is the first, and returns the outcome of the first. If others have had
// the lock since a call that got no reply, that call most likely released it.
func (h *handover) settle(err error) (first bool, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled {
		return false, h.err
	}
	if h.unsure && h.lock != nil && errors.Is(err, ErrTaken) {
		err = h.lock.Earlier(err)
	}
	h.settled, h.err = true, err
	return true, err
}

// give releases a lock. It hands it to the first waiter of this process, if there is one. If Redis doesn't
// answer, give returns an error and sends the call again in the background until the TTL is over.
func (r *Redis) give(ctx context.Context, h *handover) error {
	if settled, err := h.begin(); settled {
		return err
	}
	next, err := r.release(context.WithoutCancel(ctx), h)
	if err != nil && !errors.Is(err, ErrLost) {
		r.repeat(h, !lua.IsAnswer(err))
		return advise(err, h.place)
	}
	first, err := h.settle(err)
	if first {
		r.tell(h.place, next)
	}
	return err
}

// release makes the calls of one try. It returns the turn for the first waiter of this process.
func (r *Redis) release(ctx context.Context, h *handover) (turn, error) {
	begin, keep := time.Now(), time.Duration(0)
	if !h.keep.IsZero() {
		keep = h.keep.Sub(begin)
	}
	owner := any("")
	switch {
	case keep > 0:
	case r.waitedFor([]place{h.place}):
		owner = r.ownerArg
	case h.row.n == 0: // nobody handed it over to us, so most likely nobody waits
		if done, err := r.free(ctx, h); done || err != nil {
			return turn{}, err
		}
	}
	h.draw()
	reply, twice, err := r.caller.CallTwice(ctx, callTimeout-time.Since(begin), releaseScript,
		[]string{h.place.lock, h.place.fence, h.place.line},
		[]any{
			h.value, h.next, owner, r.ttlArg, r.offerArg,
			h.row.n, h.row.since, max(0, (keep + time.Millisecond - 1).Milliseconds()), r.cluster,
			h.offer, r.bell.listening(), h.token,
		}, nil)
	h.sent(twice)
	if lua.IsWrongType(err) {
		return turn{}, ErrTaken // somebody put another type at the lock's key
	}
	if err != nil {
		return turn{}, err
	}
	g, err := parseReleased(reply)
	if g.token != 0 {
		return turn{value: h.next, token: g.token, row: row{h.row.n + 1, h.row.since}, start: h.start}, err
	}
	return turn{pause: g.pause}, err
}

// free releases a lock that nobody waits for. It reports whether it did.
func (r *Redis) free(ctx context.Context, h *handover) (done bool, err error) {
	reply, twice, err := r.caller.CallTwice(ctx, callTimeout, freeScript, []string{h.place.lock, h.place.line}, []any{h.value}, nil)
	h.sent(twice)
	return err == nil && reply == int64(1), err
}

// sent notes that a call was sent, and whether twice: then Redis may have run the first copy.
func (h *handover) sent(twice bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure = h.unsure || twice
}

// repeat sends the release again after a pause, unless a repeat is due already or the TTL is over. unsure says that Redis may have run it.
func (r *Redis) repeat(h *handover, unsure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure = h.unsure || unsure
	if h.settled || h.repeating || time.Now().After(h.until) {
		return
	}
	h.pause = min(max(2*h.pause, firstRepeat), mostRepeat)
	h.repeating = r.later(h.pause, func() {
		h.mu.Lock()
		h.repeating = false
		h.mu.Unlock()
		_ = r.give(context.Background(), h)
	})
}

// later runs f after d, in a goroutine of its own. It returns false, and does nothing, if too many are due.
func (r *Redis) later(d time.Duration, f func()) bool {
	if r.repeats.Add(1) > maxRepeats {
		r.repeats.Add(-1)
		return false
	}
	time.AfterFunc(d, func() {
		r.repeats.Add(-1)
		f()
	})
	return true
}
