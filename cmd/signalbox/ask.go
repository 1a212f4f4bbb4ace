package main

import (
	"bufio"
	"fmt"
	"strings"
)

// ask asks the person at the terminal and reports whether the answer is yes.
func (a *app) ask(format string, args ...any) (bool, error) {
	fmt.Fprintf(a.err, "%s [y/N] ", oneLine(fmt.Sprintf(format, args...)))
	answers := make(chan string, 1)
	go func() { // a read of a terminal can't be interrupted
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answers <- line
	}()
	select {
	case line := <-answers:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		}
		return false, nil
	case <-a.stopped.Done():
		fmt.Fprintln(a.err)
		return false, errInterrupted
	}
}

// canAsk reports whether there is somebody to answer.
func (a *app) canAsk() bool { return a.inTerminal && a.errTerminal }
