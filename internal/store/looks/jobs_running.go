package looks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A runningPager reads what sessions run, in the order of their names: those begin with the time when the session was opened. The deliveries of one
// session are read at once, and sorted by their tokens.
type runningPager struct {
	q        *Looks
	prefix   string
	session  string // that is being read; "": none yet
	token    int64  // the place in it: behind the delivery of this token and ID
	id       string
	left     []facts.Grant // that are still to be returned
	sessions []string
	listed   bool // sessions are those behind session
}

func (q *Looks) running(l Listing, after *cursor) (*runningPager, error) {
	s := &runningPager{q: q, prefix: l.Prefix}
	if after == nil {
		return s, nil
	}
	if len(after.anchors) != 1 {
		return nil, fmt.Errorf("%w cursor: it is none", signalbox.ErrInvalid)
	}
	s.session, s.token, s.id = after.member, after.number, after.anchors[0].id
	return s, nil
}

func (s *runningPager) next(ctx context.Context) (page []View, more bool, err error) {
	if !s.listed {
		if err := s.list(ctx); err != nil {
			return nil, false, err
		}
	}
	for len(s.left) == 0 {
		if len(s.sessions) == 0 {
			return nil, false, nil
		}
		if s.session != s.sessions[0] {
			s.session, s.token, s.id = s.sessions[0], -1, ""
		}
		s.sessions = s.sessions[1:]
		if s.left, err = s.read(ctx); err != nil {
			return nil, false, err
		}
	}
	some := s.left[:min(len(s.left), s.q.Looked)]
	page, n, err := s.views(ctx, some)
	s.left = s.left[n:]
	return page, true, err
}

// list reads which sessions there are, from the place on.
func (s *runningPager) list(ctx context.Context) error {
	all, err := s.q.Client.ZRange(ctx, s.q.Keys.Sessions, 0, -1).Result()
	if err != nil {
		return err
	}
	slices.Sort(all)
	at, _ := slices.BinarySearch(all, s.session)
	s.sessions, s.listed = all[at:], true
	return nil
}

// read returns the deliveries of the session behind the place.
func (s *runningPager) read(ctx context.Context) ([]facts.Grant, error) {
	all, err := s.q.grants(ctx, s.session)
	place := facts.Grant{Token: s.token, ID: s.id}
	return slices.DeleteFunc(all, func(h facts.Grant) bool { return byToken(h, place) <= 0 || !strings.HasPrefix(h.ID, s.prefix) }), err
}

// grants returns what a session's hash has, in the order of the tokens.
func (q *Looks) grants(ctx context.Context, session string) (all []facts.Grant, err error) {
	for next := uint64(0); ; {
		var fields []string
		if fields, next, err = q.Client.HScan(ctx, q.Keys.Inflight(session), next, "", facts.MaxScanned).Result(); err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			all = append(all, facts.Grant{Token: facts.TokenOf(fields[i+1]), ID: fields[i], Value: fields[i+1]})
		}
		if next == 0 {
			break
		}
	}
	slices.SortFunc(all, byToken)
	return slices.CompactFunc(all, func(a, b facts.Grant) bool { return a.ID == b.ID }), nil // a scan may return one twice
}

// views returns those of the deliveries that still run, as far as their records have room in a call, and how many it has asked for.
func (s *runningPager) views(ctx context.Context, some []facts.Grant) (page []View, n int, err error) {
	q := s.q
	args := scripts.Deliveries.Args(len(some), scripts.Arg("room", q.Room))
	for _, h := range some {
		args = append(args, h.ID)
	}
	r, err := scripts.Deliveries.Run(ctx, q.Client, scripts.Deliveries.Keys(&q.Keys, q.Keys.Inflight(s.session)), args)
	if err != nil {
		return nil, 0, err
	}
	if err := r.Status("ok"); err != nil {
		return nil, 0, err
	}
	values, records, notes := r.Array(2), r.Array(3), r.Array(4)
	if r.Err == nil && (len(values) == 0 || len(values) > len(some) || len(records) != len(values) || len(notes) != len(values)) {
		r.Fail(2, fmt.Sprintf("%d jobs, with %d records and %d notes, of %d", len(values), len(records), len(notes), len(some)))
	}
	if r.Err != nil {
		return nil, 0, r.Err
	}
	for i, value := range values {
		value, runs := value.(string)
		if !runs {
			continue
		}
		view := q.view(some[i].ID, signalbox.StateRunning)
		view.runs(s.session, value)
		view.read(records[i])
		if note, ok := notes[i].(string); ok {
			view.Note = noteOf(note)
		}
		view.Cursor = q.cursorText(cursor{
			state: signalbox.StateRunning, member: s.session, number: some[i].Token, anchors: []anchor{{id: some[i].ID}},
		})
		page = append(page, view)
	}
	return page, len(values), nil
}

// byToken compares grants in the order of their tokens.
func byToken(g, o facts.Grant) int {
	return cmp.Or(cmp.Compare(g.Token, o.Token), strings.Compare(g.ID, o.ID))
}
