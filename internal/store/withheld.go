package store

import (
	"fmt"
	"strconv"

	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Withheld says why a queue gives a caller no jobs. The zero value means that it gives some.
type Withheld struct {
	Paused bool // the queue gives jobs to nobody
	Quiet  bool // the queue gives none to this caller
	Stop   bool // the caller is to end; it is quiet, too
	Layout int  // the queue's layout if it is newer than Protocol, or older than layout.Number; else 0. This release only settles the jobs that it has then
}

// Away reports whether only this caller gets no jobs. Then the wake-ups should go to other callers.
func (w Withheld) Away() bool { return w.Quiet || w.Layout > 0 }

// withheldOf reads field i of a reply.
func withheldOf(r *scripts.Reply, i int) Withheld {
	switch s := r.Str(i); s {
	case "":
		return Withheld{}
	case "paused":
		return Withheld{Paused: true}
	case "quiet":
		return Withheld{Quiet: true}
	case "stop":
		return Withheld{Quiet: true, Stop: true}
	default:
		number, err := strconv.Atoi(s)
		if (err != nil || number < 1 || layout.Known(number)) && r.Err == nil {
			r.Fail(i, fmt.Sprintf("%.40q, not a layout", s))
		}
		return Withheld{Layout: number}
	}
}

// slotsOf reads field i of a reply: how many slots each worker should have. It returns 0 if that is not set.
func slotsOf(r *scripts.Reply, i int) int {
	n, err := strconv.Atoi(r.Str(i))
	if err != nil || n < 1 || n > settings.MaxSlots {
		return 0 // not set, or written by another program
	}
	return n
}
