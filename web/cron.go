package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

const (
	cronBack   = 9 * time.Hour // of the picture
	cronAhead  = 15 * time.Hour
	cronTicks  = 40          // of an entry in the picture; above that it is a band
	cronGrace  = time.Minute // after a tick that had no job
	cronNext   = 3           // ticks in the table
	cronRows   = 200         // entries on the page
	cronLabels = 3 * time.Hour
)

// A cronPage has the cron entries.
type cronPage struct {
	Sub     string
	Axis    template.HTML
	Entries []cronRow
	Left    int // entries that are left out
	Command string
	Limited bool
	Acts    bool // some have levers
}

// A cronRow is a cron entry.
type cronRow struct {
	Name, Queue, To, Kind string
	Arm, State            string
	Wrong                 bool
	Spec, Zone            string
	Missed, Overlap       string
	Last, Next            template.HTML
	Later                 []template.HTML // the ticks after Next
	Chart                 template.HTML
	Err                   string
	Levers                []lever
}

func (v *visit) cron() (answer, error) {
	p := &cronPage{Command: shellWords("signalbox", "cron", "ls"), Limited: !v.scope.All}
	entries := slices.Clone(v.state.entries)
	slices.SortStableFunc(entries, func(a, b inspect.Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Queue, b.Queue))
	})
	var paused, gone int64
	for i := range entries {
		e := &entries[i]
		if e.Paused {
			paused++
		}
		if e.Gone {
			gone++
		}
		if len(p.Entries) < cronRows {
			row := v.cronRow(e)
			fits := []What{Run, Pause}
			if e.Paused {
				fits[1] = Resume
			}
			if e.Gone {
				fits = append(fits, Forget)
			}
			row.Levers = v.levers(Action{Queue: e.Queue, Entry: e.Name}, fits...)
			p.Acts = p.Acts || len(row.Levers) > 0
			p.Entries = append(p.Entries, row)
		}
	}
	p.Left = len(entries) - len(p.Entries)
	p.Sub = counted(int64(len(entries)), "entry")
	if len(entries) != 1 {
		p.Sub = commas(int64(len(entries))) + " entries"
	}
	p.Sub += fmt.Sprintf("; paused: %s; no scheduler has: %s.", commas(paused), commas(gone))
	p.Axis = cronAxis(v.state.at)
	return answer{name: "cron", title: "Cron", cur: "Cron", body: p, sheet: func() *sheet {
		l := &sheet{name: "cron", columns: []string{"queue", "entry", "kind", "spec", "zone", "missed", "overlap", "last", "next", "paused_since", "seen", "gone"}}
		for _, e := range entries[:len(p.Entries)] {
			l.add(e.Queue, e.Name, e.Kind, e.Spec, e.Zone, e.Missed, e.Overlap, e.Last, e.Next, e.PausedSince, e.Seen, e.Gone)
		}
		return l
	}}, nil
}

// cronRow returns an entry as a row.
func (v *visit) cronRow(e *inspect.Entry) cronRow {
	now := v.state.at
	r := cronRow{
		Name: e.Name, Queue: e.Queue, To: link("queue", "name", e.Queue), Kind: cmp.Or(e.Kind, "kind not known"), Arm: "clear", State: "ticks",
		Spec: cmp.Or(e.Spec, "not known"), Zone: e.Zone, Missed: cmp.Or(e.Missed, "not known"), Overlap: cmp.Or(e.Overlap, "beside"), Last: "none", Next: "none",
	}
	if !e.Last.IsZero() {
		r.Last = ago(now, e.Last)
	}
	if !e.Next.IsZero() {
		r.Next = ago(now, e.Next)
		for at := range e.Ticks(e.Next) {
			if len(r.Later) == cronNext-1 {
				break
			}
			layout := "01-02 15:04"
			if at.Sub(e.Next) < time.Minute {
				layout = "15:04:05"
			}
			r.Later = append(r.Later, stamped(at, at.UTC().Format(layout)))
		}
	}
	missed := missedTick(e, now)
	q, known := v.state.of(e.Queue)
	switch {
	case e.Err != nil:
		r.Arm, r.State, r.Wrong = "caution", "can't be read", true
		if r.Err = "Its description can't be read."; v.scope.All {
			r.Err = clean(e.Err.Error(), 500)
		}
	case e.Gone:
		r.Arm, r.State = "idle", "no scheduler for "+span(max(0, now.Sub(e.Seen)))
		if now.Sub(e.Seen) < entryForgets && !e.Paused {
			r.Arm, r.Wrong = "caution", true
		}
	case e.Paused:
		r.Arm, r.State = "idle", "paused since "+e.PausedSince.UTC().Format("01-02 15:04")
	case known && q.Paused:
		r.Arm, r.State, r.Wrong = "caution", "its queue is paused", true
	case !missed.IsZero():
		r.Arm, r.State, r.Wrong = "caution", "no job at "+missed.UTC().Format("01-02 15:04"), true
	case e.Next.IsZero():
		r.Arm, r.State = "idle", "has ended"
	}
	r.Chart = cronChart(e, now)
	return r
}

// missedTick returns the first tick after the last one that had a job, if it is over; else zero. Of an entry that never ticked, or is paused, none is known.
func missedTick(e *inspect.Entry, now time.Time) time.Time {
	if e.Last.IsZero() || e.Paused {
		return time.Time{}
	}
	for at := range e.Ticks(e.Last) {
		if now.Sub(at) > cronGrace {
			return at
		}
		break
	}
	return time.Time{}
}

// cronX returns the place of a time in the picture, in per cent.
func cronX(now, t time.Time) float64 {
	return min(100, max(0, 100*float64(t.Sub(now)+cronBack)/float64(cronBack+cronAhead)))
}

// cronAxis draws the times above the picture.
func cronAxis(now time.Time) template.HTML {
	var d drawing
	d.add(`<svg aria-hidden="true">`)
	for n, t := 0, now.Add(-cronBack).Truncate(cronLabels).Add(cronLabels); t.Before(now.Add(cronAhead)); n, t = n+1, t.Add(cronLabels) {
		class := "f m"
		if n%2 == 1 {
			class = "f m opt"
		}
		if x := cronX(now, t); x > 2 && x < 97 {
			d.add(`<text class="%v" x="%v%%" y="12">%v</text>`, class, x, t.UTC().Format("15:04"))
		}
	}
	d.add(`<text class="b m" x="%v%%" y="24">now</text></svg>`, cronX(now, now))
	return d.html()
}

// cronChart draws the ticks of an entry. Redis has the last one only: of those before it, it is not known whether they had a job.
func cronChart(e *inspect.Entry, now time.Time) template.HTML {
	begin, end := now.Add(-cronBack), now.Add(cronAhead)
	var ticks []time.Time
	for at := range e.Ticks(begin) {
		if at.After(end) || len(ticks) > cronTicks {
			break
		}
		ticks = append(ticks, at)
	}
	fires := !e.Paused && !e.Gone
	says := clean(e.Name, 100)
	if e.Last.IsZero() {
		says += ": no tick yet"
	} else {
		says += ": last tick " + e.Last.UTC().Format("01-02 15:04")
	}
	switch {
	case e.Next.IsZero():
		says += "; no next tick"
	case fires:
		says += "; next " + e.Next.UTC().Format("01-02 15:04")
	default:
		says += "; no next tick that fires"
	}
	var d drawing
	d.add(`<svg role="img" aria-label="%v UTC"><line class="r-lane" x1="0" x2="100%%" y1="14" y2="14"/>`, says)
	if e.Paused {
		x := cronX(now, e.PausedSince)
		d.add(`<rect class="c-off" x="%v%%" width="%v%%" y="8" height="12"/>`, x, 100-x)
	}
	switch {
	case len(ticks) > cronTicks:
		if fires {
			d.add(`<rect class="c-band next" x="%v%%" width="%v%%" y="10" height="8"/>`, cronX(now, now), 100-cronX(now, now))
		}
	default:
		missed := missedTick(e, now)
		for _, at := range ticks {
			x := cronX(now, at)
			switch {
			case at.Equal(e.Last): // drawn below
			case at.After(now) && fires:
				d.add(`<circle class="c-next" cx="%v%%" cy="14" r="4.5"/>`, x)
			case at.After(now):
				d.add(`<circle class="c-none" cx="%v%%" cy="14" r="4.5"/>`, x)
			case !missed.IsZero() && !at.Before(missed) && now.Sub(at) > cronGrace:
				d.add(`<rect class="c-miss" x="%v%%" y="5" width="9" height="18" rx="1.5" transform="translate(-4 0)"/>`, x)
			default:
				d.add(`<rect class="c-none" x="%v%%" y="7" width="4" height="14" transform="translate(-2 0)"/>`, x)
			}
		}
		if !e.Next.IsZero() && e.Next.After(end) {
			d.add(`<text class="e" x="100%%" dx="-4" y="18">%v →</text>`, e.Next.UTC().Format("01-02 15:04"))
		}
	}
	if e.Last.After(begin) {
		d.add(`<rect class="c-done" x="%v%%" y="6" width="4" height="16" rx="1" transform="translate(-2 0)"/>`, cronX(now, e.Last))
	}
	d.add(`<line class="nowline" x1="%v%%" x2="%v%%" y1="0" y2="28"/></svg>`, cronX(now, now), cronX(now, now))
	return d.html()
}

// When returns the spec of the entry with its zone.
func (r cronRow) When() string { return clean(strings.TrimSpace(r.Spec+" "+r.Zone), 300) }
