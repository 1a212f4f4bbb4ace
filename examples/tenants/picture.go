package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A screen shows the progress: on a terminal a picture that is drawn again and again, otherwise a line each second.
type screen struct {
	out      io.Writer
	terminal bool
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{out: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (s *screen) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// show shows the progress of a ledger until the returned function is called.
func (s *screen) show(l *ledger) (stop func()) {
	every, begun := time.Second, time.Now()
	if s.terminal {
		every = 100 * time.Millisecond
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		above := 0 // lines of the picture that is there
		draw := func() {
			if s.terminal {
				picture := l.picture(time.Since(begun))
				fmt.Fprint(s.out, over(above, picture))
				above = strings.Count(picture, "\n")
				return
			}
			s.say("%s", l.line(time.Since(begun)))
		}
		for {
			select {
			case <-tick.C:
				draw()
			case <-quit:
				draw()
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// over returns what draws a picture in the place of one of so many lines.
func over(lines int, picture string) string {
	up := ""
	if lines > 0 {
		up = fmt.Sprintf("\x1b[%dA", lines)
	}
	return up + "\r\x1b[K" + strings.ReplaceAll(picture, "\n", "\n\x1b[K")
}

// line says how far the run is.
func (l *ledger) line(after time.Duration) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%5.1fs  %d of %d jobs ran; of tenant 0 %d wait and %d run, of the others %d wait; p99 of their waits: %d ms",
		after.Seconds(), l.ended, l.sums.enqueued, l.tenants[0].waiting, l.tenants[0].running, l.sums.waiting, millis(p99(l.sums.waits)))
}

const (
	perRow   = 33 // quiet tenants in a row of the picture
	barWidth = 60
)

// picture shows the flood as a bar, and each of the other tenants as a character.
func (l *ledger) picture(after time.Duration) string {
	var b strings.Builder
	fmt.Fprintln(&b, l.line(after))
	l.mu.Lock()
	defer l.mu.Unlock()
	flood := &l.tenants[0]
	full := (flood.waiting*barWidth + len(flood.jobs) - 1) / max(len(flood.jobs), 1)
	fmt.Fprintf(&b, "  tenant 0  %s%s %d\n", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), flood.waiting)
	fmt.Fprintln(&b, "  the others: how many jobs of each wait, or '*' if its jobs run, '.' if it has none")
	for first := 1; first < len(l.tenants); first += perRow {
		b.WriteString("            ")
		for i := first; i < min(first+perRow, len(l.tenants)); i++ {
			b.WriteByte(' ')
			b.WriteByte(l.tenants[i].cell())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t *tenant) cell() byte {
	switch {
	case t.waiting > 9:
		return '+'
	case t.waiting > 0:
		return '0' + byte(t.waiting)
	case t.running > 0:
		return '*'
	}
	return '.'
}
