package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// Protocol is the protocol of this release's calls. A queue has a layout, 1 unless its settings say more: the protocol that is
// needed to use it. It rises when a feature is first used on the queue that older releases don't know.
const Protocol = 1

// Standing is why a queue gives a caller no jobs. The zero value: it does.
type Standing struct {
	Paused bool // nobody gets any
	Quiet  bool // the caller gets none
	Layout int  // the queue's, if it is newer than Protocol: this release only settles what it has; else 0
}

// Away reports whether the caller gets no jobs, and others may: wake-ups are for those.
func (s Standing) Away() bool { return s.Quiet || s.Layout > 0 }

// standing reads field i.
func (r *reply) standing(i int) Standing {
	switch s := r.str(i); s {
	case "":
		return Standing{}
	case "paused":
		return Standing{Paused: true}
	case "quiet":
		return Standing{Quiet: true}
	default:
		layout, err := strconv.Atoi(s)
		if (err != nil || layout <= Protocol) && r.err == nil {
			r.fail(i, fmt.Sprintf("%.40q, not a layout", s))
		}
		return Standing{Layout: layout}
	}
}

// A LayoutError says that a queue's layout is newer than this release: a newer one uses it in ways that this one doesn't know.
// It wraps signalbox.ErrOutdated and what Redis replied.
type LayoutError struct {
	Layout int // the protocol that is needed
	reply  error
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("%v: its layout is %d, and this release knows layouts up to %d; update this program", signalbox.ErrOutdated, e.Layout, Protocol)
}

// Unwrap returns signalbox.ErrOutdated and the error of Redis.
func (e *LayoutError) Unwrap() []error { return []error{signalbox.ErrOutdated, e.reply} }

// layoutError returns a *LayoutError for a script's error that says so, or err.
func layoutError(err error) error {
	if !redis.HasErrorPrefix(err, "LAYOUT ") {
		return err
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "LAYOUT "), " ")
	layout, _ := strconv.Atoi(digits)
	return &LayoutError{Layout: layout, reply: err}
}

// slots reads field i: how many slots each worker is to have, or "".
func (r *reply) slots(i int) int {
	n, err := strconv.Atoi(r.str(i))
	if err != nil || n < 1 || n > MaxSlots {
		return 0 // not set, or by another program
	}
	return n
}
