package looks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// inLine is before the member of a job in the line of its group, in a cursor.
const inLine = "line "

// A readyPager reads the ready lists, then the lines of groups.
type readyPager struct {
	lists *listPager // nil when they have been read
	lines *sortedPager
}

func (s *readyPager) next(ctx context.Context) (page []View, more bool, err error) {
	if s.lists == nil {
		return s.lines.next(ctx)
	}
	page, more, err = s.lists.next(ctx)
	if err == nil && !more {
		s.lists = nil
	}
	return page, true, err
}

const (
	// backBy is how far before its place a page begins to look for an anchor; searchBy is how much of a list each call looks at
	// to find one that is further away.
	backBy   = 200
	searchBy = 2000
	// maxNear and maxFar bound the anchors that a call begins with: of the last page, and of pages before.
	maxNear, maxFar = 10, 8
)

// A listPager reads the ready lists, one after the other. Between two calls jobs leave a list at its head, and sometimes elsewhere. So the
// place of the next page is not a number: it is behind the last job that was seen and is still there. If none of the anchors is there, the
// last page has left the list, and so has all before it.
type listPager struct {
	q       *Looks
	prefix  string
	classes []string // the first is that of the list that is being read
	at      int      // how many jobs stood before the place
	near    []anchor // the last page, the nearest first
	far     []anchor // of pages before, the nearest first; the first was still in the list when the last page was read
}

func (q *Looks) waiting(l Listing, after *cursor) (*readyPager, error) {
	all := &readyPager{lines: q.sorted(Listing{State: l.State, Prefix: l.Prefix}, nil)}
	s := &listPager{q: q, prefix: l.Prefix, classes: facts.ReadyClasses}
	if after == nil {
		all.lists = s
		return all, nil
	}
	if member, ok := strings.CutPrefix(after.member, inLine); ok {
		all.lines.score, all.lines.member = 0, member
		return all, nil
	}
	i := slices.Index(facts.ReadyClasses, after.member)
	if i < 0 || after.number < 0 || after.number > 1<<40 {
		return nil, fmt.Errorf("%w cursor: it is none", signalbox.ErrInvalid)
	}
	s.classes, s.at, s.near = facts.ReadyClasses[i:], int(after.number), after.anchors
	all.lists = s
	return all, nil
}

func (s *listPager) next(ctx context.Context) (page []View, more bool, err error) {
	few := min(len(s.near), maxNear)
	anchors := slices.Concat(s.near[:few], s.far)
	first, last := 0, s.q.Looked-1
	if len(anchors) > 0 {
		first, last = max(s.at-backBy, 0), s.at+s.q.Looked-1
	}
	for {
		p, err := s.read(ctx, first, last, anchors)
		switch {
		case err != nil:
			return nil, false, err
		case p.from == 0 && few < len(s.near): // the reader may take out what it has seen: others of the page may be left
			few = len(s.near)
			anchors = slices.Concat(s.near, s.far)
		case p.from == 0 && first > 0: // not here: it has moved towards the head
			first, last = max(first-searchBy, 0), first+backBy
		case p.looked > 0:
			s.keep(&p, anchors, few)
			return s.views(&p, first), true, nil
		case p.from > 0 && p.length > last-first: // the part ends with the anchor
			first, last = first+p.from-1, first+p.from-1+s.q.Looked
		default: // the end of the list
			s.classes, s.at, s.near, s.far = s.classes[1:], 0, nil, nil
			return nil, len(s.classes) > 0, nil
		}
	}
}

// keep forgets the anchors that have left the list, of those that a call had: few of the last page, then the far ones. So one that
// is left stays the nearest, however much is taken out behind it.
func (s *listPager) keep(p *part, anchors []anchor, few int) {
	switch {
	case p.anchor < 0:
		s.far = nil
	case p.anchor < few:
		s.far = thin(slices.Concat(anchors[p.anchor:p.anchor+1], s.far))
	default:
		s.far = s.far[p.anchor-few:]
	}
}

// A part is a part of a list, as list.lua returns it.
type part struct {
	length, from, looked int
	anchor               int // which of the call's; -1: none
	last                 anchor
	ids                  []string
	records              []any
}

func (s *listPager) read(ctx context.Context, first, last int, anchors []anchor) (part, error) {
	args := scripts.List.Args(2*len(anchors), scripts.Arg("class", s.classes[0]), scripts.Arg("first", first), scripts.Arg("last", last),
		scripts.Arg("room", s.q.Room), scripts.Arg("prefix", s.prefix))
	for _, a := range anchors {
		args = append(args, a.id, a.stamp)
	}
	r, err := scripts.List.Run(ctx, s.q.Client, scripts.List.Keys(&s.q.Keys), args)
	if err != nil {
		return part{}, err
	}
	if err := r.Status("ok"); err != nil {
		return part{}, err
	}
	p := part{
		length: int(r.Int(2)), from: int(r.Int(3)), anchor: int(r.Int(4)) - 1, looked: int(r.Int(5)), last: anchor{r.Str(6), r.Str(7)},
		ids: r.Strs(8), records: r.Array(9),
	}
	if r.Err == nil && (p.from < 0 || p.anchor >= len(anchors) || (p.anchor < 0) != (p.from == 0) || p.looked < 0 || p.length < p.from+p.looked || len(p.ids) > p.looked || len(p.records) != len(p.ids)) {
		r.Fail(2, fmt.Sprintf("%d, with %d looked at behind %d, %d jobs and %d records", p.length, p.looked, p.from, len(p.ids), len(p.records)))
	}
	return p, r.Err
}

// views returns the jobs of a part that begins at first, and makes them the last page.
func (s *listPager) views(p *part, first int) []View {
	page, seen := make([]View, len(p.ids)), make([]anchor, len(p.ids))
	for i, id := range p.ids {
		view := s.q.view(id, signalbox.StateReady)
		view.read(p.records[i])
		seen[i] = anchor{id, stampOf(p.records[i])}
		// Its true place is not before: jobs that aren't wanted stand between.
		view.Cursor = s.q.cursorText(cursor{
			state: signalbox.StateReady, member: s.classes[0], number: int64(first + p.from + i + 1),
			anchors: append(nearest(seen[:i+1]), s.far[:min(len(s.far), 2)]...),
		})
		page[i] = view
	}
	s.at = first + p.from + p.looked
	slices.Reverse(seen)
	s.near = append([]anchor{p.last}, seen...)
	return page
}

// nearest returns anchors of a page: the last job, and some before it, at distances that double.
func nearest(seen []anchor) (anchors []anchor) {
	for back := 1; back <= len(seen) && len(anchors) < maxNear; back *= 2 {
		anchors = append(anchors, seen[len(seen)-back])
	}
	return anchors
}

// thin drops one of the anchors if there are too many: the nearest ones and the furthest ones are kept.
func thin(far []anchor) []anchor {
	if len(far) > maxFar {
		return slices.Delete(far, maxFar/2, maxFar/2+1)
	}
	return far
}

// stampOf is the stamp of a job with that record, as list.lua makes it.
func stampOf(record any) string {
	text, _ := record.(string)
	if len(text) < 4 {
		return ""
	}
	return text[4:min(len(text), 20)]
}
