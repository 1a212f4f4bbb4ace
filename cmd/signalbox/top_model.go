package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
)

const (
	topShare   = 5                // a look takes at most so small a part of the time
	topSilence = 2 * time.Second  // a look that takes longer is said to wait
	topBreath  = 1 * time.Second  // at least so often the screen is drawn
	topRest    = 30 * time.Second // the longest pause
)

// A topModel is the screen of top: what it shows, and when it looks again. Only Update changes it.
type topModel struct {
	ctx   context.Context
	read  func(ctx context.Context, view topView) (*topData, error)
	why   func(err error) string
	every time.Duration
	title string
	now   func() time.Time

	width, height int
	view          topView
	orders        [topViews]order
	first         int // row that is shown first
	help          bool

	data    [topViews]*topData
	failed  [topViews]error // why the last look failed, or in part
	good    [topViews]time.Time
	looking bool
	looked  topView   // what the look under way is at
	began   time.Time // the last look
	next    time.Time // when the next look begins
}

func newTopModel(read func(context.Context, topView) (*topData, error), every time.Duration, title string, now func() time.Time) *topModel {
	return &topModel{
		ctx: context.Background(), read: read, why: func(err error) string { return oneLine(err.Error()) }, every: every, title: title, now: now,
		width: 80, height: 24,
	}
}

// A topLook is what a look has found.
type topLook struct {
	view topView
	data *topData
	err  error
}

// A topTick has the model see whether it is to look again.
type topTick struct{}

func (m *topModel) Init() tea.Cmd { return tea.Batch(m.look(), m.tick()) }

func (m *topModel) tick() tea.Cmd {
	return tea.Tick(min(m.every, topBreath), func(time.Time) tea.Msg { return topTick{} })
}

// look begins a look, unless one is under way.
func (m *topModel) look() tea.Cmd {
	if m.looking {
		return nil
	}
	m.looking, m.looked, m.began = true, m.view, m.now()
	ctx, read, view := m.ctx, m.read, m.view
	return func() tea.Msg {
		data, err := read(ctx, view)
		return topLook{view, data, err}
	}
}

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if msg.Width > 0 && msg.Height > 0 {
			m.width, m.height = msg.Width, msg.Height
		}
	case topTick:
		if !m.looking && !m.now().Before(m.next) {
			return m, tea.Batch(m.look(), m.tick())
		}
		return m, m.tick()
	case topLook:
		return m, m.found(msg)
	case tea.KeyPressMsg:
		return m, m.press(msg.String())
	}
	return m, nil
}

// found keeps what a look has found.
func (m *topModel) found(l topLook) tea.Cmd {
	now := m.now()
	m.looking = false
	m.failed[l.view] = l.err
	if l.data != nil {
		m.data[l.view], m.good[l.view] = l.data, now
	}
	m.next = m.began.Add(max(m.every, min(topShare*now.Sub(m.began), topRest)))
	if l.view != m.view { // another view was asked for meanwhile
		return m.look()
	}
	return nil
}

// press does what a key is for.
func (m *topModel) press(key string) tea.Cmd {
	if m.help {
		m.help = false
		if key == "?" || key == "h" || key == "esc" {
			return nil
		}
	}
	o, sorts := &m.orders[m.view], len(sortNames[m.view])
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "?", "h":
		m.help = true
	case "1", "2", "3", "4":
		return m.turn(topView(key[0] - '1'))
	case "tab", "right":
		return m.turn((m.view + 1) % topViews)
	case "shift+tab", "left":
		return m.turn((m.view + topViews - 1) % topViews)
	case "s":
		*o = order{column: (o.column + 1) % sorts}
	case "S", "shift+s":
		*o = order{column: (o.column + sorts - 1) % sorts}
	case "r":
		o.turned = !o.turned
	case "space", "g":
		return m.look()
	case "up", "k":
		m.first--
	case "down", "j":
		m.first++
	case "pgup":
		m.first -= m.room()
	case "pgdown":
		m.first += m.room()
	case "home":
		m.first = 0
	case "end":
		m.first = len(m.rows())
	}
	m.first = max(0, min(m.first, len(m.rows())-m.room()))
	return nil
}

// turn shows another view, and looks at it at once.
func (m *topModel) turn(view topView) tea.Cmd {
	if view == m.view {
		return nil
	}
	m.view, m.first = view, 0
	return m.look()
}

// rows returns the rows of the view that is shown.
func (m *topModel) rows() []topRow {
	if d := m.data[m.view]; d != nil {
		return d.rows(m.view, m.orders[m.view])
	}
	return nil
}

// aroundRows is how many lines are not rows: the title, the summary, the views, the heading, and the keys.
const aroundRows = 5

// room returns how many rows fit.
func (m *topModel) room() int { return max(1, m.height-aroundRows) }

func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "signalbox top"
	return v
}

// lines are those of the screen: as many as it is high, none wider than it.
func (m *topModel) lines() []string {
	lines := []string{m.top(), m.said(), m.tabs()}
	if m.help {
		lines = append(lines, "")
		for _, k := range topKeys {
			lines = append(lines, cut(fmt.Sprintf("  %-22s %s", k[0], k[1]), m.width))
		}
	} else {
		lines = append(lines, m.table()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = lines[:max(0, min(len(lines), m.height-1))]
	return append(lines, m.foot())
}

// top is the first line: what is watched, and by which clock.
func (m *topModel) top() string {
	left, right := "signalbox top  "+m.title, m.now().UTC().Format("15:04:05")+"Z every "+m.every.String()
	if free := m.width - cells(right) - 2; cells(left) > free {
		left = cut(left, max(free, 13))
	}
	return bold(cut(left+strings.Repeat(" ", max(2, m.width-cells(left)-cells(right)))+right, m.width))
}

// said is the second line: what is wrong, or a summary.
func (m *topModel) said() string {
	d, now := m.data[m.view], m.now()
	age := ""
	if d != nil {
		age = "; this is " + span(now.Sub(m.good[m.view])) + " old"
	}
	waits := now.Sub(m.began)
	switch err := m.failed[m.view]; {
	case m.looking && m.looked == m.view && waits >= topSilence:
		return red(cut("Redis doesn't answer for "+span(waits)+age, m.width))
	case err != nil && (d == nil || m.good[m.view].Before(m.began)):
		return red(cut(m.why(err)+age, m.width))
	case err != nil: // in part
		return red(cut(m.why(err), m.width))
	case d == nil:
		return "looking ..."
	}
	return cut(d.summary(m.view), m.width)
}

// tabs is the line of the views. The one that is shown is highlighted.
func (m *topModel) tabs() string {
	var b strings.Builder
	form := " [%d] %s "
	if m.width < 50 {
		form = " %d %s "
	}
	for v, name := range topNames {
		label := fmt.Sprintf(form, v+1, name)
		if topView(v) == m.view {
			label = reverse(label)
		}
		b.WriteString(label)
	}
	return b.String()
}

// table returns the lines of the rows that fit, under their heading.
func (m *topModel) table() []string {
	rows := m.rows()
	if len(rows) == 0 {
		if m.data[m.view] == nil {
			return nil
		}
		return []string{"", "  There is none."}
	}
	m.first = max(0, min(m.first, len(rows)-m.room()))
	var b strings.Builder
	a := app{out: &b, width: m.width}
	t := a.table(topColumns[m.view]...)
	t.note = nil
	for _, r := range rows { // all, so that widths don't change when somebody scrolls
		t.row(r.cells...)
	}
	t.flush()
	all := strings.Split(b.String(), "\n")
	lines := []string{bold(cut(all[0], m.width))}
	for i := m.first; i < min(m.first+m.room(), len(rows)); i++ {
		line := cut(all[i+1], m.width)
		switch rows[i].alarm {
		case alarming:
			line = red(line)
		case notable:
			line = yellow(line)
		case calm:
		}
		lines = append(lines, line)
	}
	return lines
}

// foot is the last line: the order, how far it is scrolled, and the keys.
func (m *topModel) foot() string {
	o := m.orders[m.view]
	by := "sorted by " + sortNames[m.view][o.column]
	if o.turned {
		by += ", turned"
	}
	if n, room := len(m.rows()), m.room(); n > room && !m.help {
		by += fmt.Sprintf("; %d to %d of %d", m.first+1, min(m.first+room, n), n)
	}
	keys := "? keys  q end"
	if free := m.width - cells(by) - cells(keys); free >= 2 {
		return faint(by + strings.Repeat(" ", free) + keys)
	}
	return faint(cut(by, m.width))
}

// The styles. The renderer leaves colours out where the terminal has none, or NO_COLOR is set.
func bold(s string) string    { return "\x1b[1m" + s + "\x1b[m" }
func faint(s string) string   { return "\x1b[2m" + s + "\x1b[m" }
func reverse(s string) string { return "\x1b[7m" + s + "\x1b[m" }
func red(s string) string     { return "\x1b[31m" + s + "\x1b[m" }
func yellow(s string) string  { return "\x1b[33m" + s + "\x1b[m" }
