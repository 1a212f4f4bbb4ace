package doctor

import (
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// Remedies are what a repair does about a fault, in words. A fault that isn't here is only reported.
var Remedies = map[facts.Fault]string{
	facts.TwoPlaces:    "keep the job in one place",
	facts.NoPlace:      "put the job where it waits",
	facts.NoRecord:     "remove the ID",
	facts.WrongClass:   "move the job to its class",
	facts.WrongTime:    "use the time of the record",
	facts.BadMember:    "remove the entry",
	facts.NoSession:    "register the session as expired",
	facts.BadToken:     "make the job ready again",
	facts.BeyondFence:  "raise the fence",
	facts.WrongBytes:   "correct the count",
	facts.WrongLargest: "correct the size",
	facts.StrayNote:    "remove the span",
	facts.StrayMark:    "flag the delivery, or remove the mark",
	facts.NoMark:       "write the mark",
	facts.StrayAddress: "remove the address",
	facts.WrongTurn:    "give the line its turn, or take it",
	facts.WrongHolders: "correct the count",
	facts.WrongRunning: "correct the count",
	facts.NoKey:        "give it to the job, if nobody has it",
	facts.StrayUnique:  "free the key",
	facts.WrongFlow:    "correct the count, and have its callbacks go on",
	facts.StuckWaiter:  "have it go on, if its batch is there",
	facts.WrongExpiry:  "use the time of the record, or remove the entry",
}

// StepsOf returns what mends the job, and leaves it in one place. It is what docs/doctor.md has. now is the server's clock, in us.
func StepsOf(f *facts.Job, a facts.Around, now int64) (all []Step) {
	do := func(verb string, values ...string) {
		s := Step{Verb: verb}
		if len(values) > 0 {
			s.A = values[0]
		}
		if len(values) > 1 {
			s.B = values[1]
		}
		all = append(all, s)
	}
	leave := func(p facts.Place) {
		switch p.Kind {
		case "ready":
			do("unlist", p.Class, "0")
		case "due":
			do("undue", p.Class)
		case "running":
			do("unhold", p.Session)
		case "lined":
			do("unline")
		case "awaiting":
			do("unawait", p.Waits)
		default:
			do("unend", p.Kind)
		}
	}
	kept := -1
	if f.There {
		kept = keptPlace(f, a)
	}
	for i, p := range f.Places {
		if i != kept {
			leave(p)
		}
	}
	class, _, due, readable := f.Header()
	ended := false
	switch {
	case !f.There:
	case kept < 0 && awaits(f):
		do("await")
	case kept < 0 && due > now:
		if facts.GroupOf(f.Head) != "" {
			class = f.LaterClass()
		}
		do("due", class, strconv.FormatInt(due, 10))
	case kept < 0 && facts.GroupOf(f.Head) != "":
		do("line")
	case kept < 0:
		do("list", class)
	default:
		p := f.Places[kept]
		switch p.Kind {
		case "ready":
			if readable && p.Class != class {
				leave(p)
				do("list", class)
			} else if p.Times > 1 {
				do("unlist", p.Class, strconv.Itoa(1-p.Times))
			}
		case "due":
			if p.Later() && readable {
				class = f.LaterClass()
			}
			if readable && (p.Class != class || p.Micros != due) {
				leave(p)
				do("due", class, strconv.FormatInt(due, 10))
			}
		case "lined", "awaiting":
		case "running":
			all = append(all, holds(f, p, a, class)...)
		default:
			ended = true
		}
	}
	if f.Marked && (kept < 0 || f.Places[kept].Kind != "running") {
		do("unmark")
	}
	if f.Noted && (!f.There || ended) {
		do("unnote")
	}
	if f.LacksKey() && f.Holder == "" && !ended {
		do("key", f.Scope, f.Key)
	}
	want := f.Expiry
	if !f.There || kept >= 0 && f.Places[kept].Kind != "ready" && f.Places[kept].Kind != "due" && f.Places[kept].Kind != "lined" {
		want = 0
	}
	if f.Expires != want {
		at := ""
		if want > 0 {
			at = strconv.FormatInt(want, 10)
		}
		do("expires", at)
	}
	if largest, err := strconv.ParseInt(a.Largest, 10, 64); err == nil && f.There && !ended && f.Size > largest {
		do("largest", strconv.FormatInt(f.Size, 10))
	}
	return all
}

// holds returns what mends a delivery.
func holds(f *facts.Job, p facts.Place, a facts.Around, class string) (all []Step) {
	digits, token, ok := a.Token(p)
	mark, _, _ := strings.Cut(f.Mark, " ")
	held := p.Fields()
	if !ok {
		if _, _, usable := a.Token(facts.Place{Value: mark}); f.Marked && usable { // it is cancelled, and doesn't run again
			held = facts.Fields{Token: mark, Flags: "c", Group: facts.GroupOf(f.Head), Links: f.Links}
			if f.Scope == string(wire.UntilEnded) {
				held.Key = f.Key
			}
			return []Step{{Verb: "hold", A: p.Session, B: held.String()}}
		}
		all = []Step{{Verb: "unhold", A: p.Session, B: ""}, {Verb: "list", A: class, B: "head"}}
		if f.Marked {
			all = append(all, Step{Verb: "unmark"})
		}
		return all
	}
	if fence, _ := facts.ParseToken(a.Fence); !facts.UnreadableFence(a.Fence) && token > fence {
		all = append(all, Step{Verb: "fence", A: digits})
	}
	switch {
	case f.Marked && mark != digits && !held.Flagged():
		all = append(all, Step{Verb: "unmark"})
	case f.Marked && !held.Flagged():
		held.Flags += "c"
		all = append(all, Step{Verb: "hold", A: p.Session, B: held.String()})
	case held.Flagged() && (!f.Marked || mark != digits):
		all = append(all, Step{Verb: "mark", A: digits + " " + string(facts.MarkOf(""))})
	}
	return all
}

// keptPlace returns the index of the place that a job keeps, or -1 if it is in none: the one that is furthest on its way. An ended job isn't
// run again for a session that nobody has.
func keptPlace(f *facts.Job, a facts.Around) int {
	class, _, _, _ := f.Header()
	rank := func(p facts.Place) int {
		switch {
		case p.Kind == "running" && p.Registered:
			return 6
		case p.Kind == "lined": // a job that doesn't hold its group runs beside no other
			return 5
		case p.Kind == "ready" && p.Class == class:
			return 4
		case p.Kind == "ready":
			return 3
		case p.Kind == "due", p.Kind == "awaiting":
			return 2
		case p.Kind == string(signalbox.StateCancelled), p.Kind == string(signalbox.StateCompleted):
			return 1
		case p.Kind == string(signalbox.StateDead):
			return 0
		}
		return -1
	}
	best := -1
	for i, p := range f.Places {
		if best < 0 || rank(p) > rank(f.Places[best]) || rank(p) == rank(f.Places[best]) && newer(a, p, f.Places[best]) {
			best = i
		}
	}
	return best
}

// awaits reports whether the job is to wait for a flow, as its record says.
func awaits(f *facts.Job) bool {
	_, _, due, ok := f.Header()
	return ok && due == wire.HeldUntil.UnixMicro() && f.Links != "" && strings.IndexByte("sef", f.Links[0]) >= 0
}

// newer reports whether a place is the one of a later delivery.
func newer(a facts.Around, p, than facts.Place) bool {
	_, later, ok := a.Token(p)
	_, n, known := a.Token(than)
	return p.Kind == "running" && ok && (!known || later > n)
}

// Mendable reports whether a repair does something about it.
func Mendable(fault facts.Fault) bool { return Remedies[fault] != "" }
