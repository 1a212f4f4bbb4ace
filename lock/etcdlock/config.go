package etcdlock

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

const (
	minTTL        = time.Second
	maxTTL        = spec.MaxTTL
	defaultPrefix = "signalbox/lock/"
	maxPrefix     = 256
	maxOwner      = 128 // of an owner that Inspect returns
)

// Config says how a locker works. Zero values are defaults.
type Config struct {
	// TTL is how long a holder may rely on a lock that it doesn't extend: from 1 s to 24 h. The default is 30 s.
	// The promised validity is 1 % + 2 ms shorter.
	//
	// The lease in etcd lasts for the TTL, rounded up to whole seconds, or for the shortest lease that etcd
	// grants, if that is longer: 2 s with etcd's default settings.
	TTL time.Duration

	// Owner names the holder to people; see [Locker.Inspect]. It is at most 128 bytes of
	// printable ASCII. The default is the host's name and the process ID.
	Owner string

	// Prefix is what the names of all keys in etcd begin with: at most 256 bytes of printable ASCII that end in one /, and
	// have no // inside. The default is "signalbox/lock/". Lockers with different prefixes don't exclude each other,
	// even if one prefix begins with the other.
	Prefix string

	// MeterProvider receives the metrics of locks. The default is OpenTelemetry's global
	// provider. The caller flushes it and shuts it down.
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, spec.DefaultTTL)
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	if c.Owner == "" {
		c.Owner = spec.DefaultOwner()
	}
	return c
}

// check returns every mistake.
func (c Config) check() error {
	var err error
	if c.TTL < minTTL || c.TTL > maxTTL {
		err = fmt.Errorf("%w: TTL is %v; it must be from %v to %v, since etcd counts leases in seconds", lock.ErrInvalid, c.TTL, minTTL, maxTTL)
	}
	if len(c.Prefix) > maxPrefix || !strings.HasSuffix(c.Prefix, "/") || strings.Contains(c.Prefix, "//") ||
		strings.ContainsFunc(c.Prefix, func(r rune) bool { return r < ' ' || r > '~' }) {
		err = errors.Join(err, fmt.Errorf("%w: Prefix is %.300q; it must be at most %d bytes of printable ASCII that end in one / and have no // inside, such as %q",
			lock.ErrInvalid, c.Prefix, maxPrefix, defaultPrefix))
	}
	return errors.Join(err, spec.Settings{TTL: spec.DefaultTTL, Owner: c.Owner}.Check())
}

// seconds returns the time of the lease to ask for: the TTL, rounded up to whole seconds.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }
