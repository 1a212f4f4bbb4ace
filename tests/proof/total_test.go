package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	t.Parallel()
	tot := total{model: "ok", scenarios: "4/4", acquisitions: 3, faults: 2}
	if got := tot.line(); got != "lock-proof: model=ok scenarios=4/4 acquisitions=3 faults=2 duplicates=0 order=0 unknown=0" {
		t.Error(got)
	}
	tot.fail(io.Discard, os.ErrClosed)
	if got := tot.line(); got != "lock-proof: FAILED model=ok scenarios=4/4 acquisitions=3 faults=2 duplicates=0 order=0 unknown=0" {
		t.Error(got)
	}
}

// A run needs 20,000 acquisitions and 100 fault windows in the quick form, and 300,000 acquisitions in the long one.
func TestTooShortIsInvalid(t *testing.T) {
	t.Parallel()
	for f, want := range map[flags]int{{quick: true}: 20_000, {}: 300_000} {
		n, w := 0, 0
		for _, s := range setups {
			b := f.bound(s)
			n, w = n+b.acquisitions, w+b.windows
		}
		if n < want || w < 100 {
			t.Errorf("quick=%v: %d acquisitions and %d fault windows are demanded", f.quick, n, w)
		}
	}
	for _, s := range setups {
		if quick, long := (flags{quick: true}).bound(s), (flags{}).bound(s); long.windows < 100 || long.duration < 5*quick.duration {
			t.Errorf("the long form asks of %s for %+v, the quick one for %+v", s.name, long, quick)
		}
	}
	for _, c := range []struct {
		acquisitions, windows int
		valid                 bool
	}{
		{20_000, 100, true},
		{19_999, 100, false},
		{20_000, 99, false},
		{0, 0, false},
	} {
		if err := enough(c.acquisitions, c.windows, needAcquisitions, needWindows); (err == nil) != c.valid {
			t.Errorf("%d acquisitions and %d fault windows: %v", c.acquisitions, c.windows, err)
		}
	}
}

// A run that was stopped before it did anything fails in every part, and reports each.
func TestStoppedRunFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, quick := range []bool{true, false} {
		var tot total
		tot.prove(ctx, flags{quick: quick}, io.Discard)
		if got, want := tot.line(), "lock-proof: FAILED model=FAILED scenarios=0/4 acquisitions=0 faults=0 "; !strings.HasPrefix(got, want) {
			t.Errorf("quick=%v: %s", quick, got)
		}
		if all := fmt.Sprint(tot.errs); !strings.Contains(all, "0 acquisitions and 0 fault windows; with less than 20000 and 100 the run is invalid") {
			t.Errorf("quick=%v: %s", quick, all)
		}
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script, model, says string }{
		{"all is well", `echo a row; echo "model: ok runs=1 states=2 violations=5/5"`, "ok", ""},
		{"it fails", `echo "model: FAILED runs=1 states=2 violations=4/5"; echo broken >&2; exit 1`, "FAILED", "exit status 1: broken"},
		{"it fails, with a line that is well", `echo "model: ok runs=1 states=2 violations=5/5"; exit 3`, "FAILED", "exit status 3"},
		{"its last line is another", `echo "model: ok runs=1"; echo a row`, "FAILED", `its last line is "a row"`},
		{"it says nothing", `:`, "FAILED", `its last line is ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			script := filepath.Join(t.TempDir(), "run.sh")
			if err := os.WriteFile(script, []byte(c.script), 0o600); err != nil {
				t.Fatal(err)
			}
			var tot total
			var out bytes.Buffer
			tot.runModel(t.Context(), script, &out)
			if tot.model != c.model || (len(tot.errs) > 0) != (c.model == "FAILED") {
				t.Errorf("model=%s, errors %v", tot.model, tot.errs)
			}
			if c.says != "" && (!strings.Contains(fmt.Sprint(tot.errs), c.says) || !strings.HasPrefix(tot.line(), "lock-proof: FAILED model=FAILED ")) {
				t.Errorf("it says %v\n%s", tot.errs, tot.line())
			}
			if c.model == "ok" && !strings.Contains(out.String(), "a row\nmodel: ok runs=1") {
				t.Errorf("the report has %q", &out)
			}
		})
	}
}

// Without spin, the model isn't skipped: the run fails, and says what to install.
func TestModelWithoutSpin(t *testing.T) {
	bin := t.TempDir()
	for _, tool := range []string{"bash", "dirname", "gcc"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	var tot total
	tot.runModel(t.Context(), modelScript, io.Discard)
	if tot.model != "FAILED" || !strings.Contains(fmt.Sprint(tot.errs), "spin is missing: apt-get install spin") {
		t.Errorf("model=%s, errors %v", tot.model, tot.errs)
	}
}

// The documentation has the figures of a run of the model that is kept in docs/internals/reliability.
func TestDocsQuoteTheModel(t *testing.T) {
	t.Parallel()
	kept, doc := keptText(t, "model.txt"), keptText(t, "../reliability.md")
	_, block, found := strings.Cut(doc, "```text\nrun  ")
	block, _, ended := strings.Cut("run  "+block, "\n```")
	lines := strings.Split(block, "\n")
	if !found || !ended || len(lines) < 20 {
		t.Fatalf("docs/internals/reliability.md has no table of the model's runs: %q", block)
	}
	for _, line := range lines {
		if !strings.Contains(kept, "\n"+line+" ") {
			t.Errorf("docs/internals/reliability/model.txt has no line that begins with\n%s", line)
		}
	}
	last := lastLine(kept)
	_, violations, _ := strings.Cut(last, " violations=")
	if found, all, _ := strings.Cut(violations, "/"); !strings.HasPrefix(last, "model: ok ") || found != all || all == "" {
		t.Errorf("the last line of docs/internals/reliability/model.txt is %q", last)
	}
}

// The kept run is a complete one.
func TestKeptRun(t *testing.T) {
	t.Parallel()
	kept := keptText(t, "lock-proof.txt")
	var tot total
	_, err := fmt.Sscanf(lastLine(kept), "lock-proof: model=ok scenarios=4/4 acquisitions=%d faults=%d duplicates=0 order=0 unknown=0",
		&tot.acquisitions, &tot.faults)
	if err != nil || enough(tot.acquisitions, tot.faults, needAcquisitions, needWindows) != nil {
		t.Errorf("docs/internals/reliability/lock-proof.txt ends with %q: %v", lastLine(kept), err)
	}
	for name, begins := range map[string]string{"lock-proof.txt": "lock-proof, long form,", "model.txt": "model, long form,"} {
		if text := keptText(t, name); !strings.HasPrefix(text, begins) {
			t.Errorf("docs/internals/reliability/%s doesn't begin with %q: keep a whole run", name, begins)
		}
	}
}

// keptText reads a file of docs/internals/reliability.
func keptText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/internals/reliability", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
