package facts

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// What Go reads in what a session holds is what testdata/deliveries.txt says of it, and Go writes the same. The scripts are tested against that file, too.
func TestFieldsOf(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/deliveries.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		n++
		var want struct {
			Fields
			Value          string
			Cancelled, Odd bool
		}
		if err := json.Unmarshal([]byte(line), &want); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got := FieldsOf(want.Value)
		if got != want.Fields || got.Flagged() != want.Cancelled {
			t.Errorf("%q is read as %+v, cancelled: %v", want.Value, got, got.Flagged())
		}
		if text := got.String(); text != want.Value && !want.Odd {
			t.Errorf("%q is written as %q", want.Value, text)
		}
	}
	if n < 30 {
		t.Errorf("the file has %d values", n)
	}
}

// The flag of a suspect says how many crashes it had, if it is cancelled, too.
func TestSuspect(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{"": "none", "c": "none", "s2": "2", "s255c": "255", "s": "", "sc": ""} {
		crashes, ok := Fields{Flags: flags}.Suspect()
		if !ok {
			crashes = "none"
		}
		if crashes != want {
			t.Errorf("%q says %q crashes, want %q", flags, crashes, want)
		}
	}
}
