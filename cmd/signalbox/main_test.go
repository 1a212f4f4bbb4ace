package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"REDIS_URL", "REDIS_USERNAME", "REDIS_PASSWORD", "SIGNALBOX_NAMESPACE"} {
		_ = os.Unsetenv(name)
	}
	redistest.Main(m)
}

// A shell is where a test runs the command, in this process.
type shell struct {
	t         *testing.T
	env       map[string]string
	namespace string
	in        string   // what the command reads
	where     []string // flags of each command
	terminal  bool     // there is somebody to answer questions
	width     int
}

// newShell returns a shell whose commands find the server, and a namespace of the test's own there.
func newShell(t *testing.T, srv interface{ Addr() string }) *shell {
	t.Helper()
	namespace := redistest.Name(t)
	return &shell{t: t, namespace: namespace, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr(), "SIGNALBOX_NAMESPACE": namespace}}
}

// run runs a command and returns what it wrote and its status.
func (s *shell) run(args ...string) (out, errs string, code int) {
	s.t.Helper()
	return s.runIn(s.t.Context(), args...)
}

func (s *shell) runIn(ctx context.Context, args ...string) (out, errs string, code int) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{
		in: strings.NewReader(s.in), out: &stdout, err: &stderr, env: func(name string) string { return s.env[name] },
		width: s.width, inTerminal: s.terminal, errTerminal: s.terminal,
	}
	code = a.run(ctx, slices.Concat(args, s.where))
	return stdout.String(), stderr.String(), code
}

// ok runs a command that must succeed and returns what it wrote.
func (s *shell) ok(args ...string) string {
	s.t.Helper()
	out, errs, code := s.run(args...)
	if code != 0 {
		s.t.Fatalf("signalbox %s: status %d, %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// fails runs a command that must fail with a status, and whose error must be one line that has all the parts.
func (s *shell) fails(code int, parts []string, args ...string) {
	s.t.Helper()
	out, errs, got := s.run(args...)
	s.failed(code, parts, args, out, errs, got)
}

// failed checks what a command wrote, and its status, as fails says.
func (s *shell) failed(code int, parts, args []string, out, errs string, got int) {
	s.t.Helper()
	line := strings.TrimSuffix(errs, "\n")
	if got != code || out != "" || strings.Contains(line, "\n") || !strings.HasPrefix(line, "signalbox: ") {
		s.t.Errorf("signalbox %s: status %d, out %q, error %q; want status %d and one line", strings.Join(args, " "), got, out, errs, code)
	}
	for _, part := range parts {
		if !strings.Contains(line, part) {
			s.t.Errorf("signalbox %s: %q has no %q", strings.Join(args, " "), line, part)
		}
	}
}

// unanswered is like fails, for a command that gives up since no reply comes to a call that is held. On a loaded machine the time may be
// over before that call is sent. Then the command has said nothing of it, and is run again with twice the time.
func (s *shell) unanswered(held <-chan struct{}, parts []string, args ...string) {
	s.t.Helper()
	for timeout := 300 * time.Millisecond; ; timeout *= 2 {
		args := append(slices.Clone(args), "--timeout", timeout.String())
		out, errs, code := s.run(args...)
		if len(held) == 0 && !strings.Contains(errs, parts[0]) && timeout < time.Minute {
			continue
		}
		s.failed(exitAway, parts, args, out, errs, code)
		return
	}
}

// into runs a command with -o json and decodes its output, which must be one document without fields that v doesn't know.
func (s *shell) into(v any, args ...string) {
	s.t.Helper()
	decode(s.t, s.ok(append(args, "-o", "json")...), v)
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if dec.More() {
		t.Errorf("more than one document: %s", text)
	}
}

// same compares what a command wrote with what is wanted. Both are trimmed, and the indent of the first line is taken off each.
func same(t *testing.T, got, want string) {
	t.Helper()
	want = strings.Trim(want, "\n")
	indent := want[:len(want)-len(strings.TrimLeft(want, "\t"))]
	want = strings.ReplaceAll("\n"+want, "\n"+indent, "\n")
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
