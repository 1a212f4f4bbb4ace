package web

import (
	"context"
	"sync"
	"time"
)

const (
	lookTTL   = time.Second      // how long a look counts at least
	lookBound = 10 * time.Second // how long one may take
	restful   = 4                // a look counts for so many times its length, so that looking takes a fifth of the time at most
)

// A reader has what was read of Redis a moment ago. It owns each look that is under way.
type reader struct {
	mu    sync.Mutex
	looks map[string]*look
}

// A look is one reading of something, for all who want it meanwhile and shortly after. mu of the reader guards waiting and until; value and err
// are set before done is closed.
type look struct {
	done    chan struct{}
	value   any
	err     error
	waiting int       // requests that wait for it
	until   time.Time // when it is too old. Zero: it is under way
	cancel  context.CancelFunc
}

func newReader() *reader { return &reader{looks: make(map[string]*look)} }

// read returns what f returns, or what it returned a moment ago for the same key. ttl is how long that counts at least. If ctx ends first, read returns its error.
func read[T any](ctx context.Context, r *reader, key string, ttl time.Duration, f func(context.Context) (T, error)) (T, error) {
	l := r.join(ctx, key, ttl, func(ctx context.Context) (any, error) { return f(ctx) })
	var err error
	select {
	case <-l.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.leave(key, l)
	if err != nil {
		var none T
		return none, err
	}
	value, _ := l.value.(T)
	return value, l.err
}

// join returns the look for a key, and begins it if there is none that counts. It forgets all that don't count any more.
func (r *reader) join(ctx context.Context, key string, ttl time.Duration, f func(context.Context) (any, error)) *look {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for k, l := range r.looks {
		if !l.until.IsZero() && now.After(l.until) {
			delete(r.looks, k)
		}
	}
	l := r.looks[key]
	if l == nil {
		// The look outlives the request that began it, if others wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBound)
		l = &look{done: make(chan struct{}), cancel: cancel}
		r.looks[key] = l
		go r.run(ctx, l, ttl, f)
	}
	l.waiting++
	return l
}

// run makes a look.
func (r *reader) run(ctx context.Context, l *look, ttl time.Duration, f func(context.Context) (any, error)) {
	began := time.Now()
	l.value, l.err = f(ctx)
	l.cancel()
	if l.err == nil {
		ttl = max(ttl, restful*time.Since(began))
	} else {
		ttl = lookTTL // Redis may be back soon
	}
	r.mu.Lock()
	l.until = time.Now().Add(ttl)
	r.mu.Unlock()
	close(l.done)
}

// leave ends the look if nobody waits for it any more.
func (r *reader) leave(key string, l *look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.waiting--; l.waiting == 0 && l.until.IsZero() {
		l.cancel()
		if r.looks[key] == l {
			delete(r.looks, key) // the next request makes another
		}
	}
}

// forget has the next request for anything look again: something was changed.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.looks)
}
