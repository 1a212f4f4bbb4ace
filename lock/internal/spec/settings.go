package spec

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// The bounds of a TTL.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 10 * time.Millisecond
	MaxTTL     = 24 * time.Hour
)

const maxOwner = 128

// Settings are those that all lockers on Redis have.
type Settings struct {
	TTL     time.Duration
	MinHold time.Duration
	Owner   string
}

// Check returns every mistake. Each wraps [ErrInvalid] and names the field.
func (s Settings) Check() error {
	var err error
	if s.TTL < MinTTL || s.TTL > MaxTTL {
		err = errors.Join(err, fmt.Errorf("%w: TTL is %v; it must be from %v to %v", ErrInvalid, s.TTL, MinTTL, MaxTTL))
	}
	if s.MinHold < 0 || s.MinHold > s.TTL {
		err = errors.Join(err, fmt.Errorf("%w: MinHold is %v; it must be from 0 to the TTL of %v", ErrInvalid, s.MinHold, s.TTL))
	}
	return errors.Join(err, checkOwner(s.Owner))
}

// DefaultOwner returns the host's name and the process ID.
var DefaultOwner = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || checkOwner(host) != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host[:min(len(host), maxOwner-12)], os.Getpid())
})

// checkOwner refuses a name that would break a record. The owner is the last of the record's three words, and
// "*" marks a reservation.
func checkOwner(name string) error {
	if name == "" || name == "*" || len(name) > maxOwner || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%w: Owner must be 1 to %d bytes of printable ASCII, and not %q", ErrInvalid, maxOwner, "*")
	}
	return nil
}
