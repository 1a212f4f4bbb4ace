package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/batch"
)

// The tables here say what one answer makes of what is known, also where it comes late, or for the second time.

// unconnected returns a Locker of three nodes whose requests are only queued.
func unconnected(t *testing.T) *Locker {
	t.Helper()
	r := &Locker{need: 2, ttl: time.Minute, nodeTimeout: time.Second}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	for i := range 3 {
		n := &node{locker: r, index: i, addr: fmt.Sprint("node", i), patience: time.Second}
		n.wire.init(nil)
		n.wire.running, n.wire.busy = true, true
		n.leftovers.node, n.leftovers.sweeping = n, true
		r.nodes = append(r.nodes, n)
	}
	return r
}

// answered is an error that a server answers.
type answered string

func (e answered) Error() string { return string(e) }
func (answered) RedisError()     {}

// A vote counts for its own token only, and only if that isn't below what the node's clock showed first. An error takes nothing from what the node has.
func TestWhatAVoteCountsFor(t *testing.T) {
	t.Parallel()
	const first, second = 200, 300 // the tokens of two rounds
	lost := io.ErrUnexpectedEOF
	for name, c := range map[string]struct {
		clock, wantClock int64
		before, answer   vote
		want             vote
		votes            [2]int
	}{
		"a vote":                          {100, 100, vote{}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 150}}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 150}}, [2]int{1, 0}},
		"one of the second round":         {100, 100, vote{held: true}, vote{held: true, voted: true, token: second}, vote{held: true, voted: true, token: second}, [2]int{0, 1}},
		"a refusal":                       {100, 100, vote{}, vote{held: true, token: first, register: register{last: 250, now: 150}}, vote{held: true, token: first, register: register{last: 250, now: 150}}, [2]int{}},
		"the clock is learned":            {0, 150, vote{}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 150}}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 150}}, [2]int{1, 0}},
		"it is below the node's clock":    {0, 250, vote{}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 250}}, vote{held: true, token: first, register: register{last: first, now: 250}}, [2]int{}},
		"the clock has passed it since":   {100, 100, vote{}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 250}}, vote{held: true, voted: true, token: first, register: register{last: 50, now: 250}}, [2]int{1, 0}},
		"an error":                        {100, 100, vote{}, vote{err: lost}, vote{err: lost}, [2]int{}},
		"an error where it has the lock":  {100, 100, vote{held: true}, vote{token: second, err: lost}, vote{token: second, held: true, err: lost}, [2]int{}},
		"an error where another has it":   {100, 100, vote{other: true}, vote{err: lost}, vote{err: lost}, [2]int{}},
		"another has it where it was had": {100, 100, vote{held: true}, vote{other: true}, vote{other: true}, [2]int{}},
	} {
		e := newElection(unconnected(t).claim("key", "record"))
		e.clocks[1], e.due[1] = c.clock, 1
		e.count = []candidate{{first, make([]bool, 3)}, {second, make([]bool, 3)}}
		c.before.node, c.answer.node, c.want.node = 1, 1, 1
		e.last[1] = c.before
		e.hear(c.answer)
		if e.last[1] != c.want || e.clocks[1] != c.wantClock || e.due[1] != 0 {
			t.Errorf("%s: %+v, clock %d, %d due; want %+v, clock %d, none due", name, e.last[1], e.clocks[1], e.due[1], c.want, c.wantClock)
		}
		if votes := [2]int{e.count[0].votes(), e.count[1].votes()}; votes != c.votes {
			t.Errorf("%s: votes %v, want %v", name, votes, c.votes)
		}
		if e.hear(c.answer); e.due[1] != 0 { // it comes after the time-out
			t.Errorf("%s: %d answers are due", name, e.due[1])
		}
	}
}

// Whether no quorum can hold the lock any more: h has it, o is another's, e has failed, w is waited for.
func TestWhatIsHopeless(t *testing.T) {
	t.Parallel()
	for states, want := range map[string]string{
		"hhw": "", "how": "", "wwo": "", "oew": "", "eew": "", "wee": "",
		"oow": "held", "oho": "held", "heo": "held", "ooe": "held",
		"oee": "failed", "hee": "failed", "eee": "failed",
	} {
		e := newElection(unconnected(t).claim("key", "record"))
		failed := 0
		for i, s := range states {
			switch s {
			case 'h':
				e.last[i].held = true
			case 'o':
				e.last[i].other, e.last[i].for_ = true, time.Second
			case 'e':
				e.last[i].err = io.ErrUnexpectedEOF
				failed++
			case 'w':
				e.due[i] = 1
			}
		}
		err := e.hopeless()
		var q *lock.QuorumError
		switch {
		case want == "" && err == nil, want == "held" && errors.Is(err, lock.ErrHeld):
		case want == "failed" && errors.As(err, &q) && len(q.Nodes) == failed && !errors.Is(err, lock.ErrHeld):
		default:
			t.Errorf("%s: %v, want %q", states, err, want)
		}
	}
}

// An attempt whose caller leaves has seen the lock held, or not.
func TestCallerLeavesAnElection(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for _, other := range []bool{false, true} {
		e := newElection(unconnected(t).claim("key", "record"))
		e.last[0].other = other
		if _, err := e.run(ctx, false); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrHeld) != other {
			t.Errorf("another has the lock on a node: %v; %v", other, err)
		}
	}
}

// What a node's answer makes of what a claim has there. set says that the node was asked for the lock, else only for its vote.
func TestWhatAnAnswerMakesOfAShare(t *testing.T) {
	t.Parallel()
	held, other, forgot, late := []any{int64(1), int64(1), int64(5), int64(7)}, []any{int64(0), int64(100), int64(7)}, []any{int64(statusForgot)}, []any{int64(statusLate), int64(7)}
	for name, c := range map[string]struct {
		state shareState
		set   bool
		reply any
		err   error
		want  shareState
	}{
		"it has it":                         {shareAsked, true, held, nil, shareHeld},
		"another has it":                    {shareAsked, true, other, nil, shareNone},
		"it lost its memory":                {shareAsked, true, forgot, nil, shareNone},
		"it came late":                      {shareAsked, true, late, nil, shareNone},
		"the server refused":                {shareAsked, true, nil, answered("OOM"), shareNone},
		"it wasn't sent":                    {shareAsked, true, nil, notSent{io.EOF}, shareNone},
		"the reply is lost":                 {shareAsked, true, nil, io.EOF, shareUnsure},
		"a vote":                            {shareHeld, false, held, nil, shareHeld},
		"a vote, the lock is gone":          {shareHeld, false, other, nil, shareNone},
		"a vote, it lost its memory":        {shareHeld, false, forgot, nil, shareHeld},
		"a vote, the server refused":        {shareHeld, false, nil, answered("OOM"), shareHeld},
		"a vote that wasn't sent":           {shareHeld, false, nil, notSent{io.EOF}, shareHeld},
		"a vote whose reply is lost":        {shareHeld, false, nil, io.EOF, shareHeld},
		"a vote, it was given up meanwhile": {shareReleased, false, held, nil, shareReleased},
		"a vote, it is another's meanwhile": {shareReleased, false, other, nil, shareReleased},
		"a vote, it was lost meanwhile":     {shareLost, false, held, nil, shareLost},
		"a vote, it may have been given up": {shareUnsure, false, other, nil, shareUnsure},
	} {
		claim := unconnected(t).claim("key", "record")
		claim.shares[1].state = c.state
		claim.heard(1, 9, c.set, outcome{reply: c.reply, err: c.err, sent: time.Now(), memory: "m"})
		if s := claim.shares[1]; s.state != c.want || s.state == shareHeld && c.reply != nil && len(c.reply.([]any)) == 4 && s.memory != "m" {
			t.Errorf("%s: state %d of memory %q, want %d", name, s.state, s.memory, c.want)
		}
	}
}

// What the answer to a release makes of what a claim has on a node, what is left to do there, and what a later release counts without asking again.
func TestWhatAReleaseMakesOfAShare(t *testing.T) {
	t.Parallel()
	const nothing, retry, look, retryAndLook = 0, 1, 2, 3 // what is left: to release it; to look once more, later; or both
	down := errors.New("down")
	for name, c := range map[string]struct {
		state     shareState
		status    int64
		err       error
		want      shareState
		said      int64
		left      int
		yes, gone int // what a later release counts
		taken     int
	}{
		"it was given up":                        {shareHeld, statusDone, nil, shareReleased, statusDone, nothing, 1, 0, 0},
		"it was gone":                            {shareHeld, statusGone, nil, shareLost, statusGone, nothing, 0, 1, 0},
		"it was another's":                       {shareHeld, statusTaken, nil, shareLost, statusTaken, nothing, 0, 0, 1},
		"no answer":                              {shareHeld, 0, down, shareHeld, 0, retry, 0, 0, 0},
		"it may have been had, and was":          {shareUnsure, statusDone, nil, shareReleased, statusDone, nothing, 1, 0, 0},
		"it may come late":                       {shareUnsure, statusGone, nil, shareLost, statusGone, look, 0, 1, 0},
		"it may come late, and is another's now": {shareUnsure, statusTaken, nil, shareLost, statusTaken, look, 0, 0, 1},
		"it may come late, and no answer":        {shareUnsure, 0, down, shareUnsure, 0, retryAndLook, 0, 0, 0},
		"it is asked for":                        {shareAsked, statusGone, nil, shareLost, statusGone, look, 0, 1, 0},
		"it was given up by an earlier one":      {shareReleased, statusGone, nil, shareReleased, statusDone, nothing, 1, 0, 0},
		"it was given up, and is another's":      {shareReleased, statusTaken, nil, shareReleased, statusDone, nothing, 1, 0, 0},
		"an earlier one found it gone":           {shareLost, statusTaken, nil, shareLost, statusTaken, nothing, 0, 1, 0},
		"it was never had":                       {shareNone, statusGone, nil, shareNone, statusGone, nothing, 0, 0, 0},
	} {
		r := unconnected(t)
		claim := r.claim("key", "record")
		claim.shares[1].state = c.state
		said := claim.gaveUp(1, time.Time{}, c.status, c.err)
		if s := claim.shares[1].state; s != c.want || said.status != c.said || said.node != 1 {
			t.Errorf("%s: state %d, ruling %+v; want state %d, status %d", name, s, said, c.want, c.said)
		}
		left := nothing
		for _, o := range r.nodes[1].leftovers.list {
			left = retry
			if o.again {
				left = retryAndLook
			} else if o.after.After(time.Now()) {
				left = look
			}
		}
		if left != c.left {
			t.Errorf("%s: %d is left to do, want %d", name, left, c.left)
		}
		tally := newTally(r)
		tally.before(claim)
		if tally.yes != c.yes || tally.gone != c.gone || tally.taken != c.taken {
			t.Errorf("%s: a later release counts yes %d, gone %d, taken %d; want %d, %d, %d", name, tally.yes, tally.gone, tally.taken, c.yes, c.gone, c.taken)
		}
	}
}

// Replies that no script gives, as from a proxy between, count for nothing.
func TestUnexpectedReplies(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{nil, "OK", int64(2), int64(-2), []any{}, []any{int64(1)}, []any{int64(2), int64(1), int64(5), int64(7)}, []any{int64(1), int64(100), int64(7)}, []any{int64(-1), int64(7)}, []any{"1", "1", "5", "7"}} {
		if status, err := parseStatus(outcome{reply: reply}); err == nil {
			t.Errorf("status of %v: %d", reply, status)
		}
		if v := parseVote(outcome{reply: reply}); v.err == nil || v.held || v.voted || v.other {
			t.Errorf("vote of %v: %+v", reply, v)
		}
	}
	if v := parseVote(outcome{reply: []any{int64(statusForgot)}}); v.err != errForgot {
		t.Errorf("a node that forgot: %+v", v)
	}
	for _, text := range []answered{"WRONGTYPE it is a list", "BADRECORD it is none"} {
		if v := parseVote(outcome{err: text}); !errors.Is(v.err, lock.ErrInvalid) {
			t.Errorf("%s: %v, want %v", text, v.err, lock.ErrInvalid)
		}
	}
	if status, err := parseStatus(outcome{err: answered("WRONGTYPE it is a list")}); status != statusTaken || err != nil {
		t.Errorf("another type in the lock's place: %d, %v", status, err)
	}
}

// When a lock that went is asked for again: while the holder has it and wants it there, and once what was asked for before can't arrive any more.
func TestWhenALockIsAskedForAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later := now.Add(time.Minute)
	for name, c := range map[string]struct {
		over         bool
		share        share
		asks, pauses bool // askAgain asks at once; later asks after a pause
	}{
		"it went":                               {false, share{state: shareNone, wanted: later}, true, true},
		"it was released":                       {true, share{state: shareNone, wanted: later}, false, false},
		"the validity is over":                  {false, share{state: shareNone, wanted: now}, false, false},
		"it is asked for":                       {false, share{state: shareAsked, asked: now, wanted: later}, false, true},
		"it may still arrive":                   {false, share{state: shareUnsure, asked: now, wanted: later}, false, true},
		"what was asked before arrives no more": {false, share{state: shareUnsure, asked: now.Add(-time.Minute), wanted: later}, true, true},
	} {
		r := unconnected(t)
		claim := r.claim("key", "record")
		claim.over, claim.shares[1] = c.over, c.share
		claim.later(1)
		claim.mu.Lock()
		if claim.shares[1].waits != c.pauses {
			t.Errorf("%s: it is asked for after a pause: %v, want %v", name, claim.shares[1].waits, c.pauses)
		}
		claim.over = true // the pause ends without a request
		claim.mu.Unlock()

		claim = r.claim("key", "record")
		claim.over, claim.shares[1] = c.over, c.share
		claim.askAgain(1)
		n := r.nodes[1]
		n.wire.mu.Lock()
		if asks := len(n.wire.queue) > 0; asks != c.asks {
			t.Errorf("%s: it is asked for: %v, want %v", name, asks, c.asks)
		}
		n.wire.mu.Unlock()
	}
	// A Locker that was closed asks no more, and one pause is enough.
	r := unconnected(t)
	claim := r.claim("key", "record")
	claim.shares[1].wanted = later
	r.cancel()
	if claim.later(1); claim.shares[1].waits {
		t.Error("a closed Locker asks again")
	}
}

// A node isn't asked for locks while its memory is unknown or new. Of its clock only what is known in time counts.
func TestTermsOfANode(t *testing.T) {
	t.Parallel()
	unfit := errors.New("unfit")
	for name, c := range map[string]struct {
		unfit  error
		memory memory
		want   error // nil: it is asked
	}{
		"no delay":              {nil, memory{}, nil},
		"its memory is known":   {nil, memory{delay: time.Second, marker: "m"}, nil},
		"its memory is unknown": {nil, memory{delay: time.Second}, errForgot},
		"it is unfit":           {unfit, memory{delay: time.Second, marker: "m"}, unfit},
	} {
		n := &node{unfit: c.unfit, memory: c.memory}
		if terms := n.terms(); terms.refused != c.want {
			t.Errorf("%s: refused: %v, want %v", name, terms.refused, c.want)
		}
	}
	n := &node{memory: memory{delay: time.Second, marker: "m", rests: time.Now().Add(time.Minute)}}
	if n.terms().refused == nil {
		t.Error("it is asked for locks while its memory is new")
	}

	now := time.Now()
	for name, c := range map[string]struct {
		clock    int64 // what is known of it; 0: nothing
		at, sent time.Time
		want     int64
	}{
		"it is unknown":          {0, time.Time{}, now.Add(-time.Minute), 9},
		"a later request":        {7, now.Add(-time.Minute), now, 9},
		"an earlier request":     {7, now, now.Add(-time.Millisecond), 7},
		"the reply took so long": {7, now.Add(-time.Minute), now.Add(-2 * morePatience), 7},
	} {
		n := &node{clock: c.clock, at: c.at}
		if n.setClock(9, c.sent); n.clock != c.want {
			t.Errorf("%s: clock %d, want %d", name, n.clock, c.want)
		}
	}
}

// The leftovers of a node are bounded. Each is tried when it is time, and dropped in the end.
func TestLeftoversOfANode(t *testing.T) {
	t.Parallel()
	r := unconnected(t)
	l := &r.nodes[0].leftovers
	now := time.Now()
	for i := range maxLeftovers + 1 {
		l.add(&leftover{node: i, drop: now.Add(time.Minute)})
	}
	if len(l.list) != maxLeftovers || l.list[0].node != 1 || l.list[maxLeftovers-1].node != maxLeftovers {
		t.Errorf("%d leftovers, from %d; want the last %d", len(l.list), l.list[0].node, maxLeftovers)
	}
	if next, ended := l.due(); len(next) != batch.Max || ended {
		t.Errorf("%d are due, ended %v; want %d", len(next), ended, batch.Max)
	}
	l.list = []*leftover{{node: 1, after: now.Add(time.Minute), drop: now.Add(time.Hour)}, {node: 2, drop: now.Add(-time.Second)}, {node: 3, drop: now.Add(time.Hour)}}
	if next, ended := l.due(); len(next) != 1 || next[0].node != 3 || len(l.list) != 2 || ended {
		t.Errorf("due %v of %d, ended %v; want the third of two", next, len(l.list), ended)
	}
	l.list = nil
	if next, ended := l.due(); len(next) != 0 || !ended || l.sweeping {
		t.Errorf("due %v, ended %v; want that the sweep ends", next, ended)
	}
}

// A server that was told to forget its scripts gets them again.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	flush := func() {
		everywhere(t, servers, func(_ int, rdb redis.UniversalClient) { do(t, rdb, "SCRIPT", "FLUSH") })
	}
	release(t, acquire(t, r, key))
	flush()
	l := acquire(t, r, key)
	flush()
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extended: %v", err)
	}
	flush()
	release(t, l)
	nothingLeft(t, servers, key)
}
