package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// Protocol is the number of this release's protocol: the way in which its calls use a queue. Each queue has a layout, the lowest
// protocol that may use it. The layout is 1 unless the queue's settings have another. It rises when the queue first uses a feature
// that older releases don't know.
const Protocol = 2

// plainProtocol is the protocol of a claim for a queue that has no groups and no unique keys, as far as the caller knows.
const plainProtocol = 1

// claimKeys is how many keys a claim has only if the queue has groups, unique keys or jobs that expire. They are the last ones.
const claimKeys = 10

// Standing says whether a queue gives jobs to a caller, and if not, why. The zero value means that it does.
type Standing struct {
	Paused bool // the queue gives jobs to nobody
	Quiet  bool // the queue gives none to this caller
	Stop   bool // the caller is to end; it is quiet, too
	Layout int  // the queue's layout if it is newer than Protocol, else 0; then this release only settles the jobs that it has
}

// Away reports whether only this caller gets no jobs. Then the wake-ups should go to other callers.
func (s Standing) Away() bool { return s.Quiet || s.Layout > 0 }

// standing reads field i of a reply.
func (r *reply) standing(i int) Standing {
	switch s := r.str(i); s {
	case "":
		return Standing{}
	case "paused":
		return Standing{Paused: true}
	case "quiet":
		return Standing{Quiet: true}
	case "stop":
		return Standing{Quiet: true, Stop: true}
	default:
		layout, err := strconv.Atoi(s)
		if (err != nil || layout <= plainProtocol) && r.err == nil {
			r.fail(i, fmt.Sprintf("%.40q, not a layout", s))
		}
		return Standing{Layout: layout}
	}
}

// A LayoutError says that a queue's layout is newer than this release, which doesn't know how the queue is used now. It wraps
// signalbox.ErrOutdated and the error that Redis replied with.
type LayoutError struct {
	Layout int // the layout of the queue
	reply  error
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("%v: its layout is %d, and this release knows layouts up to %d; update this program", signalbox.ErrOutdated, e.Layout, Protocol)
}

// Unwrap returns signalbox.ErrOutdated and the error that Redis replied with.
func (e *LayoutError) Unwrap() []error { return []error{signalbox.ErrOutdated, e.reply} }

// layoutError returns a *LayoutError if a script's error says that the layout is newer. It returns other errors unchanged.
func layoutError(err error) error {
	if !redis.HasErrorPrefix(err, "LAYOUT ") {
		return err
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "LAYOUT "), " ")
	layout, _ := strconv.Atoi(digits)
	return &LayoutError{Layout: layout, reply: err}
}

// slots reads field i of a reply: how many slots each worker should have. It returns 0 if that is not set.
func (r *reply) slots(i int) int {
	n, err := strconv.Atoi(r.str(i))
	if err != nil || n < 1 || n > MaxSlots {
		return 0 // not set, or written by another program
	}
	return n
}
