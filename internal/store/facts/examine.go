package facts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

const (
	// MaxTries bounds the calls that are made again since something has moved meanwhile.
	MaxTries = 20
	// ActBudget is what one call may cost, in entries of a list that Redis looks at: about 3 ms. Each job counts as 1,500. One may cost more.
	ActBudget = 100_000
	// MaxActSessions is the most sessions that a queue may have: each is a key of the call.
	MaxActSessions = scripts.MaxArgs - 100
	MaxLook        = 100   // jobs in a page
	PageBytes      = 256e3 // of records in a page, about
	// MaxScanned is about how many fields or members a call returns.
	MaxScanned = 1000
)

// ErrMoving says that the sessions changed each time between looking for them and reading them.
var ErrMoving = errors.New("store: the queue changes too fast to be read; try again when it is quieter")

// An Origin says which jobs examine looks at. The zero value has no page: it is for IDs.
type Origin struct {
	Name   string // as examine.lua has it
	Of     string // a class, or a session
	Cursor string
	Count  int
	IDs    []string
	Search bool // the ready lists are searched for each job
}

// An Examination is what one call of examine.lua has found.
type Examination struct {
	Around
	Next    string
	Jobs    []Job
	Left    []string // IDs that the call didn't get to; for "idle": addresses without a session
	Records []string // IDs and records, or members of due that name no job
}

// SessionsOf returns the registered sessions, and those of others that have deliveries.
func (q *Site) SessionsOf(ctx context.Context, others []string) ([]string, error) {
	sessions, err := q.Client.ZRange(ctx, q.Keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	sessions = append(sessions, others...)
	slices.Sort(sessions)
	sessions = slices.Compact(sessions)
	if len(sessions) > MaxActSessions {
		return nil, fmt.Errorf("store: queue %q has %d sessions; it can be examined with at most %d", q.Name, len(sessions), MaxActSessions)
	}
	return sessions, nil
}

// Examine looks at a page of jobs. again reports that a session has been opened: nothing was looked at.
func (q *Site) Examine(ctx context.Context, sessions []string, s Origin) (e Examination, again bool, err error) {
	if s.Name == "" {
		s.Name = "ids"
	}
	keys := scripts.Examine.Keys(&q.Keys)
	for _, session := range sessions {
		keys = append(keys, q.Keys.Inflight(session))
	}
	args := scripts.Examine.Args(len(s.IDs), scripts.Arg("inflight", q.Keys.Inflight("")), scripts.Arg("channels", q.Keys.Channel("")),
		scripts.Arg("source", s.Name), scripts.Arg("of", s.Of), scripts.Arg("cursor", s.Cursor), scripts.Arg("count", s.Count), scripts.Arg("search", scripts.Flag(s.Search)), scripts.Arg("budget", ActBudget))
	for _, id := range s.IDs {
		args = append(args, id)
	}
	r, err := scripts.Examine.Run(ctx, q.Client, keys, args)
	if err != nil {
		return Examination{}, false, err
	}
	return parseExamination(r, s.Search)
}

func parseExamination(r *scripts.Reply, searched bool) (e Examination, again bool, err error) {
	if err := r.Status("ok", "again"); err != nil {
		return Examination{}, false, err
	}
	if r.Str(0) == "again" {
		return Examination{}, true, nil
	}
	e = Examination{Around: Around{Now: r.Int(1), Fence: r.Str(3), Largest: r.Str(4)}, Next: r.Str(2), Left: r.Strs(6), Records: r.Strs(7)}
	for _, one := range r.Array(5) {
		list, _ := one.([]any)
		f, ok := parseFacts((&scripts.Reply{List: list}), searched)
		if !ok {
			r.Fail(5, "no list of facts")
			break
		}
		e.Jobs = append(e.Jobs, f)
	}
	return e, false, r.Err
}

// firstPlace is where the places begin in what facts_of in looks.lua returns; each has so many texts.
const firstPlace, placeTexts = 6, 4

func parseFacts(r *scripts.Reply, searched bool) (f Job, ok bool) {
	texts := make([]string, len(r.List))
	for i := range r.List {
		texts[i] = r.Str(i)
	}
	if r.Err != nil || len(texts) < firstPlace || (len(texts)-firstPlace)%placeTexts != 0 {
		return Job{}, false
	}
	f = Job{Digest: texts[0], ID: texts[1], Head: texts[2], There: texts[3] != "", Noted: texts[4] != "", Marked: texts[5] != "", Searched: searched}
	f.Size, _ = strconv.ParseInt(texts[3], 10, 64)
	if f.Marked {
		f.Mark = texts[5][1:]
	}
	for t := range slices.Chunk(texts[firstPlace:], placeTexts) {
		switch t[0] {
		case "unique":
			f.Scope, f.Key, f.Holder = t[1], t[2], t[3]
			continue
		case "links":
			f.Links = t[1]
			continue
		}
		p := Place{Kind: t[0]}
		switch t[0] {
		case "ready":
			p.Class = t[1]
			p.Times, _ = strconv.Atoi(t[2])
		case "awaiting":
			p.Waits = t[1]
		case "lined":
			p.Class = t[1]
		case "due":
			p.Class, p.Micros = t[1], int64(ParseScore(t[2]))
		case "running":
			p.Session, p.Value, p.Registered = t[1], t[2], t[3] == "1"
		case "dead", "cancelled", "completed":
			p.Micros = int64(ParseScore(t[1]))
		case "expires":
			f.Expires, f.Expiry = int64(ParseScore(t[1])), int64(ParseScore(t[2]))
			continue
		default:
			return Job{}, false
		}
		f.Places = append(f.Places, p)
	}
	return f, true
}
