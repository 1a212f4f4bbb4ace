package interop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// errRefused: a peer didn't get the lock. It wraps what the library said.
var errRefused = errors.New("refused")

// A peer is another library.
type peer interface {
	// acquire waits for at most so long, 0: it tries once.
	acquire(ctx context.Context, key string, ttl, wait time.Duration) (held, error)
}

// A held lock is one that a peer has. Both methods fail if the library says that it hasn't.
type held interface {
	extend(ctx context.Context, ttl time.Duration) error
	release(ctx context.Context) error
}

// retryDelay is about how often the peers look.
const retryDelay = 10 * time.Millisecond

// clientsOf connects to servers.
func clientsOf(t *testing.T, addrs []string) []*redis.Client {
	clients := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() {
			if err := clients[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return clients
}

type redsyncPeer struct{ *redsync.Redsync }

func newRedsync(t *testing.T, addrs []string) peer {
	var pools []redsyncredis.Pool
	for _, rdb := range clientsOf(t, addrs) {
		pools = append(pools, goredis.NewPool(rdb))
	}
	return redsyncPeer{redsync.New(pools...)}
}

type redsyncHeld struct {
	r redsyncPeer
	m *redsync.Mutex
}

func (r redsyncPeer) acquire(ctx context.Context, key string, ttl, wait time.Duration) (held, error) {
	tries := 1
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		tries = math.MaxInt
	}
	m := r.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(tries),
		redsync.WithTimeoutFactor(0.4), // a TTL of a test is short, and so would be its time for an answer
		redsync.WithRetryDelayFunc(func(int) time.Duration { return retryDelay/2 + rand.N(retryDelay) }))
	if err := m.LockContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	return redsyncHeld{r, m}, nil
}

// extend with another TTL needs another mutex with the same value.
func (h redsyncHeld) extend(ctx context.Context, ttl time.Duration) error {
	m := h.r.NewMutex(h.m.Name(), redsync.WithExpiry(ttl), redsync.WithValue(h.m.Value()))
	ok, err := m.ExtendContext(ctx)
	return saidNo(ok, err)
}

func (h redsyncHeld) release(ctx context.Context) error {
	ok, err := h.m.UnlockContext(ctx)
	return saidNo(ok, err)
}

// saidNo is the error of a call that also says whether a quorum agreed, and then the
// others don't count.
func saidNo(ok bool, err error) error {
	if ok {
		return nil
	}
	return errors.Join(errors.New("no quorum"), err)
}

type redislockPeer struct{ *redislock.Client }

func newRedislock(t *testing.T, addrs []string) peer {
	return redislockPeer{redislock.New(clientsOf(t, addrs)[0])}
}

type redislockHeld struct{ *redislock.Lock }

func (r redislockPeer) acquire(ctx context.Context, key string, ttl, wait time.Duration) (held, error) {
	var o redislock.Options
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		o.RetryStrategy = redislock.LinearBackoff(retryDelay)
	}
	l, err := r.Obtain(ctx, key, ttl, &o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	return redislockHeld{l}, nil
}

func (h redislockHeld) extend(ctx context.Context, ttl time.Duration) error {
	return h.Refresh(ctx, ttl, nil)
}
func (h redislockHeld) release(ctx context.Context) error { return h.Release(ctx) }
