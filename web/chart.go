package web

import (
	"fmt"
	"html/template"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// Charts are SVG. The outer svg has no viewBox, so x is in per cent and y in pixels: text is never stretched, and nothing needs a script or a style.
// Paths lie in an inner svg that is stretched, with strokes that aren't. A heat map has one path for each level.

// A drawing is the text of an SVG.
type drawing struct{ strings.Builder }

// add adds markup. Each argument that is a string is escaped.
func (d *drawing) add(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = escape(a)
		case float64:
			args[i] = coordinate(a)
		}
	}
	fmt.Fprintf(d, format, args...)
}

// html returns the drawing. What add was given as text is escaped.
func (d *drawing) html() template.HTML { return template.HTML(d.String()) } //nolint:gosec // see add

// raw is markup that is escaped already.
type raw string

// coordinate writes a number with at most two decimals.
func coordinate(v float64) raw {
	return raw(strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64))
}

// wagons returns how many wagons stand for n jobs: one more for each doubling.
func wagons(n int64, most int) int {
	if n <= 0 {
		return 0
	}
	return min(most, bits.Len64(uint64(n)))
}

// track draws a queue as a line of track: scheduled jobs in a siding above, ready ones as wagons before the signal, running ones in the slots behind it, dead
// ones in a siding with a buffer stop. How many slots there are is known only if they were set for the queue.
func track(q *inspect.Queue, stuck, gone int) template.HTML {
	var d drawing
	says := fmt.Sprintf("%s ready, %s scheduled, %s running, %s dead", commas(q.Ready), commas(q.Scheduled), commas(q.Running), commas(q.Dead))
	if q.Awaiting > 0 {
		says += fmt.Sprintf(", %s wait for a batch", commas(q.Awaiting))
	}
	gate := ""
	switch q.State() {
	case "paused":
		says, gate = "paused, "+says, "M117.5 11v18M123 11v18"
	case "held":
		says, gate = "held back, "+says, "M117.5 11v18M123 11v18"
	case "limited":
		says, gate = "at its limit, "+says, "M120 11v18"
	}
	d.add(`<svg class="line" viewBox="0 0 300 40" preserveAspectRatio="xMinYMid meet" role="img" aria-label="%v"><path class="tk" d="M2 20h296M292 16.5l5 3.5-5 3.5"/>`, says)
	row := func(n int, x, y float64, class string) {
		for i := range n {
			d.add(`<rect class="%v" x="%v" y="%v" width="6" height="7" rx="1.2"/>`, class, x-float64(i)*7.2, y)
		}
	}
	if q.Scheduled > 0 {
		d.add(`<path class="tk" d="M2 6h64l14 14"/>`)
		row(wagons(q.Scheduled, 8), 58, 2.5, "wg-s")
	}
	if q.Dead > 0 {
		d.add(`<path class="tk" d="M234 20l12 14h46M292 29.5v9"/>`)
		row(wagons(q.Dead, 6), 284, 30.5, "wg-d")
	}
	row(wagons(q.Ready, 15), 108, 16.5, "wg")
	if gate != "" {
		d.add(`<path class="gate" d="%v"/>`, gate)
	}
	total := max(int(min(q.Running, 1000)), q.Slots*len(q.Workers))
	shown := min(12, total)
	on := 0
	if total > 0 {
		on = min(shown, (int(min(q.Running, 1000))*shown+total-1)/total)
	}
	for i := range shown {
		class := "sl"
		switch {
		case i < gone && i < on:
			class = "sl gone"
		case i < on-stuck:
			class = "sl on"
		case i < on:
			class = "sl stuck"
		}
		d.add(`<rect class="%v" x="%v" y="15.5" width="6.4" height="9" rx="1.2"/>`, class, 133+float64(i)*8)
	}
	d.add(`</svg>`)
	return d.html()
}

// spark draws a line of numbers that fills its box. A NaN breaks it.
func spark(values []float64, label string) template.HTML {
	const h = 26
	top := 0.
	for _, v := range values {
		if v > top { // a NaN isn't
			top = v
		}
	}
	top = max(top, 1e-9)
	var d drawing
	d.add(`<svg width="110" height="26" role="img" aria-label="%v"><svg viewBox="0 0 100 26" preserveAspectRatio="none" width="100%%" height="26"><path class="p-spark" d="%v"/></svg></svg>`, label,
		polyline(values, func(i int, v float64) (x, y float64) {
			return float64(i) / float64(max(1, len(values)-1)) * 100, h - 2 - v/top*(h-4)
		}))
	return d.html()
}

// polyline returns the path through the points of values. A NaN breaks it.
func polyline(values []float64, at func(i int, v float64) (x, y float64)) string {
	var d strings.Builder
	pen := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		x, y := at(i, v)
		fmt.Fprintf(&d, "%s%s %s", pen, coordinate(x), coordinate(y))
		pen = "L"
	}
	return d.String()
}

// A cell is a square of a heat map.
type cell struct {
	x, y  float64
	level int
}

// cells draws squares as one path for each level. Those of level 0 are left out.
func (d *drawing) cells(list []cell, class string, gapX, gapY float64) {
	paths := map[int]*strings.Builder{}
	var levels []int
	for _, c := range list {
		if c.level == 0 {
			continue
		}
		if paths[c.level] == nil {
			paths[c.level] = &strings.Builder{}
			levels = append(levels, c.level)
		}
		fmt.Fprintf(paths[c.level], "M%s %sh%sv%sh-%sz", coordinate(c.x+gapX/2), coordinate(c.y+gapY/2), coordinate(1-gapX), coordinate(1-gapY), coordinate(1-gapX))
	}
	slices.Sort(levels)
	for _, level := range levels {
		d.add(`<path class="%v%d" d="%v"/>`, class, level, paths[level].String())
	}
}

// heatOf returns the level of a wait.
func heatOf(wait time.Duration) int {
	switch {
	case wait == 0:
		return 0
	case wait <= 1024*time.Millisecond: // the bounds of histograms are powers of two of milliseconds
		return 1
	case wait <= 16384*time.Millisecond:
		return 2
	case wait <= 65536*time.Millisecond:
		return 3
	case wait <= 262144*time.Millisecond:
		return 4
	}
	return 5
}

// An hourRow is a queue in the chart of the last hour.
type hourRow struct {
	Name  string
	To    string
	Chart template.HTML
}

// hourOf draws how long the jobs of a queue waited in each minute of the last hour, and below it which part of the attempts failed. shut is from when on it
// is paused, in minutes from the begin; 60 if it isn't.
func hourOf(q *inspect.Queue, s *inspect.Stats, shut float64) hourRow {
	list := columns(s, 60, time.Minute)
	var waits, fails []cell
	worst, when := time.Duration(0), 0
	for i := range list {
		c := &list[i]
		wait := c.wait.Quantile(.95)
		if wait > worst {
			worst, when = wait, i
		}
		waits = append(waits, cell{float64(i), 0, heatOf(wait)})
		level := 0
		if c.ending > 0 && c.failed/c.ending > .3 {
			level = 2
		} else if c.ending > 0 && c.failed/c.ending > .05 {
			level = 1
		}
		fails = append(fails, cell{float64(i), 0, level})
	}
	says := clean(q.Name, 100) + ": nothing is known of the last hour"
	if worst > 0 {
		says = fmt.Sprintf("%s: the longest wait was at most %s (95th percentile of a minute), at %s", clean(q.Name, 100), span(worst), s.At.Add(-time.Duration(60-when)*time.Minute).UTC().Format("15:04"))
	}
	var d drawing
	d.add(`<svg role="img" aria-label="%v"><svg viewBox="0 0 60 1" preserveAspectRatio="none" width="100%%" height="18">`, says)
	d.cells(waits, "cells h", .12, 0)
	d.add(`</svg>`)
	if shut < 60 {
		d.add(`<rect class="shut" x="%v%%" y="0" width="%v%%" height="18"/>`, shut/60*100, (60-shut)/60*100)
	}
	d.add(`<svg y="20" viewBox="0 0 60 1" preserveAspectRatio="none" width="100%%" height="4">`)
	d.cells(fails, "cells fail", .12, 0)
	d.add(`</svg></svg>`)
	return hourRow{Name: q.Name, To: link("queue", "name", q.Name), Chart: d.html()}
}

// hourAxis draws the times below the last hour.
func hourAxis(at time.Time) template.HTML {
	var d drawing
	d.add(`<svg class="wide" height="15" aria-hidden="true">`)
	for _, m := range []int{0, 12, 24, 36, 48} {
		d.add(`<text class="f" x="%v%%" y="11">%v</text>`, float64(m)/60*100, at.Add(time.Duration(m-60)*time.Minute).UTC().Format("15:04"))
	}
	d.add(`<text class="f e" x="100%%" y="11">now</text></svg>`)
	return d.html()
}

// An event is something that began in the last hour.
type event struct {
	At    time.Time
	Text  string
	Class string
}

// An eventLabel is the text of an event in the chart of the last hour. All are in per cent of its width.
type eventLabel struct {
	at, from, to float64
	row          int
}

// turned is from where on a text is on the left of its line.
const turned = 88

// placeLabels gives each label a row of its own below those that it would lie over or whose line it would be crossed by. The events are in the order of time.
func placeLabels(at time.Time, events []event) (labels []eventLabel, rows int) {
	for _, e := range events {
		x := e.At.Sub(at.Add(-time.Hour)).Minutes() / 60 * 100
		l, wide := eventLabel{at: x, from: x, to: x}, float64(len(e.Text))*.62+2
		if x > turned {
			l.from -= wide
		} else {
			l.to += wide
		}
		labels = append(labels, l)
	}
	below := func(l *eventLabel, others []eventLabel) {
		for _, o := range others {
			if o.from <= l.to && l.from <= o.to {
				l.row = max(l.row, o.row+1)
			}
		}
		rows = max(rows, l.row+1)
	}
	first := len(labels) // of those on the left of their lines
	for ; first > 0 && labels[first-1].at > turned; first-- {
		below(&labels[first-1], labels[first:])
	}
	for i := range first {
		below(&labels[i], labels[first:])
		below(&labels[i], labels[:i])
	}
	return labels, rows
}

// hourEvents draws what began in the last hour.
func hourEvents(at time.Time, events []event) template.HTML {
	if len(events) == 0 {
		return ""
	}
	labels, rows := placeLabels(at, events)
	h := max(66, rows*15+5)
	var says []string
	for _, e := range events {
		says = append(says, e.At.UTC().Format("15:04")+" "+e.Text)
	}
	var d drawing
	d.add(`<svg class="events wide" height="%d" role="img" aria-label="%v">`, h, "What began in this hour: "+strings.Join(says, ", "))
	for i, e := range events {
		x, y := labels[i].at, labels[i].row*15+11
		class, dx := "", 8
		if x > turned {
			class, dx = "e", -8
		}
		d.add(`<line class="ev" x1="%v%%" y1="%d" x2="%v%%" y2="%d"/><circle class="ev-dot %v" cx="%v%%" cy="%d" r="3.5"/><text class="%v" x="%v%%" y="%d" dx="%d">%v</text>`, x, y-5, x, h, e.Class, x, y-4, class, x, y, dx, e.Text)
	}
	d.add(`</svg>`)
	return d.html()
}

// A period is the time that the charts of a queue show.
type period struct {
	Key, Text string
	by        inspect.Step
	n         int
	unit      string // of a column
}

var periods = []period{
	{"hour", "1 h", inspect.ByMinute, 60, "minute"},
	{"3h", "3 h", inspect.ByMinute, 180, "minute"},
	{"day", "24 h", inspect.ByHour, 24, "hour"},
	{"month", "30 d", inspect.ByHour, 720, "hour"},
}

// axis draws times below a chart.
func (d *drawing) axis(p period, at time.Time, y int) {
	layout := "15:04"
	if p.Key == "month" {
		layout = "01-02"
	}
	whole := time.Duration(p.n) * p.by.Duration()
	for i := range 4 {
		class := "f"
		if i > 0 {
			class = "f m"
		}
		if i%2 == 1 {
			class += " opt"
		}
		d.add(`<text class="%v" x="%d%%" y="%d">%v</text>`, class, i*25, y, at.Add(-whole+whole*time.Duration(i)/4).UTC().Format(layout))
	}
	d.add(`<text class="f e" x="100%%" y="%d">now</text>`, y)
}

// A label is one of a y axis.
type label struct {
	y    float64
	text string
}

// plot puts the labels of the y axis into a gutter beside a chart, so that they lie on nothing.
func plot(labels []label, h int, chart *drawing) template.HTML {
	var d drawing
	d.add(`<div class="plot"><svg width="38" height="%d" aria-hidden="true">`, h)
	for _, l := range labels {
		d.add(`<text class="f e" x="36" y="%v">%v</text>`, l.y, l.text)
	}
	d.add(`</svg>%v</div>`, raw(chart.String()))
	return d.html()
}

// niceStep returns the distance of grid lines for values up to top.
func niceStep(top float64) float64 {
	e := math.Pow(10, math.Floor(math.Log10(top)))
	switch k := top / e; {
	case k > 5:
		return 2 * e
	case k > 2:
		return e
	}
	return e / 2
}

// flow draws what came in and what completed, and below the axis what failed.
func flow(queue string, list []column, p period, at time.Time) template.HTML {
	const h, base = 196, 129
	const down = h - base - 4
	most, worst := 0., 0.
	for _, c := range list {
		most, worst = max(most, c.in, c.done), max(worst, c.retried+c.dead)
	}
	if most == 0 {
		most = 1
	}
	step := niceStep(most)
	top := math.Ceil(most/step) * step
	fails := max(.2, worst)
	y := func(v float64) float64 { return base - v/top*(base-8) }
	x := func(i int) float64 { return float64(i) / float64(len(list)-1) * 100 }
	in, done := make([]float64, len(list)), make([]float64, len(list))
	var area, retried, dead strings.Builder
	width := 84 / float64(len(list))
	bar := func(b *strings.Builder, i int, off, v float64) {
		if v /= fails / down; v > .3 {
			fmt.Fprintf(b, "M%s %sh%sv%sh-%sz", coordinate(float64(i)/float64(len(list))*100), coordinate(base+2+off/fails*down), coordinate(width), coordinate(v), coordinate(width))
		}
	}
	fmt.Fprintf(&area, "M0 %d", base)
	for i, c := range list {
		in[i], done[i] = c.in, c.done
		if !c.known {
			in[i] = math.NaN()
		}
		fmt.Fprintf(&area, "L%s %s", coordinate(x(i)), coordinate(y(c.done)))
		bar(&retried, i, 0, c.retried)
		bar(&dead, i, c.retried, c.dead)
	}
	fmt.Fprintf(&area, "L100 %dz", base)
	var d drawing
	d.add(`<svg class="wide" height="%d" role="img" aria-label="%v">`, h+16, fmt.Sprintf("%v, by the %v: up to %v a second came in; up to %v a second failed", clean(queue, 100), p.unit, perSecond(most), perSecond(worst)))
	var labels []label
	for v := step; v <= top*1.0001; v += step {
		d.add(`<line class="grid" x1="0" x2="100%%" y1="%v" y2="%v"/>`, y(v), y(v))
		labels = append(labels, label{y(v) + 4, strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)})
	}
	labels = append(labels, label{base + 4, "0"}, label{h, perSecond(fails)})
	d.add(`<svg viewBox="0 0 100 %d" preserveAspectRatio="none" width="100%%" height="%d"><path class="p-done" d="%v"/><path class="p-in" d="%v"/><path class="p-ret" d="%v"/><path class="p-bad" d="%v"/></svg><line class="axis" x1="0" x2="100%%" y1="%d" y2="%d"/>`, h, h, area.String(),
		polyline(in, func(i int, v float64) (float64, float64) { return x(i), y(v) }), retried.String(), dead.String(), base, base)
	d.axis(p, at, h+13)
	d.add(`</svg>`)
	return plot(labels, h+16, &d)
}

// heat draws the histogram of each column: rows are powers of two of milliseconds. Over it is the 95th percentile.
func heat(list []column, of func(*column) inspect.Histogram, p period, at time.Time, h int, says string) template.HTML {
	lo, hi := topBin, 0
	for i := range list {
		for bound, n := range of(&list[i]).Buckets() {
			if n > 0 {
				lo, hi = min(lo, bin(bound)), max(hi, bin(bound))
			}
		}
	}
	if lo > hi {
		lo, hi, says = 0, 10, says+": nothing was measured"
	}
	lo, hi = max(0, lo-1), min(topBin, max(hi+1, lo+5))
	rows := hi - lo + 1
	var squares []cell
	p95 := make([]float64, 0, 2*len(list))
	for i := range list {
		hist := of(&list[i])
		count := hist.Count()
		if count == 0 {
			p95 = append(p95, math.NaN(), math.NaN())
			continue
		}
		for bound, n := range hist.Buckets() {
			if n == 0 {
				continue
			}
			level := 1
			for _, least := range []float64{.04, .1, .22, .4} {
				if float64(n)/float64(count) > least {
					level++
				}
			}
			squares = append(squares, cell{float64(i), float64(hi - bin(bound)), level})
		}
		v := float64(hi - bin(hist.Quantile(.95)))
		p95 = append(p95, v, v)
	}
	var d drawing
	d.add(`<svg class="wide" height="%d" role="img" aria-label="%v"><svg viewBox="0 0 %d %d" preserveAspectRatio="none" width="100%%" height="%d">`, h+16, says, len(list), rows, h)
	d.cells(squares, "cells q", .08, .08)
	d.add(`<path class="p-line" d="%v"/></svg>`, polyline(p95, func(i int, v float64) (float64, float64) { return float64((i + 1) / 2), v }))
	var labels []label
	for _, m := range []struct {
		bin  int
		text string
	}{{0, "1 ms"}, {4, "16 ms"}, {7, "0.13 s"}, {10, "1 s"}, {13, "8 s"}, {16, "1 m"}, {18, "4 m"}, {20, "17 m"}, {22, "70 m"}} {
		if m.bin < lo || m.bin > hi {
			continue
		}
		y := float64(hi-m.bin) / float64(rows) * float64(h)
		labels = append(labels, label{y + 4, m.text})
		d.add(`<line class="grid" x1="-4" x2="0" y1="%v" y2="%v"/>`, y, y)
	}
	d.axis(p, at, h+13)
	d.add(`</svg>`)
	return plot(labels, h+16, &d)
}
