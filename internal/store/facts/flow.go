package facts

import (
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/wire"
)

// A FlowRef names one flow: a later one of its name has another mark.
type FlowRef struct{ Name, Mark string }

func (r FlowRef) Text() string { return r.Name + "{" + r.Mark }

// A Flow is what a queue has of a flow.
type Flow struct {
	FlowRef
	Unsealed  bool // its producer may still add to it
	Failed    bool // a member hasn't completed
	Over      bool
	Cancelled bool
	FailFast  bool // it is cancelled when a member ends that hasn't completed
	// Total is how many jobs have ever been members. Open haven't ended, OK have completed, Dead are dead, and Gone were cancelled or deleted. Bad is how many of those that have ended haven't completed.
	Total, Open, Bad, OK, Dead, Gone int64
	Waiters                          int64 // jobs that wait for it, or have waited, and haven't ended
	Lost                             int64 // such that are dead or cancelled, or a few more
	Given                            int64 // how many jobs its producer has given, also those that were left out
	Digest                           string
	Created, Since                   time.Time     // when it was made; when its producer last called, and later when it was over
	Within, Timeout                  time.Duration // how long it may stay unsealed after a call; how long it may last, 0: for ever
}

// State returns what is to be known first of a flow, in a word.
func (f *Flow) State() string {
	switch {
	case f.Over:
		return "over"
	case f.Cancelled:
		return "cancelled"
	case f.Failed:
		return "failed"
	case f.Unsealed:
		return "unsealed"
	}
	return "open"
}

// SealBy returns when the flow is cancelled unless it is sealed by then; zero if it is sealed.
func (f *Flow) SealBy() time.Time {
	if !f.Unsealed || f.Over {
		return time.Time{}
	}
	return f.Since.Add(f.Within)
}

// EndBy returns when the flow is cancelled unless it is over by then; zero if it isn't.
func (f *Flow) EndBy() time.Time {
	if f.Timeout == 0 || f.Over || f.Cancelled {
		return time.Time{}
	}
	return f.Created.Add(f.Timeout)
}

// flags notes what the flags of a flow say. It reports whether they are known.
func (f *Flow) flags(text string) bool {
	for _, c := range text {
		switch c {
		case 'u':
			f.Unsealed = true
		case 'n':
			f.Failed = true
		case 'd':
			f.Over = true
		case 'x':
			f.Cancelled = true
		case 'q':
			f.FailFast = true
		default:
			return false
		}
	}
	return true
}

// ParseFlow reads what a queue has of a flow. The chapter flow_states of the scripts writes it.
func ParseFlow(name, text string) (f Flow, ok bool) {
	words := strings.Split(text, " ")
	if len(words) != 16 || !strings.HasPrefix(words[0], ".") || !f.flags(words[0][1:]) {
		return Flow{}, false
	}
	var n [13]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(words[1+i], 10, 64); err != nil || n[i] < 0 {
			return Flow{}, false
		}
	}
	f.Name, f.Mark, f.Digest = name, words[15], words[14]
	f.Total, f.Open, f.Bad, f.OK, f.Dead, f.Gone, f.Waiters, f.Lost, f.Given = n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]
	f.Created, f.Since = time.UnixMicro(n[9]), time.UnixMicro(n[10])
	f.Within, f.Timeout = time.Duration(n[11])*time.Microsecond, time.Duration(n[12])*time.Microsecond
	return f, true
}

// Verdict reports whether a job that waits for the flow waits no more, as verdict_of of the scripts has it.
func (f *Flow) Verdict(role byte) bool {
	switch role {
	case wire.LinkAwaitsSuccess:
		return f.Failed || f.Cancelled || f.Over
	case wire.LinkAwaitsEnd:
		return f.Over
	}
	return f.Failed || f.Over
}
