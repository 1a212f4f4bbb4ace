package looks

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A Listing says which jobs Jobs returns.
type Listing struct {
	State  signalbox.State
	Prefix string // of the IDs
	// Bounds of View.At, both inclusive, for jobs that are scheduled or have ended. Zero: none.
	From, To time.Time
	After    string // the Cursor of a View
}

// MaxLooked is how many IDs a call looks at.
const MaxLooked = 250

// A pager reads the jobs of a state, a page at a time.
type pager interface {
	// next returns the jobs of the next page that are wanted, and whether there may be more pages.
	next(ctx context.Context) (page []View, more bool, err error)
}

// Jobs yields the queue's jobs of a state: oldest first, but ready ones class by class and running ones session by session. Jobs that have ended
// and whose records say how long they are kept come before the others, in the order in which they are dropped. It reads
// them in calls of bounded size, while they move. One that stays in its place is yielded. One that moves may be missing, or be there twice.
// What it needs of memory doesn't grow with the number of jobs, but for those that one session runs. An error is the last that it yields.
func (q *Looks) Jobs(ctx context.Context, l Listing) iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		pages, err := q.pager(l)
		for more := err == nil; more; {
			var page []View
			page, more, err = pages.next(ctx)
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if err == nil {
				err = ctx.Err() // a client may not look
			}
			more = more && err == nil
		}
		if err != nil {
			yield(View{}, err)
		}
	}
}

// pager returns the pages of a listing.
func (q *Looks) pager(l Listing) (pager, error) {
	var after *cursor
	if l.After != "" {
		c, err := q.parseCursor(l.After, l.State)
		if err != nil {
			return nil, err
		}
		after = &c
	}
	switch l.State {
	case signalbox.StateScheduled, signalbox.StateAwaiting, signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted:
		return q.sorted(l, after), nil
	case signalbox.StateReady:
		return q.waiting(l, after)
	case signalbox.StateRunning:
		return q.running(l, after)
	}
	return nil, fmt.Errorf("%w state %.200q: jobs are scheduled, awaiting, ready, running, dead, cancelled or completed", signalbox.ErrInvalid, l.State)
}

// view returns what is known of a job by its place.
func (q *Looks) view(id string, state signalbox.State) View {
	return View{Job: signalbox.Job{ID: id, Queue: q.Name, Namespace: q.Namespace}, State: state}
}

// A sortedPager reads a sorted set: jobs that are scheduled or have ended, or ready ones in the lines of groups.
type sortedPager struct {
	q      *Looks
	state  signalbox.State
	prefix string
	score  float64 // the place: behind the member of that score
	member string
	from   float64
	to     float64
}

func (q *Looks) sorted(l Listing, after *cursor) *sortedPager {
	s := &sortedPager{q: q, state: l.State, prefix: l.Prefix, score: math.Inf(-1), from: math.Inf(-1), to: math.Inf(1)}
	if after != nil {
		s.score, s.member = after.score, after.member
	}
	if !l.From.IsZero() {
		s.from = float64(l.From.UnixMicro())
	}
	if s.state.Live() {
		s.skip()
	}
	if !l.To.IsZero() {
		s.to = float64(l.To.UnixMicro())
	}
	return s
}

// skip goes on to the first score that is wanted.
func (s *sortedPager) skip() {
	if s.from > s.score {
		s.score, s.member = s.from, ""
	}
}

func (s *sortedPager) next(ctx context.Context) (page []View, more bool, err error) {
	q := s.q
	r, err := scripts.Page.Run(ctx, q.Client, scripts.Page.Keys(&q.Keys), scripts.Page.Args(0,
		scripts.Arg("state", string(s.state)), scripts.Arg("score", scoreText(s.score)), scripts.Arg("member", s.member), scripts.Arg("count", q.Looked),
		scripts.Arg("room", q.Room), scripts.Arg("prefix", s.prefix)))
	if err != nil {
		return nil, false, err
	}
	looked, elements, ids, records, err := parsePage(r)
	if err != nil {
		return nil, false, err
	}
	n := 0 // records that were passed
	for i := range looked {
		member, score := elements[2*i], facts.ParseScore(elements[2*i+1])
		_, own := dropTime(score)
		own = own && !s.state.Live() // then it isn't the time when the job ended
		switch {
		case score > s.to && !own:
			return page, false, nil
		case score < s.from && !own && s.score < s.from:
			s.skip()
			return page, true, nil
		}
		s.score, s.member = score, member
		id := member
		switch {
		case s.state == signalbox.StateScheduled && id != "":
			id = id[1:] // without the class
		case s.state == signalbox.StateAwaiting:
			id = awaitingID(member)
		case s.state == signalbox.StateReady:
			if _, _, waiting, ok := facts.ParseLine(member); ok {
				id = waiting
			}
		}
		if n < len(ids) && ids[n] == id {
			view := q.view(id, s.state)
			c := cursor{state: s.state, score: score, member: member}
			if s.state == signalbox.StateAwaiting {
				view.read(records[n])
			} else if s.state == signalbox.StateReady {
				view.read(records[n])
				c.member, view.Lined = inLine+member, true
			} else {
				view.placed(elements[2*i+1], records[n])
			}
			view.Cursor = q.cursorText(c)
			if at := float64(view.At.UnixMicro()); view.Record != "" && s.state == signalbox.StateAwaiting || s.state != signalbox.StateAwaiting && (!own || s.from <= at && at <= s.to) {
				page = append(page, view)
			}
			n++
		}
	}
	return page, looked > 0, nil
}

// awaitingID returns the ID of a job that waits for a flow, of its member in the sorted set. One that was cancelled since its flow failed has the member for it: no job has that.
func awaitingID(member string) string {
	_, id, _ := strings.Cut(member, "{")
	if id == "" || member[0] == 'c' {
		return member
	}
	return id
}

func parsePage(r *scripts.Reply) (looked int, elements, ids []string, records []any, err error) {
	if err := r.Status("ok"); err != nil {
		return 0, nil, nil, nil, err
	}
	looked, elements, ids, records = int(r.Int(2)), r.Strs(3), r.Strs(4), r.Array(5)
	if r.Err == nil && (looked < 0 || len(elements) < 2*looked || len(ids) > looked || len(records) != len(ids)) {
		r.Fail(2, fmt.Sprintf("%d, with %d elements, %d jobs and %d records", looked, len(elements), len(ids), len(records)))
	}
	return looked, elements, ids, records, r.Err
}
