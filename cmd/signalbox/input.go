package main

import (
	"context"
	"fmt"
	"io"
)

// input returns a reader of the standard input. It fails once the command is interrupted, also while a read waits for more.
func (a *app) input() io.Reader {
	if a.canAsk() {
		fmt.Fprintln(a.err, "reading from the terminal; end with Ctrl-D")
	}
	r, w := io.Pipe()
	go func() { // a read of a terminal or a pipe can't be interrupted
		_, err := io.Copy(w, a.in)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(a.stopped, func() { _ = w.CloseWithError(errInterrupted) })
	a.closers = append(a.closers, r.Close)
	return r
}
