package lock

import (
	"cmp"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// Config says how a locker on one Redis works. Zero values are defaults.
type Config struct {
	// TTL is how long a lock lives in Redis unless it is extended: from 10 ms to 24 h, in
	// whole ms (a fraction is cut off). The default is 30 s. The promised validity is
	// 1 % + 2 ms shorter.
	TTL time.Duration

	// MinHold keeps a lock held for this long from its grant, even if it is released earlier. It is for
	// a short task that several machines start at about the same time, and only one may do.
	// It is at most the TTL, since the lock of a dead holder lives no longer. The default is 0.
	// The holder's context ends at the release all the same.
	MinHold time.Duration

	// Owner names the holder to people; see [Redis.Inspect]. It is at most 128 bytes of
	// printable ASCII. The default is the host's name and the process ID.
	Owner string

	// MeterProvider receives the metrics of locks. The default is OpenTelemetry's global
	// provider. The caller flushes it and shuts it down.
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, spec.DefaultTTL)
	if c.Owner == "" {
		c.Owner = spec.DefaultOwner()
	}
	return c
}

// check returns every mistake.
func (c Config) check() error {
	return spec.Settings{TTL: c.TTL, MinHold: c.MinHold, Owner: c.Owner}.Check()
}
