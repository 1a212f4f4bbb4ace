package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A signal ends a command that waits for its standard input. At a terminal it says what it waits for.
func TestInterruptedInput(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "a", "--after", "1h")
	for _, terminal := range []bool{false, true} {
		for _, args := range [][]string{{"import", "mail"}, {"enqueue", "email.welcome", "-"}, {"job", "edit", "mail", "a", "--args", "-"}} {
			ctx, cancel := context.WithCancel(t.Context())
			in, more := io.Pipe()
			var out, errs bytes.Buffer
			a := &app{
				in: &reading{Reader: in, began: cancel}, out: &out, err: &errs, env: func(name string) string { return sh.env[name] },
				inTerminal: terminal, errTerminal: terminal,
			}
			late := time.AfterFunc(15*time.Second, func() {
				t.Errorf("%q waits for its input", args)
				_ = more.Close()
			})
			code := a.run(ctx, args)
			if !late.Stop() {
				return
			}
			if code != exitInterrupted || out.Len() > 0 || !strings.HasSuffix(errs.String(), "signalbox: interrupted\n") {
				t.Errorf("%q: status %d, %q, %q", args, code, out.String(), errs.String())
			}
			if said := strings.Contains(errs.String(), "end with Ctrl-D"); said != terminal {
				t.Errorf("%q at a terminal (%v): %q", args, terminal, errs.String())
			}
			_ = more.Close()
		}
	}
}

// A reading is a reader that says when it is read.
type reading struct {
	io.Reader
	began func()
}

func (r *reading) Read(p []byte) (int, error) {
	r.began()
	return r.Reader.Read(p)
}
