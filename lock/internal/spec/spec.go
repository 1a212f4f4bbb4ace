// Package spec has what all lockers on Redis agree on: the errors, the bounds of settings, the random values, and the
// names of the keys beside a lock.
package spec

import (
	"crypto/rand"
	"errors"
)

// The errors of package lock; see there.
var (
	ErrHeld    = errors.New("lock: held by another")
	ErrInvalid = errors.New("lock: invalid")
)

// NewValue returns the random value of a lock. Each attempt has a new one. So a late answer to an
// earlier attempt can't be mistaken for this one's.
func NewValue() string { return rand.Text() }
