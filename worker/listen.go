package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
)

// blockFor bounds a blocking pop: the fallback should a wake-up be lost.
const blockFor = 10 * time.Second

// queuesPerPop is the most queues that one blocking pop listens to. It is sent again when one of them becomes
// busy or idle, with the names of all that are idle.
const queuesPerPop = 128

// A listener waits for wake-up tokens on behalf of idle queues. On one server up to queuesPerPop queues of a worker
// share a blocked connection. In a Cluster each queue is in a slot of its own, and has a listener of its own.
type listener struct {
	rdb    redis.UniversalClient // with connections of its own, if the caller's client is of a kind that we know
	log    *slog.Logger
	queues []*queue
	bell   string // a key that is in every pop: a push to it ends the pop

	mu      sync.Mutex
	blocked []bool        // the queues listened to now; nil: none
	rung    bool          // the bell was rung: the pop will end
	stirred chan struct{} // some queue became idle, or isn't any more
	done    chan struct{} // run has ended
}

// listen returns the listeners of the queues, which call Redis through rdb.
func listen(rdb redis.UniversalClient, log *slog.Logger, queues []*queue) []*listener {
	var listeners []*listener
	add := func(queues ...*queue) {
		l := &listener{rdb: rdb, log: log, queues: queues, bell: queues[0].store.Bell(), stirred: make(chan struct{}, 1), done: make(chan struct{})}
		for _, q := range queues {
			q.listener = l
		}
		listeners = append(listeners, l)
	}
	if _, single := rdb.(*redis.Client); single {
		for some := range slices.Chunk(queues, queuesPerPop) {
			add(some...)
		}
		return listeners
	}
	for _, q := range queues {
		add(q)
	}
	return listeners
}

// update is called when a queue may have become idle, or not idle. It doesn't block.
func (l *listener) update() {
	select {
	case l.stirred <- struct{}{}:
	default:
	}
}

// run listens until ctx ends. One goroutine makes the blocking pops. This one ends a pop, by ringing its bell, when
// the set of idle queues has changed or ctx has ended.
func (l *listener) run(ctx context.Context) {
	defer close(l.done)
	work := make(chan []bool)
	var popping sync.WaitGroup
	popping.Go(func() {
		for set := range work {
			l.pop(ctx, set)
			l.update()
		}
	})
	defer popping.Wait()
	defer close(work)
	for {
		select {
		case <-ctx.Done():
			l.ring(nil)
			return
		case <-l.stirred:
		}
		idle := l.idle()
		if l.ring(idle) || !slices.Contains(idle, true) {
			continue
		}
		l.mu.Lock()
		start := l.blocked == nil
		if start {
			l.blocked, l.rung = idle, false
		}
		l.mu.Unlock()
		if start {
			work <- idle
		}
	}
}

func (l *listener) idle() []bool {
	set := make([]bool, len(l.queues))
	for i, q := range l.queues {
		q.mu.Lock()
		q.heard = q.idle()
		set[i] = q.heard
		q.mu.Unlock()
	}
	return set
}

// ring ends a pop that listens to other queues than these, and reports whether it had to.
func (l *listener) ring(want []bool) bool {
	l.mu.Lock()
	stale := l.blocked != nil && !slices.Equal(l.blocked, want)
	silent := !l.rung
	l.rung = l.rung || stale
	l.mu.Unlock()
	if !stale || !silent {
		return stale
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := store.Ring(ctx, l.rdb, l.bell); err != nil {
		l.log.Debug("signalbox: the bell was not rung", "error", err)
	}
	return true
}

// pop blocks on the queues of the set, and passes a token on to its queue.
func (l *listener) pop(ctx context.Context, set []bool) {
	queues := make([]*store.Queue, 0, len(set))
	for i, q := range l.queues {
		if set[i] {
			queues = append(queues, q.store)
		}
	}
	start := time.Now()
	woken, err := store.Wait(context.WithoutCancel(ctx), l.rdb, l.bell, blockFor, queues...)
	l.mu.Lock()
	l.blocked = nil
	l.mu.Unlock()
	if err != nil {
		l.log.Debug("signalbox: waiting for work failed", "error", err)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	waited := time.Since(start) >= blockFor
	for i, q := range l.queues {
		// A token may be lost with an error, and without one: go-redis makes the call again when
		// its connection breaks. Renewals find that, unless they are far apart.
		if set[i] && (q.store == woken || err != nil || waited && rarelyRenewed(q.w.cfg.SessionTTL)) {
			q.hint(true)
		}
	}
}

// rarelyRenewed reports whether the sessions' renewals, which say whether there is work, come less often
// than a blocking pop ends.
func rarelyRenewed(ttl time.Duration) bool { return ttl/3 > blockFor }
