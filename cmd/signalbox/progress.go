package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// progressEvery bounds how often a progress line is written.
const progressEvery = 100 * time.Millisecond

// A progress shows on the terminal how far bulk work is. Without a terminal it shows nothing.
type progress struct {
	a     *app
	what  string
	total int64 // how many jobs there were before; 0: not known
	last  time.Time
	shown bool
}

func (a *app) progress(what string) *progress { return &progress{a: a, what: what, last: time.Now()} }

func (p *progress) show(now inspect.BulkCounts) { p.print(func() string { return p.line(now) }) }

// print shows a line, unless the last one is new.
func (p *progress) print(line func() string) {
	if !p.a.errTerminal || time.Since(p.last) < progressEvery {
		return
	}
	p.last, p.shown = time.Now(), true
	fmt.Fprintf(p.a.err, "\r\x1b[K%s", line())
}

const barWidth = 20

func (p *progress) line(now inspect.BulkCounts) string {
	if p.total == 0 {
		return fmt.Sprintf("%s: %s of %d", p.what, count(max(now.Done, now.Matched)), now.Seen)
	}
	part := min(1, float64(now.Done+now.Moved+now.Failed)/float64(p.total))
	full := int(part * barWidth)
	return fmt.Sprintf("%s: [%s%s] %3.0f %%  %d of %d", p.what, strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), part*100, now.Done, p.total)
}

// end takes the line away.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
}
