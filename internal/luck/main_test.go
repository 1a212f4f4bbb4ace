package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// suite is a package whose tests fail as FAILS says: a letter for each run of each test.
const suite = `package suite

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func fail(t *testing.T, how byte) {
	switch how {
	case '.':
	case 'a':
		t.Errorf("still not so after 3 s:\n\tand more")
	case 't':
		t.Error("still not so after 3 s: two\n\tran twice")
	case 'l': // lines of logs before and after it
		fmt.Fprintln(t.Output(), "a worker that died or lost its lease")
		t.Error("still not so after 3 s")
		fmt.Fprintln(t.Output(), "a worker that died or lost its lease")
		t.Log("log of the server at 127.0.0.1:6379:\nconnection lost")
		t.Log("redistest: on the embedded Redis, not a real one")
	case 'd':
		t.Error("runs: got 2, want 1")
	case 'r':
		fmt.Println("WARNING: DATA RACE")
		t.Error("a race")
	case 'p':
		panic("a bug")
	case 'n':
		t.FailNow()
	case 'e':
		os.Exit(3)
	}
}

// next is how the test fails now, by a file that gets a line for each of its runs.
func next(t *testing.T) {
	file := os.Getenv("RUNS") + "/" + strings.ReplaceAll(t.Name(), "/", "_")
	runs, _ := os.ReadFile(file)
	os.WriteFile(file, append(runs, '.'), 0o600)
	how := "."
	for _, f := range strings.Fields(os.Getenv("FAILS")) {
		if name, all, _ := strings.Cut(f, "="); name == t.Name() {
			how = all
		}
	}
	fail(t, how[min(len(runs), len(how)-1)])
}

func TestOne(t *testing.T)   { t.Run("sub", next) }
func TestTwo(t *testing.T)   { next(t) }
func TestThree(t *testing.T) { next(t) }
`

// goSuite is a module with the suite.
func goSuite(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/suite\n\ngo 1.26\n", "suite_test.go": suite} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
}

func TestLuck(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	goSuite(t)
	for name, c := range map[string]struct {
		fails string
		want  string // the error has it; no error if it is empty
		luck  int    // tests that had it
	}{
		"all pass":                             {"", "", 0},
		"one passes at its second run":         {"TestTwo=a.", "", 1},
		"one passes at its third run":          {"TestTwo=aa.", "", 1},
		"one of a subtest":                     {"TestOne/sub=a.", "", 1},
		"two pass at their second run":         {"TestTwo=a. TestThree=a.", "", 2},
		"the logs have words of promises":      {"TestOne/sub=l. TestTwo=l.", "", 2},
		"a job ran too often":                  {"TestTwo=d.", "runs: got 2, want 1", 0},
		"one never passes":                     {"TestTwo=aaa.", "TestTwo also fails alone", 0},
		"three fail":                           {"TestOne/sub=a. TestTwo=a. TestThree=a.", "3 tests failed", 0},
		"a promise is broken":                  {"TestTwo=t.", `the word "twice"`, 0},
		"a promise is broken at the second go": {"TestTwo=at.", `the word "twice"`, 0},
		"a race":                               {"TestTwo=r.", "DATA RACE", 0},
		"a panic":                              {"TestTwo=p.", "panic", 0},
		"no assertion":                         {"TestTwo=n.", "no assertion failed", 0},
		"the process ends":                     {"TestTwo=e.", "fails without a test that does", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAILS", c.fails)
			t.Setenv("RUNS", t.TempDir())
			folder := t.TempDir()
			err := run(folder, "a step", []string{"-count=1", "-timeout", "1m", "./..."}, io.Discard)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v; want %q", err, c.want)
			}
			if all, err := os.ReadDir(folder); err != nil || len(all) != c.luck {
				t.Errorf("%d tests had luck, %v; want %d", len(all), err, c.luck)
			}
		})
	}
}

// A test has luck once, and two have it in all steps together.
func TestLuckIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	goSuite(t)
	folder := t.TempDir()
	step := func(fails string) error {
		t.Setenv("FAILS", fails)
		t.Setenv("RUNS", t.TempDir())
		return run(folder, "a step", []string{"-count=1", "."}, io.Discard)
	}
	if err := step("TestTwo=a."); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "example.com_suite.TestTwo")); err != nil ||
		!strings.HasPrefix(string(text), "luck: example.com/suite.TestTwo, in \"a step\"") || !strings.Contains(string(text), "still not so after 3 s") {
		t.Errorf("it is told as %q, %v", text, err)
	}
	if err := step("TestTwo=a."); err == nil || !strings.Contains(err.Error(), "TestTwo had luck in an earlier step, too") {
		t.Errorf("luck in two steps: %v", err)
	}
	if err := step("TestThree=a."); err != nil {
		t.Error(err)
	}
	if err := step("TestOne/sub=a."); err == nil || !strings.Contains(err.Error(), "3 tests had luck in this run") {
		t.Errorf("luck of a third test: %v", err)
	}
}

func TestBuildFails(t *testing.T) {
	goSuite(t)
	if err := os.WriteFile("more_test.go", []byte("package suite\n\nvar x = y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.TempDir(), "a step", []string{"."}, io.Discard); err == nil || !strings.Contains(err.Error(), "fails without a test that does") {
		t.Errorf("error %v", err)
	}
}
