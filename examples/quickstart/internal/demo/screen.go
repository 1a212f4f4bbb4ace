package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A screen shows the progress. On a terminal it is one line that is written again and again.
// Otherwise it is one line a second.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	start    time.Time
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{
		out:      f,
		terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb",
		start:    time.Now(),
	}
}

// eraseLine erases the progress line.
const eraseLine = "\r\x1b[K"

// say writes a line.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		format = eraseLine + format
	}
	fmt.Fprintf(s.out, format+"\n", args...)
}

// progress shows the result of line, from now until the returned function is called.
func (s *screen) progress(line func() string) (stop func()) {
	every := time.Second
	if s.terminal {
		every = 100 * time.Millisecond
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.show(line())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (s *screen) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line = fmt.Sprintf("%5.1fs  %s", time.Since(s.start).Seconds(), line)
	if s.terminal {
		fmt.Fprint(s.out, eraseLine, line)
		return
	}
	fmt.Fprintln(s.out, line)
}
