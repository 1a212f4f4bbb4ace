package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/signalbox-go/signalbox/lock"
)

// envClient has the task of a process that this program started.
const envClient = "LOCK_PROOF_CLIENT"

// A task is what a client process does.
type task struct {
	Addrs []string // one: lock.New; more: lock.NewRedlock
	Seed  uint64
}

const (
	// ttl is short, so that locks do expire under the faults, and that a node that restarted
	// counts again soon.
	ttl = 400 * time.Millisecond
	// nodeTimeout leaves room for two cores that are shared by sixteen processes.
	nodeTimeout = 50 * time.Millisecond

	clientWorkers = 6
	// hotKeys are those that all fight for, at a time; the others are wider spread.
	hotKeys, coolKeys = 2, 40
	keyTime           = 2 * time.Second
	// keyQuota is how many leases a process asks for on a key before it goes on to the next. With the
	// extensions and releases of ten processes, and of those that take the place of the
	// killed, a key stays below maxKeyOperations.
	keyQuota = 4
)

// A client is the process: workers that acquire locks, and tell of it.
type client struct {
	locker lock.Locker
	clocks calibration
	out    io.Writer
	ops    atomic.Int64

	mu     sync.Mutex
	chains [hotKeys + coolKeys]position
}

// A position is how far the process is in a chain of keys.
type position struct {
	span  int64
	asked int // leases, since the span began
}

// runClient works until its standard input ends: the parent closes that, or is gone.
func runClient(text string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent sees to it
	logging.Disable()           // go-redis tells of each call that a fault hit; the history says it better
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	locker, closeLocker, err := newLocker(t.Addrs)
	if err != nil {
		return err
	}
	c := &client{locker: locker, clocks: calibrate(), out: out}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var workers sync.WaitGroup
	errs := make([]error, clientWorkers)
	for i := range errs {
		workers.Go(func() {
			errs[i] = (&worker{client: c, rand: rand.New(rand.NewPCG(t.Seed, uint64(i)))}).run(ctx)
		})
	}
	workers.Wait()
	return errors.Join(append(errs, closeLocker())...)
}

func newLocker(addrs []string) (lock.Locker, func() error, error) {
	if len(addrs) == 1 {
		// go-redis repeats what fails, as it does by default: the scripts permit it.
		rdb := redis.NewClient(&redis.Options{
			Addr: addrs[0], ContextTimeoutEnabled: true, DialTimeout: ttl, ReadTimeout: ttl, WriteTimeout: ttl, DialerRetries: 1,
		})
		return lock.New(rdb, lock.TTL(ttl)), rdb.Close, nil
	}
	var nodes []*redis.Options
	for _, addr := range addrs {
		nodes = append(nodes, &redis.Options{Addr: addr})
	}
	r, err := lock.NewRedlock(nodes, lock.RedlockConfig{TTL: ttl, NodeTimeout: nodeTimeout})
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

// key names a key to lock: the one that the process is at in a chain of keys. All processes go along the
// same chains, each key for as many leases, from a new one every span of keyTime: so they meet.
func (c *client) key(r *rand.Rand) string {
	chain := r.IntN(hotKeys)
	if r.IntN(4) > 0 {
		chain = hotKeys + r.IntN(coolKeys)
	}
	span := monotonic() / int64(keyTime)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &c.chains[chain]
	if at.span != span {
		*at = position{span: span}
	}
	at.asked++
	return fmt.Sprintf("%d:%d:%d", chain, span, (at.asked-1)/keyQuota)
}

// tell writes an event in one call, so that a kill doesn't leave the half of one.
func (c *client) tell(e event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(line, '\n'))
	return err
}
