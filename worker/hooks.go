package worker

import (
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/signalbox-go/signalbox"
)

// maxHooks is how many calls of hooks wait at the most.
const maxHooks = 10_000

// hooks calls functions of the user's one after the other, in a goroutine that lives as long as there are any.
type hooks struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting []func()
	done    chan struct{} // is closed when the goroutine ends; nil: there is none
	dropped int           // since the log said so
}

// add has f called. It doesn't wait.
func (h *hooks) add(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) >= maxHooks {
		if h.dropped++; h.dropped == 1 {
			h.log.Error("signalbox: calls of OnRetry and OnDead are dropped: earlier ones take too long", "waiting", maxHooks)
		}
		return
	}
	h.waiting = append(h.waiting, f)
	if h.done == nil {
		h.done = make(chan struct{})
		go h.run(h.done)
	}
}

// run calls what waits. A call may end the goroutine, as t.FailNow does. Then another goroutine calls the rest.
func (h *hooks) run(done chan struct{}) {
	var batch []func()
	ended := false
	defer func() {
		if ended {
			close(done)
			return
		}
		h.mu.Lock()
		h.waiting = append(batch, h.waiting...)
		h.mu.Unlock()
		h.log.Error("signalbox: OnRetry or OnDead called runtime.Goexit")
		go h.run(done)
	}()
	for {
		h.mu.Lock()
		batch = h.waiting
		h.waiting = nil
		if len(batch) == 0 {
			h.done, h.dropped = nil, 0
			h.mu.Unlock()
			ended = true
			return
		}
		h.mu.Unlock()
		for len(batch) > 0 {
			f := batch[0]
			batch = batch[1:]
			h.call(f)
		}
	}
}

// call calls f. A panic of f is logged.
func (h *hooks) call(f func()) {
	defer func() {
		if p := recover(); p != nil {
			err := &signalbox.PanicError{Value: p, Stack: debug.Stack()}
			h.log.Error("signalbox: OnRetry or OnDead panicked", "error", brief(err), "stack", cut(string(err.Stack), maxStack))
		}
	}()
	f()
}

// wait waits until all calls that were added before have returned.
func (h *hooks) wait() {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	if done != nil {
		<-done
	}
}
