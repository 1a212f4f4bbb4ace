package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock/internal/batch"
)

const (
	// maxQueued bounds the requests that wait for a node that hangs.
	maxQueued = 4096
	// wireLinger is how long a wire's goroutine stays when there is nothing to do. The next request
	// often comes soon.
	wireLinger = 100 * time.Millisecond
)

var errHangs = errors.New("it hangs, and too much waits for it")

// A wire carries the requests to one node, in order. At most one pipeline is under way. Requests that come
// meanwhile go with the next one. So a release runs after the acquire that it undoes. And a node that
// hangs gets no requests beyond those that it already has.
//
// A wire waits longer for a reply than the callers do: a late reply is still read.
type wire struct {
	carry func(batch []*request)

	more chan struct{} // has room for one value: there is something in the queue
	quit chan struct{} // closed with the wire
	work sync.WaitGroup

	mu      sync.Mutex
	queue   []*request
	running bool            // its goroutine runs
	busy    bool            // a pipeline is under way
	idlers  []chan struct{} // closed when nothing is under way
	closed  bool
}

func (w *wire) init(carry func(batch []*request)) {
	w.carry, w.more, w.quit = carry, make(chan struct{}, 1), make(chan struct{})
}

// A request is one run of a script on one node.
type request struct {
	script *nodeScript // nil: run nothing, only make sure that the node answers
	args   []any       // space for the script, then the number of keys, the keys and the other arguments
	// grant says that the request asks for a lock. It isn't sent to a node that doesn't count. Its
	// last arguments are filled in when it is sent: see terms.
	grant bool
	until time.Time // it isn't sent after that; zero: no bound
	// done is called once, unless the request was withdrawn. It must not block.
	done  func(outcome)
	state atomic.Int32
}

// scriptRoom is the number of arguments before the number of keys.
const scriptRoom = 2

var evalsha, eval any = "evalsha", "eval"

// command returns the request as a command. whole sends the text of the script: the server doesn't know it.
func (k *request) command(ctx context.Context, whole bool) *redis.Cmd {
	k.args[0], k.args[1] = evalsha, k.script.hash
	if whole {
		k.args[0], k.args[1] = eval, k.script.source
	}
	cmd := redis.NewCmd(ctx, k.args...)
	cmd.SetFirstKeyPos(scriptRoom + 1)
	return cmd
}

const (
	requestWaiting int32 = iota
	requestSent
	requestWithdrawn
)

// An outcome is what became of a request.
type outcome struct {
	reply any
	// err is one of three: the server's own answer (isAnswer), a notSent, or another error. After another error
	// nobody knows whether the script ran or still will.
	err    error
	sent   time.Time
	memory string // the marker of the node's memory when the request was sent; empty: unknown
}

// notSent is the error of a request that the server surely didn't get.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

var errLate = notSent{errors.New("not asked in time: it is busy")}

// withdraw reports whether the request was not sent yet. Then it never will be.
func (k *request) withdraw() bool {
	return k.state.CompareAndSwap(requestWaiting, requestWithdrawn)
}

// begin reports whether the request may be sent. It may not after it was withdrawn.
func (k *request) begin() bool { return k.state.CompareAndSwap(requestWaiting, requestSent) }

// send puts a request into the queue.
func (w *wire) send(k *request) {
	if err := w.enqueue(k); err != nil {
		k.done(outcome{err: notSent{err}})
	}
}

func (w *wire) enqueue(k *request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	if len(w.queue) >= maxQueued {
		return errHangs
	}
	w.queue = append(w.queue, k)
	switch {
	case !w.running:
		w.running = true
		w.work.Go(w.run)
	case !w.busy:
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
	w.busy = true
	return nil
}

// run carries requests until none has come for a while.
func (w *wire) run() {
	var batch, late []*request
	timer := time.NewTimer(wireLinger)
	defer timer.Stop()
	for {
		batch, late = w.take(batch[:0], late[:0])
		for _, k := range late {
			k.done(outcome{err: errLate})
		}
		if len(batch) > 0 {
			w.carry(batch)
		}
		if len(batch)+len(late) > 0 {
			continue
		}
		timer.Reset(wireLinger)
		select {
		case <-w.more:
		case <-w.quit:
			return
		case <-timer.C:
			if w.rest() {
				return
			}
		}
	}
}

// rest reports whether there is nothing to do. Then the goroutine ends.
func (w *wire) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = w.busy
	return !w.running
}

// take appends the next requests to next, and those whose time is over to late. If it appends none, nothing is
// under way any more.
func (w *wire) take(next, late []*request) (_, _ []*request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue, next = batch.Take(w.queue, next, batch.Max, (*request).begin)
	now := time.Now()
	next = slices.DeleteFunc(next, func(k *request) bool {
		over := !k.until.IsZero() && now.After(k.until)
		if over {
			late = append(late, k)
		}
		return over
	})
	if len(next)+len(late) == 0 {
		w.busy = false
		for _, idle := range w.idlers {
			close(idle)
		}
		w.idlers = nil
	}
	return next, late
}

// settle waits until nothing is under way or ctx ends.
func (w *wire) settle(ctx context.Context) {
	w.mu.Lock()
	if !w.busy {
		w.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	w.idlers = append(w.idlers, idle)
	w.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close refuses new requests and those that wait.
func (w *wire) close() {
	w.mu.Lock()
	queue := w.queue
	w.queue, w.closed = nil, true
	close(w.quit)
	w.mu.Unlock()
	for _, k := range queue {
		if k.begin() {
			k.done(outcome{err: notSent{errClosed}})
		}
	}
}
