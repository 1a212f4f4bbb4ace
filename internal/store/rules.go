package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// A violation is one thing that is wrong.
type violation struct {
	fault Fault
	text  string
}

// facts are what a queue has of one job at one moment.
type facts struct {
	id       string
	digest   string // of all that follows, as facts_of.lua makes it
	there    bool   // it has a record
	head     string // the begin of the record, at least the header and the key of a group
	size     int64  // of the record
	noted    bool   // a span is kept
	marked   bool
	mark     string // that of a job that is cancelled while it runs
	places   []place
	searched bool // the ready lists were searched

	scope, key string // of a unique key that isn't for a window, as the record has it
	holder     string // what UNIQUE has for that key

	links string // by which the job is a member of flows, or waits for them

	expires int64 // when it expires by EXPIRES, in us; 0: never
	expiry  int64 // the same by its record
}

// A place is where a job is. In facts the order is: ready, due, running, ended.
type place struct {
	kind       string // "ready", "due", "lined", "awaiting", "running", or the name of a terminal state
	waits      string // of awaiting: the flow, '{', and what the job waits for
	class      string // of ready and due
	times      int    // how many times it is in a ready list
	us         int64  // of due
	session    string
	value      string // that the session holds
	registered bool   // the session is
}

// String names a place as messages do.
func (p place) String() string {
	switch p.kind {
	case "ready":
		return "ready in list " + p.class
	case "lined":
		return "ready in the line of its group"
	case "awaiting":
		return "waiting for the batch " + p.waits
	case "running":
		return fmt.Sprintf("in flight in %.200s", p.session)
	}
	return p.kind
}

// waitsAs returns the class of a job that is due. If the job then goes into its group's line, its member in due has the class as a letter.
func (p place) waitsAs() string {
	if p.later() {
		return string(p.class[0] - 'a' + '0')
	}
	return p.class
}

// later reports whether the place is of a job that comes into its group's line when it is due.
func (p place) later() bool { return p.kind == "due" && p.class >= "a" && p.class <= "c" }

// token returns what stands for the token in what the session holds, and whether it can be one.
func (p place) token() (digits string, n int64, ok bool) {
	digits, _, _ = strings.Cut(p.value, " ")
	n, ok = parseToken(digits)
	return digits, n, ok
}

// latestToken is the last token that claim.lua goes on from.
const latestToken = 9007199254000000

// parseToken returns a token, and whether the text is one for claim.lua: at most 16 digits, and at most latestToken.
func parseToken(digits string) (n int64, ok bool) {
	if len(digits) > 16 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > latestToken {
		return 0, false
	}
	return n, true
}

// flags returns what stands behind the token in what the session holds, without the keys of a group and of a unique job.
func (p place) flags() string {
	_, rest, _ := strings.Cut(p.value, " ")
	flags, _, _ := strings.Cut(rest, " ")
	return flags
}

// rest returns what stands behind the flags in what the session holds: the key of a group, then a space and a unique key if there is one.
func (p place) rest() string {
	if words := strings.SplitN(p.value, " ", 3); p.kind == "running" && len(words) == 3 {
		return words[2] // links, too
	}
	return ""
}

// group returns the key of the group that a delivery holds, or "".
func (p place) group() string {
	key, _, _ := strings.Cut(p.rest(), " ")
	return key
}

// links returns the links of a delivery's job, or "".
func (p place) links() string {
	_, links, _ := strings.Cut(p.rest(), linksMark)
	return links
}

// linksMark stands before the links in what a session holds.
const linksMark = "\x02"

// uniqueKey returns the unique key that a delivery has, or "".
func (p place) uniqueKey() string {
	_, key, _ := strings.Cut(p.rest(), " ")
	key, _, _ = strings.Cut(key, linksMark)
	return key
}

// flagged reports whether the session holds that the job is cancelled.
func (p place) flagged() bool {
	return strings.HasSuffix(p.flags(), "c")
}

// suspect returns how many crashes the flag of a suspect says, and whether there is one.
func (p place) suspect() (crashes string, ok bool) {
	return strings.CutPrefix(strings.TrimSuffix(p.flags(), "c"), "s")
}

// header returns the class that the record waits in, and its times. ok is false if there is no header: then nothing can be compared.
func (f *facts) header() (class string, enqueued, due int64, ok bool) {
	h := f.head
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
func (f *facts) line() string { return f.head[1:2] }

// laterClass returns what stands for the class of a job that is due, and comes into its group's line then.
func (f *facts) laterClass() string { return string(f.head[1] - '0' + 'a') }

// around is what the rules about one job compare it with.
type around struct {
	now     int64 // the server's clock, in us
	fence   string
	largest string // "" if it is not known
}

// maxAhead is how far a token can be beyond the fence and the clock, in us. A fence raised to one further ahead might leave no tokens.
const maxAhead = 366 * 24 * 3600 * 1e6

// token returns the token of a delivery, and whether it can be one.
func (a around) token(p place) (digits string, n int64, ok bool) {
	fence, _ := parseToken(a.fence)
	digits, n, ok = p.token()
	return digits, n, ok && n <= max(fence, a.now)+maxAhead
}

// judge returns what is wrong with one job. What needs the ready lists it says only if they were searched. These are the rules of
// Check, and of the doctor.
func (f *facts) judge(a around) (wrong []violation) {
	add := func(fault Fault, format string, args ...any) {
		wrong = append(wrong, violation{fault, fmt.Sprintf(format, args...)})
	}
	var seen []place // one that is twice in a list is in two places
	for _, p := range f.places {
		for range max(p.times, 1) {
			if len(seen) > 0 {
				add(TwoPlaces, "job %.200q is %s and %s", f.id, seen[len(seen)-1], p)
			}
			seen = append(seen, p)
		}
	}
	class, _, due, readable := f.header()
	ended, waits := false, false
	for _, p := range f.places {
		if !f.there {
			add(NoRecord, "job %.200q is %s and has no record", f.id, p)
		}
		switch p.kind {
		case "ready":
			waits = true
			if f.there && readable && p.class != class {
				add(WrongClass, "job %.200q of class %s waits in the list of class %s", f.id, class, p.class)
			}
		case "due":
			waits = true
			want := class
			if p.later() {
				want = f.line()
			}
			if f.there && readable && p.waitsAs() != want {
				add(WrongClass, "job %.200q of class %s is due in class %s", f.id, class, p.class)
			}
			if f.there && readable && p.us != due {
				add(WrongTime, "job %.200q is due at %d us, its record says %d", f.id, p.us, due)
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
	if f.there && len(f.places) == 0 && f.searched {
		add(NoPlace, "job %.200q has a record and no state", f.id)
	}
	if f.noted && (!f.there || ended && !waits) {
		state := ""
		if ended {
			state = f.places[len(f.places)-1].kind
		}
		add(StrayNote, "a span of job %.200q is kept, which is %q", f.id, state)
	}
	f.judgeMark(add)
	if f.lacksKey() && waits && !ended {
		add(NoKey, "job %.200q hasn't its unique key %.402q; that has %.220q", f.id, f.key, f.holder)
	}
	if want := f.wantedExpiry(); f.expires != want && (want == 0 || f.searched || waits) {
		add(WrongExpiry, "job %.200q expires at %d us (0: never), it should at %d", f.id, f.expires, want)
	}
	if largest, err := strconv.ParseInt(a.largest, 10, 64); err == nil && f.there && !ended && f.size > largest {
		add(WrongLargest, "job %.200q has a record of %d bytes, the largest is said to have %d", f.id, f.size, largest)
	}
	return wrong
}

// lacksKey reports whether another job than this one has its unique key, or none, until the end of the job. One that is being moved may be a copy of a
// job that has ended.
func (f *facts) lacksKey() bool {
	_, _, due, _ := f.header()
	return f.there && f.scope == string(wire.UntilEnded) && f.holder != f.scope+" "+f.id && due != wire.HeldUntil.UnixMicro()
}

// wantedExpiry returns when the job should expire: a job that waits does so when its record says.
func (f *facts) wantedExpiry() int64 {
	for _, p := range f.places {
		switch p.kind {
		case "ready", "due", "lined":
		default:
			return 0
		}
	}
	if !f.there {
		return 0
	}
	return f.expiry
}

func (f *facts) judgeDelivery(p place, a around, add func(Fault, string, ...any)) {
	_, token, ok := a.token(p)
	if !ok {
		add(BadToken, "job %.200q has the token %.40q", f.id, p.value)
		return
	}
	if unreadableFence(a.fence) {
		return // that is another fault
	}
	fence, _ := parseToken(a.fence)
	if token > fence {
		add(BeyondFence, "job %.200q has token %d, beyond the fence at %d", f.id, token, fence)
	}
}

// judgeMark compares the mark of a cancelled job with the flag of its delivery.
func (f *facts) judgeMark(add func(Fault, string, ...any)) {
	digits, _, _ := strings.Cut(f.mark, " ")
	flagged := slices.ContainsFunc(f.places, func(p place) bool { return p.kind == "running" && p.flagged() })
	matches := slices.ContainsFunc(f.places, func(p place) bool {
		of, _, _ := p.token()
		return p.kind == "running" && p.flagged() && of == digits
	})
	if f.marked && !matches {
		add(StrayMark, "job %.200q is marked as cancelled with token %.40q, and no delivery has that and the flag", f.id, digits)
	}
	if flagged && !f.marked {
		add(NoMark, "job %.200q runs with the flag of a cancelled one, and has no mark", f.id)
	}
}

// crowded reports whether one session has suspects that may not run beside each other: one of them has AloneAt crashes or more.
func crowded(running []place) (suspects, alone int, wrong bool) {
	for _, p := range running {
		if crashes, ok := p.suspect(); ok {
			suspects++
			if n, err := strconv.Atoi(crashes); err != nil || n >= AloneAt { // a flag without a number is taken as the scripts take it
				alone++
			}
		}
	}
	return suspects, alone, alone > 0 && suspects > 1
}

// unreadableFence reports whether the last token can't be read.
func unreadableFence(fence string) bool {
	_, ok := parseToken(fence)
	return fence != "" && !ok
}

// kindOf returns what the name of a key of the queue says: "" for one that a queue doesn't have. session is that of "inflight".
func (q *Queue) kindOf(key string) (kind, session string) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(key, q.keys.Prefix), ":")
	switch {
	case kind == "inflight" && id != "":
		return kind, id
	case q.keys.Fixed()[key]:
		return "fixed", ""
	case kind == "lane" && id != "", kind == "stuck" && id != "", kind == "progress" && id != "", kind == "outbox" && id != "":
		return kind, ""
	}
	return "", ""
}

// strayAddress reports whether an address that waits for wake-ups is of none of the sessions.
func (q *Queue) strayAddress(address string, registered func(session string) bool) bool {
	if len(address) < 2 {
		return true
	}
	session, ok := strings.CutPrefix(address[1:], q.keys.Channel(""))
	return !ok || !registered(session)
}
