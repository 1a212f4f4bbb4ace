package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A heldPager reads what sessions run, in the order of their names: those begin with the time when the session was opened. The deliveries of one
// session are read at once, and sorted by their tokens.
type heldPager struct {
	q        *Queue
	prefix   string
	session  string // that is being read; "": none yet
	token    int64  // the place in it: behind the delivery of this token and ID
	id       string
	held     []held // that are still to be returned
	sessions []string
	listed   bool // sessions are those behind session
}

// held is what a session holds of a job: value begins with the token.
type held struct {
	token     int64
	id, value string
}

func (h held) compare(o held) int {
	return cmp.Or(cmp.Compare(h.token, o.token), strings.Compare(h.id, o.id))
}

func (q *Queue) running(l Listing, after *cursor) (*heldPager, error) {
	s := &heldPager{q: q, prefix: l.Prefix}
	if after == nil {
		return s, nil
	}
	if len(after.anchors) != 1 {
		return nil, fmt.Errorf("%w cursor: it is none", signalbox.ErrInvalid)
	}
	s.session, s.token, s.id = after.member, after.number, after.anchors[0].id
	return s, nil
}

func (s *heldPager) next(ctx context.Context) (page []View, more bool, err error) {
	if !s.listed {
		if err := s.list(ctx); err != nil {
			return nil, false, err
		}
	}
	for len(s.held) == 0 {
		if len(s.sessions) == 0 {
			return nil, false, nil
		}
		if s.session != s.sessions[0] {
			s.session, s.token, s.id = s.sessions[0], -1, ""
		}
		s.sessions = s.sessions[1:]
		if s.held, err = s.read(ctx); err != nil {
			return nil, false, err
		}
	}
	some := s.held[:min(len(s.held), s.q.looked)]
	page, n, err := s.views(ctx, some)
	s.held = s.held[n:]
	return page, true, err
}

// list reads which sessions there are, from the place on.
func (s *heldPager) list(ctx context.Context) error {
	all, err := s.q.rdb.ZRange(ctx, s.q.keys.Sessions, 0, -1).Result()
	if err != nil {
		return err
	}
	slices.Sort(all)
	at, _ := slices.BinarySearch(all, s.session)
	s.sessions, s.listed = all[at:], true
	return nil
}

// read returns the deliveries of the session behind the place.
func (s *heldPager) read(ctx context.Context) ([]held, error) {
	all, err := s.q.held(ctx, s.session)
	place := held{token: s.token, id: s.id}
	return slices.DeleteFunc(all, func(h held) bool { return h.compare(place) <= 0 || !strings.HasPrefix(h.id, s.prefix) }), err
}

// held returns what a session holds, in the order of the tokens.
func (q *Queue) held(ctx context.Context, session string) (all []held, err error) {
	for next := uint64(0); ; {
		var fields []string
		if fields, next, err = q.rdb.HScan(ctx, q.keys.Inflight(session), next, "", maxScanned).Result(); err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			all = append(all, held{token: tokenOf(fields[i+1]), id: fields[i], value: fields[i+1]})
		}
		if next == 0 {
			break
		}
	}
	slices.SortFunc(all, held.compare)
	return slices.CompactFunc(all, func(a, b held) bool { return a.id == b.id }), nil // a scan may return one twice
}

// maxScanned is about how many deliveries a call returns.
const maxScanned = 1000

// views returns those of the deliveries that still run, as far as their records have room in a call, and how many it has asked for.
func (s *heldPager) views(ctx context.Context, some []held) (page []View, n int, err error) {
	q := s.q
	args := scripts.Held.Args(len(some), scripts.Arg("room", q.room))
	for _, h := range some {
		args = append(args, h.id)
	}
	r, err := scripts.Held.Run(ctx, q.rdb, scripts.Held.Keys(&q.keys, q.keys.Inflight(s.session)), args)
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
		view := q.view(some[i].id, signalbox.StateRunning)
		view.runs(s.session, value)
		view.read(records[i])
		if note, ok := notes[i].(string); ok {
			view.Note = noteOf(note)
		}
		view.Cursor = q.cursorText(cursor{
			state: signalbox.StateRunning, member: s.session, number: some[i].token, anchors: []anchor{{id: some[i].id}},
		})
		page = append(page, view)
	}
	return page, len(values), nil
}
