package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// Protocol is the number of this release's protocol: the way in which its calls use a queue. It is the newest layout of a queue that the release knows.
const Protocol = 3

// Layout is that of each queue, in its settings, from the first call on that writes to it. A later release may raise it, with something that older
// ones don't know: they only settle the jobs that they have then. A queue with an older one, or with none, is of a program from before the first release.
const Layout = 3

// Standing says whether a queue gives jobs to a caller, and if not, why. The zero value means that it does.
type Standing struct {
	Paused bool // the queue gives jobs to nobody
	Quiet  bool // the queue gives none to this caller
	Stop   bool // the caller is to end; it is quiet, too
	Layout int  // the queue's layout if it is newer than Protocol, or older than Layout; else 0. This release only settles the jobs that it has then
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
		if (err != nil || layout < 1 || known(layout)) && r.err == nil {
			r.fail(i, fmt.Sprintf("%.40q, not a layout", s))
		}
		return Standing{Layout: layout}
	}
}

// known reports whether this release knows the layout.
func known(layout int) bool { return layout >= Layout && layout <= Protocol }

// A LayoutError says that a queue's layout isn't one of this release, which doesn't know how the queue is used. It wraps the error that Redis replied
// with, and signalbox.ErrOutdated if the layout is newer.
type LayoutError struct {
	Layout int   // the layout of the queue
	reply  error // nil if it was found by reading
}

func (e *LayoutError) Error() string {
	if e.Newer() {
		return signalbox.ErrOutdated.Error() + ": " + e.Reason()
	}
	return "signalbox: " + e.Reason()
}

// Unwrap returns signalbox.ErrOutdated if the layout is newer, and the error that Redis replied with.
func (e *LayoutError) Unwrap() []error {
	var all []error
	if e.Newer() {
		all = append(all, signalbox.ErrOutdated)
	}
	if e.reply != nil {
		all = append(all, e.reply)
	}
	return all
}

// Newer reports whether the layout is newer than this release knows.
func (e *LayoutError) Newer() bool { return e.Layout > Protocol }

// Reason says what the queue's layout is, and what to do. It has no address, no key and no secret.
func (e *LayoutError) Reason() string {
	const old = "end its jobs with that program, then delete its keys, or use another namespace"
	switch {
	case e.Newer():
		return fmt.Sprintf("the queue's layout is %d, and this release knows layouts up to %d; update this program", e.Layout, Protocol)
	case e.Layout > 1:
		return fmt.Sprintf("the queue has layout %d, of a program from before the first release, and this release knows layout %d: %s", e.Layout, Layout, old)
	}
	return fmt.Sprintf("the queue was used, and has no layout or layout 1. If a program from before the first release has used it, %s. "+
		"If only this release has, its settings and its stats were both deleted or evicted: set the field layout of its settings to %d, with HSET", old, Layout)
}

// CheckLayout returns a *LayoutError if the queue's layout is older than Layout: a program that reads the queue would misread it.
func (q *Queue) CheckLayout(ctx context.Context) error {
	_, err := q.begun(ctx)
	return err
}

// begun reports whether the queue has counters or settings. It returns a *LayoutError if its layout is older than Layout. The counters have the layout, too: it
// counts if the settings were deleted or evicted.
func (q *Queue) begun(ctx context.Context) (bool, error) {
	for last := false; ; last = true {
		for _, key := range []string{q.keys.settings, q.keys.stats} {
			values, err := q.rdb.HMGet(ctx, key, "layout").Result()
			if err != nil {
				return false, err
			}
			if text, noted := values[0].(string); noted {
				return true, checkLayout(text)
			}
		}
		if last {
			return true, checkLayout("1")
		}
		used, err := q.rdb.Exists(ctx, q.keys.settings, q.keys.stats).Result()
		if err != nil || used == 0 {
			return false, err
		} // else it may have begun between the two calls: then it has a layout now
	}
}

// checkLayout returns a *LayoutError if the text, as the settings have it, is of a layout that is older than Layout. A text that is no number was written by
// another program, which is newer.
func checkLayout(text string) error {
	if number, err := strconv.Atoi(text); err == nil && number < Layout {
		return &LayoutError{Layout: max(number, 1)}
	}
	return nil
}

// layoutError returns a *LayoutError if a script's error says that the layout is another. It returns other errors unchanged.
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
