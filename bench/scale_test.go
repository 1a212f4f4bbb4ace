package main

import (
	"io"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestScale: a small scale goes through all phases in both shapes, leaves no job, and knows the scripts.
func TestScale(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	srv := testServer(t)
	var out strings.Builder
	if err := scale(t.Context(), srv, 1200, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`one line: enqueue +enqueue +\d`, `a line each: enqueue +enqueue +\d`, `one line: claim many +claim `, `a line each: reclaim +reclaim `,
		`a line each: cancel 10,000 +act `, `one line: move 10,000 +put `, `a line each: limit of 3 +limit `, `one line: list +page `, `a line each: doctor +examine `,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line has %q", want)
		}
	}
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); !regexp.MustCompile(`^[a-z]+$`).MatchString(fields[len(fields)-5]) && fields[0] != "phase" {
			t.Errorf("no name of a script in %q", line)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestScaleOfNothing(t *testing.T) {
	if _, err := parse([]string{"-scale", "-1"}, io.Discard); err == nil || !strings.Contains(err.Error(), "-scale -1") {
		t.Error(err)
	}
}
