package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the main function of the processes that the tests start. It prints the last
// line only if every check of what Jaeger has was made and passed.
func TestMain(m *testing.M) {
	switch {
	case isChild():
		exitOn(runChild())
		return
	case os.Getenv(envProgram) != "":
		main()
		return
	case os.Getenv(envProbe) != "":
		exitOn(runProbe())
		return
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	if line, ok := seen.line(); ok && code == 0 {
		fmt.Println(line)
	}
	os.Exit(code)
}

// seen counts the checks of what Jaeger has.
var seen tally

// A tally has all checks, and those that passed.
type tally struct {
	mu           sync.Mutex
	due, passed  map[string]bool
	assertions   int
	spans, trace int
}

// line returns the last line of "make jaeger". It reports false unless every check passed.
func (t *tally) line() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.due) == 0 || len(t.due) != len(t.passed) {
		return "", false
	}
	return fmt.Sprintf("jaeger: ok checks=%d assertions=%d traces=%d spans=%d", len(t.passed), t.assertions, t.trace, t.spans), true
}

// expect adds a check. name is the name of its subtest.
func (t *tally) expect(name string) {
	name = strings.ReplaceAll(name, " ", "_") // like package testing
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.due == nil {
		t.due, t.passed = make(map[string]bool), make(map[string]bool)
	}
	t.due[name] = true
}

func (t *tally) pass(name string, assertions int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passed[name] = true
	t.assertions += assertions
}

func (t *tally) saw(traces, spans int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trace += traces
	t.spans += spans
}

// A checker counts the assertions of one check.
type checker struct {
	*testing.T
	n int
}

// that asserts that ok is true.
func (c *checker) that(ok bool, format string, args ...any) {
	c.Helper()
	c.n++
	if !ok {
		c.Errorf(format, args...)
	}
}

// equal asserts that got is want.
func equal[T comparable](c *checker, what string, got, want T) {
	c.Helper()
	c.that(got == want, "%s is %v, want %v", what, got, want)
}

// A check tests one fact.
type check struct {
	name string
	run  func(c *checker)
}

// checks runs each check as a subtest. All of them are expected for the last line, even those
// that are filtered out.
func checks(t *testing.T, all []check) {
	t.Helper()
	for _, c := range all {
		seen.expect(t.Name() + "/" + c.name)
	}
	for _, ch := range all {
		t.Run(ch.name, func(t *testing.T) {
			c := &checker{T: t}
			ch.run(c)
			if c.n == 0 {
				t.Error("nothing was asserted")
			}
			if !t.Failed() && !t.Skipped() {
				seen.pass(t.Name(), c.n)
			}
		})
	}
}
