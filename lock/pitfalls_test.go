package lock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	quotedTest  = regexp.MustCompile("`(Test\\w+)`")
	quotedCheck = regexp.MustCompile("`([A-Z]\\w+)`") // a test or a subtest
	quotedName  = regexp.MustCompile("`([^`]+)`")
	testFunc    = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	mutantRuns  = regexp.MustCompile(`(?m)^# test: \S+ -run '([^']+)'(?: -[a-z.]+=[0-9]+)?$`)
)

// What docs/internals/reliability.md names is there: the tests, and the bugs of testdata/mutants, each of
// which is for a test of its row.
func TestPitfalls(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/internals/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	doc, tests := string(text), testsBelow(t, "..")
	for _, name := range quotedTest.FindAllStringSubmatch(doc, -1) {
		if !tests[name[1]] {
			t.Errorf("there is no %s", name[1])
		}
	}

	_, pitfalls, found := strings.Cut(doc, "\n## What went wrong elsewhere\n")
	pitfalls, _, _ = strings.Cut(pitfalls, "\n## ")
	rows := seededRows(pitfalls)
	if !found || len(rows) != 16 {
		t.Fatalf("%d pitfalls", len(rows))
	}
	for i, cells := range rows {
		if want := fmt.Sprint(i + 1); len(cells) != 5 || cells[0] != want {
			t.Fatalf("pitfall %s: %q", want, cells)
		}
		offered := cells[2] != "not offered"
		if offered != quotedTest.MatchString(cells[3]) || offered != quotedName.MatchString(cells[4]) {
			t.Errorf("pitfall %s has no test or no seeded bug, or is not offered and has: %q", cells[0], cells)
		}
	}

	for _, cells := range seededRows(doc) {
		var named []string
		for _, name := range quotedCheck.FindAllStringSubmatch(strings.Join(cells[:len(cells)-1], " "), -1) {
			named = append(named, name[1])
		}
		for _, bug := range quotedName.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if err := findsOneOf(bug[1], named); err != nil {
				t.Errorf("in the row %q: %v", cells[0], err)
			}
		}
	}
}

// seededRows are the rows of the tables whose last column is of seeded bugs, as their cells.
func seededRows(doc string) (rows [][]string) {
	within := false
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, "| seeded bug |"):
			within = true
		case !strings.HasPrefix(line, "|"):
			within = false
		case within && !strings.HasPrefix(line, "|---"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i, cell := range cells {
				cells[i] = strings.TrimSpace(cell)
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// findsOneOf returns an error if the bug is not there, or is found by none of the tests. A subtest may be named
// by its own name alone.
func findsOneOf(bug string, tests []string) error {
	text, err := os.ReadFile(filepath.Join("../testdata/mutants", bug+".bug"))
	if err != nil {
		return err
	}
	header := mutantRuns.FindSubmatch(text)
	if header == nil {
		return fmt.Errorf("%s names no test", bug)
	}
	for level := range strings.SplitSeq(string(header[1]), "/") {
		for _, name := range tests {
			if ok, err := regexp.MatchString("^(?:"+level+")", name); ok || err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s is found by %s, and the row has %v", bug, header[1], tests)
}

// testsBelow has the names of all tests in a tree.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range testFunc.FindAllSubmatch(text, -1) {
			names[string(name[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
