package store

import (
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox/internal/wire"
)

// Remedies are what a repair does about a fault, in words. A fault that isn't here is only reported.
var Remedies = map[Fault]string{
	TwoPlaces:    "keep the job in one place",
	NoPlace:      "put the job where it waits",
	NoRecord:     "remove the ID",
	WrongClass:   "move the job to its class",
	WrongTime:    "use the time of the record",
	BadMember:    "remove the entry",
	NoSession:    "register the session as expired",
	BadToken:     "make the job ready again",
	BeyondFence:  "raise the fence",
	WrongBytes:   "correct the count",
	WrongLargest: "correct the size",
	StrayNote:    "remove the span",
	StrayMark:    "flag the delivery, or remove the mark",
	NoMark:       "write the mark",
	StrayAddress: "remove the address",
	WrongTurn:    "give the line its turn, or take it",
	WrongHolders: "correct the count",
	WrongRunning: "correct the count",
	NoKey:        "give it to the job, if nobody has it",
	StrayUnique:  "free the key",
	WrongFlow:    "correct the count, and have its callbacks go on",
	StuckWaiter:  "have it go on, if its batch is there",
	WrongExpiry:  "use the time of the record, or remove the entry",
}

// steps returns what mends the job, and leaves it in one place. It is what docs/doctor.md has. now is the server's clock, in us.
func (f *facts) steps(a around, now int64) (all []step) {
	do := func(verb string, values ...string) {
		s := step{verb: verb}
		if len(values) > 0 {
			s.a = values[0]
		}
		if len(values) > 1 {
			s.b = values[1]
		}
		all = append(all, s)
	}
	leave := func(p place) {
		switch p.kind {
		case "ready":
			do("unlist", p.class, "0")
		case "due":
			do("undue", p.class)
		case "running":
			do("unhold", p.session)
		case "lined":
			do("unline")
		case "awaiting":
			do("unawait", p.waits)
		default:
			do("unend", p.kind)
		}
	}
	kept := -1
	if f.there {
		kept = f.keep(a)
	}
	for i, p := range f.places {
		if i != kept {
			leave(p)
		}
	}
	class, _, due, readable := f.header()
	ended := false
	switch {
	case !f.there:
	case kept < 0 && f.waits():
		do("await")
	case kept < 0 && due > now:
		if groupOf(f.head) != "" {
			class = f.laterClass()
		}
		do("due", class, strconv.FormatInt(due, 10))
	case kept < 0 && groupOf(f.head) != "":
		do("line")
	case kept < 0:
		do("list", class)
	default:
		p := f.places[kept]
		switch p.kind {
		case "ready":
			if readable && p.class != class {
				leave(p)
				do("list", class)
			} else if p.times > 1 {
				do("unlist", p.class, strconv.Itoa(1-p.times))
			}
		case "due":
			if p.later() && readable {
				class = f.laterClass()
			}
			if readable && (p.class != class || p.us != due) {
				leave(p)
				do("due", class, strconv.FormatInt(due, 10))
			}
		case "lined", "awaiting":
		case "running":
			all = append(all, f.hold(p, a, class)...)
		default:
			ended = true
		}
	}
	if f.marked && (kept < 0 || f.places[kept].kind != "running") {
		do("unmark")
	}
	if f.noted && (!f.there || ended) {
		do("unnote")
	}
	if f.lacksKey() && f.holder == "" && !ended {
		do("key", f.scope, f.key)
	}
	want := f.expiry
	if !f.there || kept >= 0 && f.places[kept].kind != "ready" && f.places[kept].kind != "due" && f.places[kept].kind != "lined" {
		want = 0
	}
	if f.expires != want {
		at := ""
		if want > 0 {
			at = strconv.FormatInt(want, 10)
		}
		do("expires", at)
	}
	if largest, err := strconv.ParseInt(a.largest, 10, 64); err == nil && f.there && !ended && f.size > largest {
		do("largest", strconv.FormatInt(f.size, 10))
	}
	return all
}

// hold returns what mends a delivery.
func (f *facts) hold(p place, a around, class string) (all []step) {
	digits, token, ok := a.token(p)
	mark, _, _ := strings.Cut(f.mark, " ")
	if !ok {
		if _, _, usable := a.token(place{value: mark}); f.marked && usable { // it is cancelled, and doesn't run again
			return []step{{"hold", p.session, delivery(mark, "c", groupOf(f.head))}}
		}
		all = []step{{"unhold", p.session, ""}, {"list", class, "head"}}
		if f.marked {
			all = append(all, step{verb: "unmark"})
		}
		return all
	}
	if fence, _ := parseToken(a.fence); !unreadableFence(a.fence) && token > fence {
		all = append(all, step{verb: "fence", a: digits})
	}
	switch {
	case f.marked && mark != digits && !p.flagged():
		all = append(all, step{verb: "unmark"})
	case f.marked && !p.flagged():
		all = append(all, step{"hold", p.session, delivery(digits, p.flags()+"c", p.rest())})
	case p.flagged() && (!f.marked || mark != digits):
		all = append(all, step{verb: "mark", a: digits + " " + string(markOf(""))})
	}
	return all
}

// delivery returns what a session holds of a job: a token, flags, and the key of the group that the job holds.
func delivery(token, flags, group string) string {
	if group != "" {
		flags += " " + group
	}
	return token + " " + flags
}

// markOf returns what stands behind the token in a mark.
func markOf(why string) []byte {
	text := wire.AppendCancelled(nil, why, false)
	mark := append(strconv.AppendInt(nil, int64(len(text)), 10), ' ')
	return wire.AppendCancelled(append(mark, text...), why, true)
}

// keep returns the index of the place that a job keeps, or -1 if it is in none: the one that is furthest on its way. An ended job isn't
// run again for a session that nobody has.
func (f *facts) keep(a around) int {
	class, _, _, _ := f.header()
	rank := func(p place) int {
		switch {
		case p.kind == "running" && p.registered:
			return 6
		case p.kind == "lined": // a job that doesn't hold its group runs beside no other
			return 5
		case p.kind == "ready" && p.class == class:
			return 4
		case p.kind == "ready":
			return 3
		case p.kind == "due", p.kind == "awaiting":
			return 2
		case p.kind == string(Cancelled), p.kind == string(Completed):
			return 1
		case p.kind == string(Dead):
			return 0
		}
		return -1
	}
	best := -1
	for i, p := range f.places {
		if best < 0 || rank(p) > rank(f.places[best]) || rank(p) == rank(f.places[best]) && a.newer(p, f.places[best]) {
			best = i
		}
	}
	return best
}

// waits reports whether the job is to wait for a flow, as its record says.
func (f *facts) waits() bool {
	_, _, due, ok := f.header()
	return ok && due == wire.HeldUntil.UnixMicro() && f.links != "" && strings.IndexByte("sef", f.links[0]) >= 0
}

// newer reports whether a place is the one of a later delivery.
func (a around) newer(p, than place) bool {
	_, later, ok := a.token(p)
	_, n, known := a.token(than)
	return p.kind == "running" && ok && (!known || later > n)
}

// mendable reports whether a repair does something about it.
func mendable(fault Fault) bool { return Remedies[fault] != "" }
