package layout

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// Protocol is the number of this release's protocol: the way in which its calls use a queue. It is the newest layout of a queue that the release knows.
const Protocol = 3

// Number is the layout of each queue, in its settings, from the first call on that writes to it. A later release may raise it, with something that older
// ones don't know: they only settle the jobs that they have then. A queue with an older one, or with none, is of a program from before the first release.
const Number = 3

// Known reports whether this release knows the layout.
func Known(layout int) bool { return layout >= Number && layout <= Protocol }

// An Error says that a queue's layout isn't one of this release, which doesn't know how the queue is used. It wraps the error that Redis replied
// with, and signalbox.ErrOutdated if the layout is newer.
type Error struct {
	Layout int   // the layout of the queue
	reply  error // nil if it was found by reading
}

func (e *Error) Error() string {
	if e.Newer() {
		return signalbox.ErrOutdated.Error() + ": " + e.Reason()
	}
	return "signalbox: " + e.Reason()
}

// Unwrap returns signalbox.ErrOutdated if the layout is newer, and the error that Redis replied with.
func (e *Error) Unwrap() []error {
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
func (e *Error) Newer() bool { return e.Layout > Protocol }

// Reason says what the queue's layout is, and what to do. It has no address, no key and no secret.
func (e *Error) Reason() string {
	const old = "end its jobs with that program, then delete its keys, or use another namespace"
	switch {
	case e.Newer():
		return fmt.Sprintf("the queue's layout is %d, and this release knows layouts up to %d; update this program", e.Layout, Protocol)
	case e.Layout > 1:
		return fmt.Sprintf("the queue has layout %d, of a program from before the first release, and this release knows layout %d: %s", e.Layout, Number, old)
	}
	return fmt.Sprintf("the queue was used, and has no layout or layout 1. If a program from before the first release has used it, %s. "+
		"If only this release has, its settings and its stats were both deleted or evicted: set the field layout of its settings to %d, with HSET", old, Number)
}

// Check returns a *Error if the text, as the settings have it, is of a layout that is older than Number. A text that is no number was written by
// another program, which is newer.
func Check(text string) error {
	if number, err := strconv.Atoi(text); err == nil && number < Number {
		return &Error{Layout: max(number, 1)}
	}
	return nil
}

// ErrorOf returns a *Error if a script's error says that the layout is another. It returns other errors unchanged.
func ErrorOf(err error) error {
	if !redis.HasErrorPrefix(err, "LAYOUT ") {
		return err
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "LAYOUT "), " ")
	layout, _ := strconv.Atoi(digits)
	return &Error{Layout: layout, reply: err}
}
