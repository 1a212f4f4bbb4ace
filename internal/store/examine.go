package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// An origin says which jobs examine looks at. The zero value has no page: it is for IDs.
type origin struct {
	name   string // as examine.lua has it
	of     string // a class, or a session
	cursor string
	count  int
	ids    []string
	search bool // the ready lists are searched for each job
}

// An examination is what one call of examine.lua has found.
type examination struct {
	around
	next    string
	jobs    []facts
	left    []string // IDs that the call didn't get to; for "idle": addresses without a session
	records []string // IDs and records, or members of due that name no job
}

// sessionsOf returns the registered sessions, and those of others that have deliveries.
func (q *Queue) sessionsOf(ctx context.Context, others []string) ([]string, error) {
	sessions, err := q.rdb.ZRange(ctx, q.keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	sessions = append(sessions, others...)
	slices.Sort(sessions)
	sessions = slices.Compact(sessions)
	if len(sessions) > maxActSessions {
		return nil, fmt.Errorf("store: queue %q has %d sessions; it can be examined with at most %d", q.name, len(sessions), maxActSessions)
	}
	return sessions, nil
}

// examine looks at a page of jobs. again reports that a session has been opened: nothing was looked at.
func (q *Queue) examine(ctx context.Context, sessions []string, s origin) (e examination, again bool, err error) {
	if s.name == "" {
		s.name = "ids"
	}
	keys := scripts.Examine.Keys(&q.keys)
	for _, session := range sessions {
		keys = append(keys, q.keys.Inflight(session))
	}
	args := scripts.Examine.Args(len(s.ids), scripts.Arg("inflight", q.keys.Inflight("")), scripts.Arg("channels", q.keys.Channel("")),
		scripts.Arg("source", s.name), scripts.Arg("of", s.of), scripts.Arg("cursor", s.cursor), scripts.Arg("count", s.count), scripts.Arg("search", flag(s.search)), scripts.Arg("budget", actBudget))
	for _, id := range s.ids {
		args = append(args, id)
	}
	r, err := scripts.Examine.Run(ctx, q.rdb, keys, args)
	if err != nil {
		return examination{}, false, err
	}
	return parseExamination(r, s.search)
}

func parseExamination(r *scripts.Reply, searched bool) (e examination, again bool, err error) {
	if err := r.Status("ok", "again"); err != nil {
		return examination{}, false, err
	}
	if r.Str(0) == "again" {
		return examination{}, true, nil
	}
	e = examination{around: around{now: r.Int(1), fence: r.Str(3), largest: r.Str(4)}, next: r.Str(2), left: r.Strs(6), records: r.Strs(7)}
	for _, one := range r.Array(5) {
		list, _ := one.([]any)
		f, ok := parseFacts((&scripts.Reply{List: list}), searched)
		if !ok {
			r.Fail(5, "no list of facts")
			break
		}
		e.jobs = append(e.jobs, f)
	}
	return e, false, r.Err
}

// firstPlace is where the places begin in what facts_of.lua returns; each has so many texts.
const firstPlace, placeTexts = 6, 4

func parseFacts(r *scripts.Reply, searched bool) (f facts, ok bool) {
	texts := make([]string, len(r.List))
	for i := range r.List {
		texts[i] = r.Str(i)
	}
	if r.Err != nil || len(texts) < firstPlace || (len(texts)-firstPlace)%placeTexts != 0 {
		return facts{}, false
	}
	f = facts{digest: texts[0], id: texts[1], head: texts[2], there: texts[3] != "", noted: texts[4] != "", marked: texts[5] != "", searched: searched}
	f.size, _ = strconv.ParseInt(texts[3], 10, 64)
	if f.marked {
		f.mark = texts[5][1:]
	}
	for t := range slices.Chunk(texts[firstPlace:], placeTexts) {
		switch t[0] {
		case "unique":
			f.scope, f.key, f.holder = t[1], t[2], t[3]
			continue
		case "links":
			f.links = t[1]
			continue
		}
		p := place{kind: t[0]}
		switch t[0] {
		case "ready":
			p.class = t[1]
			p.times, _ = strconv.Atoi(t[2])
		case "awaiting":
			p.waits = t[1]
		case "lined":
			p.class = t[1]
		case "due":
			p.class, p.us = t[1], int64(parseScore(t[2]))
		case "running":
			p.session, p.value, p.registered = t[1], t[2], t[3] == "1"
		case "dead", "cancelled", "completed":
			p.us = int64(parseScore(t[1]))
		case "expires":
			f.expires, f.expiry = int64(parseScore(t[1])), int64(parseScore(t[2]))
			continue
		default:
			return facts{}, false
		}
		f.places = append(f.places, p)
	}
	return f, true
}

// A step is one change of a repair, as steps_of in chapters/repairs.lua has it.
type step struct{ verb, a, b string }

// mend does steps for a job that is as facts say, or for the queue if f is nil. done is false if it isn't so any more: nothing was
// changed then.
func (q *Queue) mend(ctx context.Context, sessions []string, f *facts, steps ...step) (done, again bool, err error) {
	keys := scripts.Mend.Keys(&q.keys)
	for _, session := range sessions {
		keys = append(keys, q.keys.Inflight(session))
	}
	if f == nil {
		f = &facts{}
	}
	args := scripts.Mend.Args(3*len(steps), scripts.Arg("protocol", layout.Protocol), scripts.Arg("inflight", q.keys.Inflight("")),
		scripts.Arg("channels", q.keys.Channel("")), scripts.Arg("search", flag(f.searched)), scripts.Arg("id", f.id), scripts.Arg("digest", f.digest))
	for _, s := range steps {
		args = append(args, s.verb, s.a, s.b)
	}
	r, err := scripts.Mend.Run(ctx, q.rdb, keys, args)
	if err != nil {
		return false, false, err
	}
	if err := r.Status("ok", "again"); err != nil {
		return false, false, err
	}
	if r.Str(0) == "again" {
		return false, true, nil
	}
	done = r.Int(2) > 0
	return done, false, r.Err
}
