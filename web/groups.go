package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

const (
	mostGroups = 50  // of a queue
	mostPlaces = 100 // that are drawn
	mostTints  = 5   // groups with a colour of their own
)

// A groupsPage has the groups and the limits of a queue, or without a queue the limits of all of them.
type groupsPage struct {
	Queue, To string
	Queues    []limitRow // without a queue
	Limited   bool
	Sub       string
	Places    []place
	Shares    []groupShare
	Groups    []groupRow
	More      bool
	Acts      bool // some have levers
	Facts     []fact
	Command   string
}

// A limitRow is a queue in the list of limits.
type limitRow struct {
	Name, To                       string
	Limits, Each                   string
	Paused, Held, Blocked, Running int64
}

// A place is one of the jobs that a queue may run at a time.
type place struct{ Class, Letter, Who string }

// A groupShare is how much of something each group has.
type groupShare struct {
	Of    string
	Chart template.HTML
}

// A groupRow is a group of jobs.
type groupRow struct {
	Key, To, Class, Letter string
	Serial                 bool
	Running, Waiting       int64
	Most                   int64 // that may run; 0: any number
	Limit                  string
	Why                    template.HTML
	Stopped                bool // Why is something that somebody did
	Levers                 []lever
}

// What one look at the groups of a queue has found.
type groupsLook struct {
	groups []inspect.Group
	more   bool
	holds  []inspect.Hold
	own    map[string]signalbox.Limits
}

func (v *visit) groups() (answer, error) {
	own := v.URL.Query().Get("queue")
	p := &groupsPage{Queue: own, Limited: !v.scope.All}
	a := answer{name: "groups", title: "Groups and limits", cur: "Groups", queue: own, body: p}
	if own == "" {
		for i := range v.state.queues {
			q := &v.state.queues[i]
			p.Queues = append(p.Queues, limitRow{
				Name: q.Name, To: link("groups", "queue", q.Name), Limits: limitText(q.Limits), Each: limitText(q.GroupLimits), Paused: q.PausedGroups, Held: q.HeldGroups, Blocked: q.Blocked, Running: q.Running,
			})
		}
		p.Command = shellWords("signalbox", "queue", "ls")
		return a, nil
	}
	q, ok := v.state.of(own)
	if !ok {
		return answer{}, inspect.ErrNoQueue
	}
	look, err := read(v.Context(), v.looks, "groups\x00"+own, lookTTL, func(ctx context.Context) (*groupsLook, error) {
		groups, more, err := v.ins.Groups(ctx, own, mostGroups)
		holds, errHolds := v.ins.Holds(ctx, own)
		limits, errLimits := v.ins.LimitsOf(ctx, own)
		return &groupsLook{groups, more, holds, limits}, errors.Join(err, errHolds, errLimits)
	})
	if err != nil {
		return answer{}, err
	}
	p.To, p.More, p.Command = link("queue", "name", own), look.more, shellWords("signalbox", "queue", "groups", own)
	p.Sub = counted(int64(len(look.groups)), "group") + " in use"
	if look.more {
		p.Sub = fmt.Sprintf("The %d largest groups; there are more", len(look.groups))
	}
	if q.State() == "limited" {
		p.Sub += ". The queue is at its limit: jobs wait though slots may be free"
	}
	p.Sub += "."
	for i := range look.groups {
		g := &look.groups[i]
		row := groupRowOf(g, &q, i, v.now())
		row.Levers = v.holdLevers(Action{Queue: own, Group: g.Key}, g.Paused, g.HeldUntil)
		row.Levers = append(row.Levers, v.levers(Action{Queue: own, Group: g.Key}, Set)...)
		p.Acts = p.Acts || len(row.Levers) > 0
		p.Groups = append(p.Groups, row)
	}
	a.sheet = func() *sheet {
		l := &sheet{name: "groups", columns: []string{"queue", "group", "serial", "running", "waiting", "paused_since", "held_until", "limit_running", "rate_jobs", "rate_seconds"}}
		for _, g := range look.groups {
			l.add(own, g.Key, g.Serial, g.Running, g.Waiting, g.PausedSince, g.HeldUntil, max(0, g.Limits.Running), max(0, g.Limits.Rate.Jobs), g.Limits.Rate.Per)
		}
		return l
	}
	p.places(&q)
	p.facts(&q, look, v.now())
	return a, nil
}

// groupRowOf returns a group as a row.
func groupRowOf(g *inspect.Group, q *inspect.Queue, n int, now time.Time) groupRow {
	r := groupRow{Key: g.Key, Serial: g.Serial, To: link("jobs", "queue", q.Name, "state", "ready", "group", g.Key), Running: g.Running, Waiting: g.Waiting, Most: int64(max(0, g.Limits.Running)), Limit: limitText(g.Limits), Class: "k0"}
	if n < mostTints {
		r.Class = fmt.Sprintf("k%d", n+1)
	}
	r.Letter = "?"
	if text := clean(g.Key, 1); text != "" {
		r.Letter = strings.TrimSuffix(text, "…")
	}
	if g.Serial {
		r.Most, r.Limit = 1, "one at a time, in order"
		if g.Limits.Rate.Jobs > 0 {
			r.Limit += "; " + limitText(signalbox.Limits{Rate: g.Limits.Rate})
		}
	}
	switch {
	case g.Paused:
		r.Why, r.Stopped = "the group is paused, for "+lasting(now, g.PausedSince), true
	case g.HeldUntil.After(now):
		r.Why, r.Stopped = "the group is held back until "+moment(g.HeldUntil), true
	case g.Waiting == 0:
		r.Why = "none waits"
	case q.Paused:
		r.Why, r.Stopped = "the queue is paused", true
	case len(q.Workers) == 0:
		r.Why, r.Stopped = "no worker has the queue", true
	case r.Most > 0 && g.Running >= r.Most:
		r.Why = template.HTML("for its limit of " + commas(r.Most))
	case q.State() == "limited":
		r.Why = "for the limit of the queue"
	default:
		r.Why = "for its turn, its rate or a slot"
	}
	return r
}

// places draws who holds the places of the queue, and how much of what runs and waits each of the groups has.
func (p *groupsPage) places(q *inspect.Queue) {
	most := q.Limits.Running
	if most > 0 && most <= mostPlaces {
		for i := range p.Groups {
			g := &p.Groups[i]
			for range g.Running {
				p.Places = append(p.Places, place{g.Class, g.Letter, clean(g.Key, 100)})
			}
		}
		for len(p.Places) < int(q.Running) {
			p.Places = append(p.Places, place{"k0", "+", "others"})
		}
		for len(p.Places) < most {
			p.Places = append(p.Places, place{"free", "", "free"})
		}
		p.Places = p.Places[:min(len(p.Places), 2*mostPlaces)]
	}
	for _, of := range []struct {
		text  string
		count func(*groupRow) int64
	}{
		{"that run", func(g *groupRow) int64 { return g.Running }}, {"that wait", func(g *groupRow) int64 { return g.Waiting }},
	} {
		var whole int64
		for i := range p.Groups {
			whole += of.count(&p.Groups[i])
		}
		if whole == 0 {
			continue
		}
		var d, bars drawing
		var says []string
		at := 0.
		for i := range p.Groups {
			g := &p.Groups[i]
			part := 100 * float64(of.count(g)) / float64(whole)
			if part == 0 {
				continue
			}
			if i < mostTints {
				says = append(says, fmt.Sprintf("%s %.0f %%", clean(g.Key, 40), part))
			}
			bars.add(`<rect class="%v" x="%v%%" width="%v%%" height="26"/>`, g.Class, at, max(.2, part-.25))
			if part > 12 && i < mostTints {
				bars.add(`<text class="on" x="%v%%" dx="8" y="17">%v</text>`, at, clean(g.Key, 12))
			}
			at += part
		}
		d.add(`<svg class="share" role="img" aria-label="%v">`, "Of the jobs of these groups "+of.text+": "+strings.Join(says, ", "))
		d.WriteString(bars.String())
		d.add(`</svg>`)
		p.Shares = append(p.Shares, groupShare{"of the " + commas(whole) + " of these groups " + of.text, d.html()})
	}
}

// facts fills in the limits of the queue, and of what is held back.
func (p *groupsPage) facts(q *inspect.Queue, look *groupsLook, now time.Time) {
	p.Facts = []fact{{Name: "The queue", Value: limitText(q.Limits)}, {Name: "Each group", Value: limitText(q.GroupLimits)}}
	keys := make([]string, 0, len(look.own))
	for key := range look.own {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i == mostGroups {
			p.Facts = append(p.Facts, fact{Name: "More groups", Value: commas(int64(len(keys)-mostGroups)) + " have limits of their own"})
			break
		}
		p.Facts = append(p.Facts, fact{Name: "Group " + clean(key, 60), Value: ownLimits(look.own[key])})
	}
	for i, h := range look.holds {
		if i == mostGroups {
			break
		}
		f := fact{Name: "Held back", Value: template.HTML("the queue until ") + moment(h.Until), Class: "warn"}
		if h.Group != "" {
			f.Value = name(h.Group) + template.HTML(" until ") + moment(h.Until)
			if h.Serial {
				f.Name += ", serial"
			}
		}
		if h.Job != "" {
			f.To = link("job", "queue", q.Name, "id", h.Job)
		}
		p.Facts = append(p.Facts, f)
	}
	if q.PausedGroups > 0 {
		p.Facts = append(p.Facts, fact{Name: "Paused groups", Value: commas(q.PausedGroups), Class: "warn"})
	}
	length := fact{Name: "Maximum length", Value: "none"}
	if q.MaxLength > 0 {
		length.Value = fmt.Sprintf("%s, and it has %s", counted(int64(q.MaxLength), "job"), commas(q.Length()))
	}
	p.Facts = append(p.Facts, length, fact{Name: "Since when one floods", Value: "not known"})
}

// ownLimits writes the limits of one group: what it doesn't say is as for all groups.
func ownLimits(l signalbox.Limits) string {
	var parts []string
	switch {
	case l.Running < 0:
		parts = append(parts, "any number at a time")
	case l.Running > 0:
		parts = append(parts, limitText(signalbox.Limits{Running: l.Running}))
	}
	switch {
	case l.Rate.Jobs < 0:
		parts = append(parts, "any rate")
	case l.Rate.Jobs > 0:
		parts = append(parts, limitText(signalbox.Limits{Rate: l.Rate}))
	}
	return cmp.Or(strings.Join(parts, "; "), "as all groups")
}
