package zklock

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

const (
	defaultSession = 10 * time.Second
	minSession     = time.Second
	maxSession     = time.Hour
	defaultRoot    = "/signalbox/locks"
)

// Config says how a [Locker] works. Zero values are defaults.
type Config struct {
	// TTL is how long a lock lives unless it is extended: from 10 ms to 24 h, in whole ms (a fraction is cut off). The
	// default is 30 s. The promised validity is 1 % + 2 ms shorter. A waiter gets the lock of a dead holder
	// within two TTLs. Neither depends on SessionTimeout.
	TTL time.Duration

	// SessionTimeout is how long ZooKeeper keeps the session of a client that is silent: from 1 s to 1 h. The default is
	// 10 s. The server moves it into its own range, which is 2 to 20 ticks, or 4 to 40 s, by default. A waiter that died
	// keeps its place in the queue for this time. If ZooKeeper doesn't answer for this time, and for at least 5 s, Acquire
	// returns an error.
	SessionTimeout time.Duration

	// Root is the path under which the keys are. The default is /signalbox/locks. All clients must name the same. It is
	// created when it is missing.
	Root string

	// AuthScheme and Auth log the client in, as zk.Conn.AddAuth does: "digest" and "user:password". By default the
	// client doesn't log in.
	AuthScheme string
	Auth       []byte

	// ACL is set on all nodes that the locker creates. By default everybody may do everything. If AuthScheme is set, only
	// those with the same login may.
	ACL []zk.ACL

	// Owner names the holder to people; see [Locker.Inspect]. It is at most 128 bytes of printable ASCII. The default is
	// the host's name and the process ID.
	Owner string

	// MeterProvider receives the metrics of locks. The default is OpenTelemetry's global provider. The caller flushes it
	// and shuts it down.
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, spec.DefaultTTL)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, defaultSession)
	c.Root = cmp.Or(c.Root, defaultRoot)
	if c.Owner == "" {
		c.Owner = spec.DefaultOwner()
	}
	if c.ACL == nil {
		c.ACL = zk.WorldACL(zk.PermAll)
		if c.AuthScheme != "" {
			c.ACL = zk.AuthACL(zk.PermAll)
		}
	}
	return c
}

// check returns every mistake.
func (c Config) check() error {
	err := spec.Settings{TTL: c.TTL, Owner: c.Owner}.Check()
	if c.SessionTimeout < minSession || c.SessionTimeout > maxSession {
		err = errors.Join(err, fmt.Errorf("%w: SessionTimeout is %v; it must be from %v to %v", lock.ErrInvalid, c.SessionTimeout, minSession, maxSession))
	}
	if !validRoot(c.Root) {
		err = errors.Join(err, fmt.Errorf("%w: Root is %.300q; it must be an absolute path such as %s, of printable ASCII, without empty, . or .. parts, and not in /zookeeper", lock.ErrInvalid, c.Root, defaultRoot))
	}
	if (c.AuthScheme == "") != (len(c.Auth) == 0) {
		err = errors.Join(err, fmt.Errorf("%w: AuthScheme and Auth must be set together, such as %q and a user:password", lock.ErrInvalid, "digest"))
	}
	if len(c.ACL) == 0 {
		err = errors.Join(err, fmt.Errorf("%w: ACL is empty, so nobody could use the locks; leave it nil for the default", lock.ErrInvalid))
	}
	return err
}

func validRoot(root string) bool {
	rest, absolute := strings.CutPrefix(root, "/")
	parts := strings.Split(rest, "/")
	if !absolute || parts[0] == "zookeeper" {
		return false
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return false
		}
	}
	return true
}

// checkServers returns the addresses as host:port, or every mistake in them.
func checkServers(servers []string) (addrs []string, err error) {
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: New needs the address of at least one server", lock.ErrInvalid)
	}
	for i, s := range servers {
		if !strings.Contains(s, ":") {
			s += ":" + strconv.Itoa(zk.DefaultPort)
		}
		host, port, wrong := net.SplitHostPort(s)
		if n, notNumber := strconv.Atoi(port); wrong != nil || host == "" || notNumber != nil || n < 1 || n > 65535 {
			err = errors.Join(err, fmt.Errorf("%w: server %d of %d must be host or host:port, without a scheme or a path", lock.ErrInvalid, i+1, len(servers)))
		}
		addrs = append(addrs, s)
	}
	return addrs, err
}
