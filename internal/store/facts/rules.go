package facts

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A Fault is what can be wrong with a queue. Its text is its name in JSON.
type Fault string

// The faults. docs/doctor.md says how each is repaired.
const (
	TwoPlaces    Fault = "two_places"   // a job is in two places, or twice in one
	NoPlace      Fault = "no_place"     // a record whose job is in no place
	NoRecord     Fault = "no_record"    // a place of a job without a record
	WrongClass   Fault = "wrong_class"  // a job waits in another class than its record says
	WrongTime    Fault = "wrong_time"   // a job is due at another time than its record says
	BadMember    Fault = "bad_member"   // something is due, or in a line, that names no job
	NoSession    Fault = "no_session"   // a session that isn't registered has deliveries
	BadToken     Fault = "bad_token"    // a delivery has no token
	BeyondFence  Fault = "beyond_fence" // a token is larger than the last that was granted
	SameToken    Fault = "same_token"   // two deliveries have one token
	Together     Fault = "suspects"     // a suspect that has a single crash left runs beside another
	WrongBytes   Fault = "bytes"        // the counted bytes of dead or cancelled jobs are wrong
	WrongLargest Fault = "largest"      // a record is larger than the largest that is known
	StrayNote    Fault = "span_note"    // a span is kept of a job that has ended, or isn't there
	StrayMark    Fault = "cancel_mark"  // a job is marked as cancelled, and no delivery says so
	NoMark       Fault = "cancel_flag"  // a delivery says that its job is cancelled, and there is no mark
	StrayAddress Fault = "idle_address" // an address without a session waits for wake-ups
	WrongTurn    Fault = "turn"         // a line of a group has another state, or another turn, than its jobs need
	WrongHolders Fault = "holders"      // another number of jobs holds a group than is counted
	WrongRunning Fault = "running"      // a session is counted wrong for the queue's limit of running jobs
	NoKey        Fault = "no_key"       // a job that hasn't ended hasn't its unique key
	StrayUnique  Fault = "stray_unique" // a unique key is held by no job that may have it
	WrongExpiry  Fault = "expiry"       // a job that waits for its start expires at another time than its record says, or an entry is of no such job
	WrongFlow    Fault = "batch"        // other numbers of jobs are of a batch, or wait for it, than are counted
	StuckWaiter  Fault = "callback"     // a job waits for a batch that has what it waits for, or isn't there
	Unreadable   Fault = "unreadable"   // a record can't be decoded
	StrayKey     Fault = "stray_key"    // a key that a queue doesn't have
	BadSetting   Fault = "bad_setting"  // a setting that can't be read
	BadFence     Fault = "bad_fence"    // the last token can't be read
	WrongType    Fault = "wrong_type"   // a key has another type
)

// Faults are all of them.
var Faults = []Fault{
	TwoPlaces, NoPlace, NoRecord, WrongClass, WrongTime, BadMember, NoSession, BadToken, BeyondFence, SameToken, Together, WrongBytes,
	WrongLargest, StrayNote, StrayMark, NoMark, StrayAddress, WrongTurn, WrongHolders, WrongRunning, NoKey, StrayUnique, WrongExpiry, WrongFlow, StuckWaiter, Unreadable, StrayKey, BadSetting, BadFence, WrongType,
}

const (
	// SuspectAt is the number of crashes from which on a job is a suspect. The chapter record of the scripts has this number and AloneAt, too.
	SuspectAt = 2
	// AloneAt is the number of crashes from which on a suspect runs beside no other one in its session: by CrashLimit, the next one would be its last.
	AloneAt = CrashLimit - 1
	// CrashLimit is the number of crashes at which a job is dead, unless the worker that takes it back says another.
	CrashLimit = 5
)

// A Violation is one thing that is wrong.
type Violation struct {
	Fault Fault
	Text  string
}

// A Job is what a queue has of one job at one moment.
type Job struct {
	ID       string
	Digest   string // of all that follows, as facts_of in looks.lua makes it: a repair asks whether it is still the same
	There    bool   // it has a record
	Head     string // the begin of the record, at least the header and the key of a group
	Size     int64  // of the record
	Noted    bool   // a span is kept
	Marked   bool
	Mark     string // that of a job that is cancelled while it runs
	Places   []Place
	Searched bool // the ready lists were searched

	Scope, Key string // of a unique key that isn't for a window, as the record has it
	Holder     string // what UNIQUE has for that key

	Links string // by which the job is a member of flows, or waits for them

	Expires int64 // when it expires by EXPIRES, in us; 0: never
	Expiry  int64 // the same by its record
}

// A Place is where a job is. In facts the order is: ready, due, running, ended.
type Place struct {
	Kind       string // "ready", "due", "lined", "awaiting", "running", or the name of a terminal state
	Waits      string // of awaiting: the flow, '{', and what the job waits for
	Class      string // of ready and due
	Times      int    // how many times it is in a ready list
	Micros     int64  // of due
	Session    string
	Value      string // that the session holds
	Registered bool   // the session is
}

// String names a place as messages do.
func (p Place) String() string {
	switch p.Kind {
	case "ready":
		return "ready in list " + p.Class
	case "lined":
		return "ready in the line of its group"
	case "awaiting":
		return "waiting for the batch " + p.Waits
	case "running":
		return fmt.Sprintf("in flight in %.200s", p.Session)
	}
	return p.Kind
}

// waitsAs returns the class of a job that is due. If the job then goes into its group's line, its member in due has the class as a letter.
func (p Place) waitsAs() string {
	if p.Later() {
		return string(p.Class[0] - 'a' + '0')
	}
	return p.Class
}

// Later reports whether the place is of a job that comes into its group's line when it is due.
func (p Place) Later() bool { return p.Kind == "due" && p.Class >= "a" && p.Class <= "c" }

// Token returns the token in what the session holds, and whether it can be one.
func (p Place) Token() (digits string, n int64, ok bool) {
	digits = p.Fields().Token
	n, ok = ParseToken(digits)
	return digits, n, ok
}

// LatestToken is the last token that claim.lua goes on from.
const LatestToken = 9007199254000000

// ParseToken returns a token, and whether the text is one for claim.lua: at most 16 digits, and at most LatestToken.
func ParseToken(digits string) (n int64, ok bool) {
	if len(digits) > 16 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > LatestToken {
		return 0, false
	}
	return n, true
}

// Fields returns the fields of what the session holds.
func (p Place) Fields() Fields { return FieldsOf(p.Value) }

// Header returns the class that the record waits in, and its times. ok is false if there is no header: then nothing can be compared.
func (f *Job) Header() (class string, enqueued, due int64, ok bool) {
	h := f.Head
	if len(h) < 20 || h[0] < 1 || h[0] > 31 || h[1] < '0' || h[1] > '2' {
		return "1", 0, 0, false
	}
	class = h[1:2]
	if h[2] >= SuspectAt {
		class = "s"
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64([]byte(h[i:i+8])) & (1<<63 - 1)) }
	return class, at(4), at(12), true
}

// line returns the class of the line in which the job waits, if it is of a group. The record has a header.
func (f *Job) line() string { return f.Head[1:2] }

// LaterClass returns what stands for the class of a job that is due, and comes into its group's line then.
func (f *Job) LaterClass() string { return string(f.Head[1] - '0' + 'a') }

// Around is what the rules about one job compare it with.
type Around struct {
	Now     int64 // the server's clock, in us
	Fence   string
	Largest string // "" if it is not known
}

// maxAhead is how far a token can be beyond the fence and the clock, in us. A fence raised to one further ahead might leave no tokens.
const maxAhead = 366 * 24 * 3600 * 1e6

// Token returns the token of a delivery, and whether it can be one.
func (a Around) Token(p Place) (digits string, n int64, ok bool) {
	fence, _ := ParseToken(a.Fence)
	digits, n, ok = p.Token()
	return digits, n, ok && n <= max(fence, a.Now)+maxAhead
}

// Judge returns what is wrong with one job. What needs the ready lists it says only if they were searched. These are the rules of
// Check, and of the doctor.
func (f *Job) Judge(a Around) (wrong []Violation) {
	add := func(fault Fault, format string, args ...any) {
		wrong = append(wrong, Violation{fault, fmt.Sprintf(format, args...)})
	}
	var seen []Place // one that is twice in a list is in two places
	for _, p := range f.Places {
		for range max(p.Times, 1) {
			if len(seen) > 0 {
				add(TwoPlaces, "job %.200q is %s and %s", f.ID, seen[len(seen)-1], p)
			}
			seen = append(seen, p)
		}
	}
	class, _, due, readable := f.Header()
	ended, waits := false, false
	for _, p := range f.Places {
		if !f.There {
			add(NoRecord, "job %.200q is %s and has no record", f.ID, p)
		}
		switch p.Kind {
		case "ready":
			waits = true
			if f.There && readable && p.Class != class {
				add(WrongClass, "job %.200q of class %s waits in the list of class %s", f.ID, class, p.Class)
			}
		case "due":
			waits = true
			want := class
			if p.Later() {
				want = f.line()
			}
			if f.There && readable && p.waitsAs() != want {
				add(WrongClass, "job %.200q of class %s is due in class %s", f.ID, class, p.Class)
			}
			if f.There && readable && p.Micros != due {
				add(WrongTime, "job %.200q is due at %d us, its record says %d", f.ID, p.Micros, due)
			}
		case "lined", "awaiting":
			waits = true
		case "running":
			waits = true
			f.judgeDelivery(p, a, add)
		default:
			ended = true
		}
	}
	if f.There && len(f.Places) == 0 && f.Searched {
		add(NoPlace, "job %.200q has a record and no state", f.ID)
	}
	if f.Noted && (!f.There || ended && !waits) {
		state := ""
		if ended {
			state = f.Places[len(f.Places)-1].Kind
		}
		add(StrayNote, "a span of job %.200q is kept, which is %q", f.ID, state)
	}
	f.judgeMark(add)
	if f.LacksKey() && waits && !ended {
		add(NoKey, "job %.200q hasn't its unique key %.402q; that has %.220q", f.ID, f.Key, f.Holder)
	}
	if want := f.wantedExpiry(); f.Expires != want && (want == 0 || f.Searched || waits) {
		add(WrongExpiry, "job %.200q expires at %d us (0: never), it should at %d", f.ID, f.Expires, want)
	}
	if largest, err := strconv.ParseInt(a.Largest, 10, 64); err == nil && f.There && !ended && f.Size > largest {
		add(WrongLargest, "job %.200q has a record of %d bytes, the largest is said to have %d", f.ID, f.Size, largest)
	}
	return wrong
}

// LacksKey reports whether another job than this one has its unique key, or none, until the end of the job. One that is being moved may be a copy of a
// job that has ended.
func (f *Job) LacksKey() bool {
	_, _, due, _ := f.Header()
	return f.There && f.Scope == string(wire.UntilEnded) && f.Holder != f.Scope+" "+f.ID && due != wire.HeldUntil.UnixMicro()
}

// wantedExpiry returns when the job should expire: a job that waits does so when its record says.
func (f *Job) wantedExpiry() int64 {
	for _, p := range f.Places {
		switch p.Kind {
		case "ready", "due", "lined":
		default:
			return 0
		}
	}
	if !f.There {
		return 0
	}
	return f.Expiry
}

func (f *Job) judgeDelivery(p Place, a Around, add func(Fault, string, ...any)) {
	_, token, ok := a.Token(p)
	if !ok {
		add(BadToken, "job %.200q has the token %.40q", f.ID, p.Value)
		return
	}
	if UnreadableFence(a.Fence) {
		return // that is another fault
	}
	fence, _ := ParseToken(a.Fence)
	if token > fence {
		add(BeyondFence, "job %.200q has token %d, beyond the fence at %d", f.ID, token, fence)
	}
}

// judgeMark compares the mark of a cancelled job with the flag of its delivery.
func (f *Job) judgeMark(add func(Fault, string, ...any)) {
	digits, _, _ := strings.Cut(f.Mark, " ")
	flagged := slices.ContainsFunc(f.Places, func(p Place) bool { return p.Kind == "running" && p.Fields().Flagged() })
	matches := slices.ContainsFunc(f.Places, func(p Place) bool {
		of, _, _ := p.Token()
		return p.Kind == "running" && p.Fields().Flagged() && of == digits
	})
	if f.Marked && !matches {
		add(StrayMark, "job %.200q is marked as cancelled with token %.40q, and no delivery has that and the flag", f.ID, digits)
	}
	if flagged && !f.Marked {
		add(NoMark, "job %.200q runs with the flag of a cancelled one, and has no mark", f.ID)
	}
}

// Crowded reports whether one session has suspects that may not run beside each other: one of them has AloneAt crashes or more.
func Crowded(running []Place) (suspects, alone int, wrong bool) {
	for _, p := range running {
		if crashes, ok := p.Fields().Suspect(); ok {
			suspects++
			if n, err := strconv.Atoi(crashes); err != nil || n >= AloneAt { // a flag without a number is taken as the scripts take it
				alone++
			}
		}
	}
	return suspects, alone, alone > 0 && suspects > 1
}

// UnreadableFence reports whether the last token can't be read.
func UnreadableFence(fence string) bool {
	_, ok := ParseToken(fence)
	return fence != "" && !ok
}

// Ended reports whether the place is of a job that has ended.
func (p Place) Ended() bool {
	return slices.Contains(EndedStates, signalbox.State(p.Kind))
}

// MarkOf returns what stands behind the token in a mark.
func MarkOf(why string) []byte {
	text := wire.AppendCancelled(nil, why, false)
	mark := append(strconv.AppendInt(nil, int64(len(text)), 10), ' ')
	return wire.AppendCancelled(append(mark, text...), why, true)
}
