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
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// envClient is the environment variable with the task of a client process.
const envClient = "LOCK_PROOF_CLIENT"

// A task says what a client process does.
type task struct {
	Addrs   []string // one address: lock.New; more: redlock.New
	Seed    uint64
	ID      int64
	Once    bool // the Redis client doesn't repeat failed calls; a Redlock never does
	Rolling bool // it holds locks while the nodes are restarted; see rolling.go
}

const (
	// ttl is short. So locks expire under the faults, and a node that restarted soon counts again.
	ttl = 400 * time.Millisecond
	// nodeTimeout is long enough if sixteen processes share two cores.
	nodeTimeout = 50 * time.Millisecond

	clientWorkers = 6
	// hotKeys are few keys that all processes want at the same time. coolKeys are more, with fewer processes
	// for each.
	hotKeys, coolKeys = 2, 40
	keyTime           = 2 * time.Second
	// keyQuota is how many leases a process asks for on a key before it goes on to the next. With the
	// extensions and releases of ten processes, and of those that replace killed ones, a key stays below
	// maxKeyOperations.
	keyQuota = 4
	// One process in crowdEvery is a crowd. Which one it is changes after a while. All workers of a crowd want
	// one key and hold it for a while. So several goroutines wait for one key through one locker.
	crowdEvery, crowdQuota = 5, 14
	// Workers with a new locker each time often want a key that is in use for longer than others: longer than a
	// server that has crashed doesn't count.
	longKeyTime, longQuota = 6 * time.Second, 6
)

// A client is a client process. Its workers acquire locks and report that.
type client struct {
	task   task
	locker lock.Locker
	clocks calibration
	out    io.Writer
	ops    atomic.Int64

	mu     sync.Mutex
	chains [hotKeys + coolKeys + 2]position
}

// A position is how far the process is in a chain of keys.
type position struct {
	span  int64
	asked int // number of leases asked for, since the chain's period began
}

// runClient works until its standard input ends. The parent closes that, or has ended.
func runClient(text string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent handles it
	logging.Disable()           // go-redis logs each call that a fault hit; the history has more about it
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	locker, closeLocker, err := t.newLocker()
	if err != nil {
		return err
	}
	c := &client{task: t, locker: locker, clocks: calibrate(), out: out}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var workers sync.WaitGroup
	errs := make([]error, clientWorkers)
	for i := range errs {
		workers.Go(func() {
			w := &worker{client: c, newcomer: i == 0 && !t.Rolling, locker: locker, rand: rand.New(rand.NewPCG(t.Seed, uint64(i)))}
			if t.Rolling {
				errs[i] = w.roll(ctx, i)
				return
			}
			errs[i] = w.run(ctx)
		})
	}
	workers.Wait()
	return errors.Join(append(errs, closeLocker())...)
}

func (t task) newLocker() (lock.Locker, func() error, error) {
	addrs := t.Addrs
	if len(addrs) == 1 {
		retries := 0 // go-redis repeats failed calls by default; the scripts permit that
		if t.Once {
			retries = -1
		}
		rdb := redis.NewClient(&redis.Options{
			Addr: addrs[0], ContextTimeoutEnabled: true, DialTimeout: ttl, ReadTimeout: ttl, WriteTimeout: ttl, DialerRetries: 1,
			MaxRetries: retries,
		})
		r, err := lock.New(rdb, lock.Config{TTL: ttl})
		if err != nil {
			return nil, nil, errors.Join(err, rdb.Close())
		}
		return r, rdb.Close, nil
	}
	var nodes []*redis.Options
	for _, addr := range addrs {
		nodes = append(nodes, &redis.Options{Addr: addr})
	}
	config := redlock.Config{TTL: ttl, NodeTimeout: nodeTimeout}
	if t.Rolling {
		config = redlock.Config{TTL: rollingTTL, MaxTTL: rollingTTL, NodeTimeout: rollingTimeout}
	}
	r, err := redlock.New(nodes, config)
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

// key returns the current key of the process in a chain of keys. All processes use the same chains, with the
// same number of leases for each key. Every keyTime a new chain begins. So the processes meet.
func (c *client) key(r *rand.Rand) string {
	chain := r.IntN(hotKeys)
	if r.IntN(4) > 0 {
		chain = hotKeys + r.IntN(coolKeys)
	}
	return c.next(chain, keyTime, keyQuota)
}

// crowdKey returns the key that all workers of the process want now, if the process is a crowd.
func (c *client) crowdKey() (key string, crowd bool) {
	if (monotonic()/int64(keyTime)+c.task.ID)%crowdEvery != 0 {
		return "", false
	}
	return c.next(hotKeys+coolKeys, keyTime, crowdQuota), true
}

// longKey returns a key that is in use for longer.
func (c *client) longKey() string { return c.next(hotKeys+coolKeys+1, longKeyTime, longQuota) }

func (c *client) next(chain int, life time.Duration, quota int) string {
	span := monotonic() / int64(life)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &c.chains[chain]
	if at.span != span {
		*at = position{span: span}
	}
	at.asked++
	return fmt.Sprintf("%d:%d:%d", chain, span, (at.asked-1)/quota)
}

// tell writes an event in one call. So a kill doesn't leave half an event.
func (c *client) tell(e event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(line, '\n'))
	return err
}
