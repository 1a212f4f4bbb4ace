package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	repeatEvery = 10 * time.Second // how often a failure that goes on is logged again
	goneAfter   = time.Minute      // what hasn't failed for so long is over. It is longer than any pause between two tries
	firstPause  = 50 * time.Millisecond
	longestWait = 10 * time.Second // between two tries of a batch that Redis refuses
)

// troubles remembers what a relay can't do at the moment. Each action has a name.
type troubles struct {
	mu    sync.Mutex
	last  map[string]time.Time // when an action that fails did so last
	told  map[string]time.Time // when that was logged last
	since time.Time            // when the first of those that fail began to
	said  bool                 // at least one of them was logged
}

// fails notes that an action fails. It reports whether to log that.
func (t *troubles) fails(what string, now time.Time) (tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = make(map[string]time.Time)
	}
	if len(t.last) == 0 {
		t.since, t.said = now, false
	}
	t.last[what] = now
	tell = t.due(what, now)
	t.said = t.said || tell
	return tell
}

// tell reports whether to log what is no failure, and was not logged lately.
func (t *troubles) tell(what string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.due(what, now)
}

// due reports whether to log something now, and notes that. t.mu is locked.
func (t *troubles) due(what string, now time.Time) bool {
	if told, ok := t.told[what]; ok && now.Sub(told) < repeatEvery {
		return false
	}
	if t.told == nil {
		t.told = make(map[string]time.Time)
	}
	t.told[what] = now
	return true
}

// works notes that an action works. over is set if that was the last one that failed, and the failure was logged: then outage is how long it was.
func (t *troubles) works(what string, now time.Time) (outage time.Duration, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, failed := t.last[what]; !failed {
		return 0, false
	}
	delete(t.last, what)
	return now.Sub(t.since), len(t.last) == 0 && t.said
}

// forget forgets failures that this relay hasn't seen for a while, since another relay does the work now. The result is that of works, but for outage: that is until the
// last failure.
func (t *troubles) forget(now time.Time) (outage time.Duration, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for what, told := range t.told {
		if now.Sub(told) >= goneAfter && now.Sub(t.last[what]) >= goneAfter {
			delete(t.told, what)
		}
	}
	before, latest := len(t.last), t.since
	for what, last := range t.last {
		if now.Sub(last) >= goneAfter {
			delete(t.last, what)
		}
		if last.After(latest) {
			latest = last
		}
	}
	return latest.Sub(t.since), before > 0 && len(t.last) == 0 && t.said
}

// failed notes whether an action failed, and logs it: a failure that goes on every 10 s, and that everything works again. It reports whether there is an error.
//
// Redis that can't be reached is a warning, as is a database: that ends by itself. An error that Redis replies is an error: somebody must look.
func (r *Relay) failed(ctx context.Context, what string, err error) bool {
	switch {
	case err == nil:
		r.recovered(ctx, what)
		return false
	case ctx.Err() != nil:
		return true
	case r.troubles.fails(what, time.Now()):
		level := slog.LevelWarn
		if answered(err) {
			level = slog.LevelError
		}
		r.log.LogAttrs(ctx, level, "outbox: the relay can't "+what+"; it tries again", slog.Any("error", err))
	}
	return true
}

// recovered notes that an action works.
func (r *Relay) recovered(ctx context.Context, what string) {
	if outage, over := r.troubles.works(what, time.Now()); over {
		r.again(ctx, outage)
	}
}

// again logs that the relay works again.
func (r *Relay) again(ctx context.Context, outage time.Duration) {
	attrs := []slog.Attr{slog.String("outage", outage.Round(time.Millisecond).String())}
	if n, more, err := r.backlog(ctx); err == nil {
		text := fmt.Sprint(n)
		if more {
			text += "+"
		}
		attrs = append(attrs, slog.String("backlog", text))
	}
	r.log.LogAttrs(ctx, slog.LevelInfo, "outbox: the relay works again", attrs...)
}

// hindered notes that a shard can't be sent to, and not because of a row. It returns for how long to leave the shard alone.
func (r *Relay) hindered(ctx context.Context, s *shardState, err error) time.Duration {
	if answered(err) {
		return r.stands(ctx, s, err)
	}
	r.failed(ctx, "reach Redis", err)
	return time.Second
}

// stands notes that a shard stands still: Redis refuses the calls for it, and not because of a row. It returns for how long to leave the shard alone.
func (r *Relay) stands(ctx context.Context, s *shardState, err error) time.Duration {
	pause := pauseAfter(s.refusals)
	s.refusals++
	if ctx.Err() == nil && r.troubles.fails("send "+s.name, time.Now()) {
		r.log.LogAttrs(ctx, slog.LevelError, "outbox: a shard stands still: Redis refuses the calls for it, and no row is the cause; the relay tries again",
			slog.String("shard", s.name), slog.String("queue", s.queue), slog.Int("tries", s.refusals), slog.Any("error", err))
	}
	return pause
}

// pauseAfter returns how long to wait if there were so many refusals before.
func pauseAfter(refusals int) time.Duration { return min(firstPause<<min(refusals, 16), longestWait) }

// moves notes that a batch of a shard was sent.
func (r *Relay) moves(ctx context.Context, s *shardState) {
	s.refusals = 0
	r.recovered(ctx, "send "+s.name)
}

// answered reports whether an error is a reply of Redis that says more than that it is not there yet, or somewhere else.
func answered(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return false
	}
	for _, code := range []string{"LOADING ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK "} {
		if redis.HasErrorPrefix(err, code) {
			return false
		}
	}
	return true
}
