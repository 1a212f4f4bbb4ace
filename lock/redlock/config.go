package redlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// defaultNodeTimeout is more than a loaded machine needs to let a server and a client run.
const defaultNodeTimeout = 500 * time.Millisecond

// Config says how a [Locker] works. Zero values are defaults.
type Config struct {
	// TTL is how long a lock lives on the nodes unless it is extended: from 10 ms to 24 h, in
	// whole ms (a fraction is cut off). The default is 30 s.
	TTL time.Duration

	// NodeTimeout is how long one node may take to answer: at least 1 ms, and less than half of the
	// TTL. The default is 500 ms. With a short TTL it is less: a twentieth of the TTL, but at least 5 ms,
	// or a quarter of the TTL if that is less than 5 ms. A lock is granted as soon as a quorum has
	// answered. So nodes that hang delay only the first acquire, and acquires that fail. If
	// this process itself was late, it waits as long again.
	NodeTimeout time.Duration

	// Tries bounds the tries of one Acquire. By default, while others hold the lock only ctx bounds
	// them. While too few nodes answer there are 3.
	Tries int

	// MaxTTL is the longest TTL that any client of these nodes uses. It must be the same for all of
	// them. A node that restarted or lost its memory doesn't count for this time, since it may have
	// forgotten locks. The nodes' clocks must agree to within it: else tokens may go back
	// after a restart. The default is the TTL, which is also the least.
	MaxTTL time.Duration

	// NoRestartDelay makes nodes count at once, though they may have forgotten locks and
	// votes. It is for tests and examples, whose servers are new.
	NoRestartDelay bool

	// MinHold keeps a lock held for this long from its grant; see [lock.Config].
	MinHold time.Duration

	// Owner names the holder to people; see [lock.Config].
	Owner string

	// MeterProvider receives the metrics; see [lock.Config].
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	if c.TTL == 0 {
		c.TTL = spec.DefaultTTL
	}
	c.TTL = c.TTL.Truncate(time.Millisecond)
	if c.NodeTimeout == 0 {
		c.NodeTimeout = min(defaultNodeTimeout, max(c.TTL/20, 5*time.Millisecond), c.TTL/4)
	}
	if c.MaxTTL == 0 {
		c.MaxTTL = c.TTL
	}
	if c.Owner == "" {
		c.Owner = spec.DefaultOwner()
	}
	return c
}

func (c Config) check() error {
	err := spec.Settings{TTL: c.TTL, MinHold: c.MinHold, Owner: c.Owner}.Check()
	wrong := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("%w: "+format, append([]any{lock.ErrInvalid}, args...)...))
	}
	if c.TTL >= spec.MinTTL && (c.NodeTimeout < time.Millisecond || c.NodeTimeout >= c.TTL/2) {
		wrong("NodeTimeout is %v; it must be from 1ms to less than half of the TTL of %v", c.NodeTimeout, c.TTL)
	}
	if c.Tries < 0 {
		wrong("Tries is %d; it must be at least 1, or 0 for the default", c.Tries)
	}
	if c.MaxTTL < c.TTL || c.MaxTTL > spec.MaxTTL {
		wrong("MaxTTL is %v; it must be from the TTL of %v to %v: a node that restarted counts again after that, and must not have forgotten a lock that lives", c.MaxTTL, c.TTL, spec.MaxTTL)
	}
	return err
}

func checkNodes(nodes []*redis.Options) error {
	var err error
	wrong := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("%w: "+format, append([]any{lock.ErrInvalid}, args...)...))
	}
	if len(nodes) < 3 {
		wrong("nodes: there are %d; Redlock needs at least 3 masters, and 5 are usual: with fewer, none may fail, and lock.New does the same", len(nodes))
	}
	seen := map[string]int{}
	for i, o := range nodes {
		if o == nil {
			wrong("nodes[%d] is nil", i)
			continue
		}
		if first, twice := seen[o.Addr]; twice {
			wrong("nodes[%d] has the address of nodes[%d], %s: it would vote twice", i, first, o.Addr)
		} else {
			seen[o.Addr] = i
		}
	}
	return err
}
