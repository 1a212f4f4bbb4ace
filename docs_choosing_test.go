package signalbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The columns of the tables of faults in docs/choosing-a-lock.md, and the sections with the tests of each column.
var lockers = []string{"one Redis", "Redlock", "etcd", "ZooKeeper", "PostgreSQL"}

var (
	fenced     = regexp.MustCompile("(?s)```.*?```")
	quoted     = regexp.MustCompile("`([^`]+)`")
	quotedTest = regexp.MustCompile(`^(?:(\S+) )?((?:Test|Fuzz|Example)[A-Z]\w*)((?:/\w+)*)$`)
	testsAreIn = regexp.MustCompile("(?m)^Tests are in `([^`]+)`")
)

// TestDocsChoosingALock checks that each cell of the table of faults is backed by tests, and that the sections with
// the tests say the same as the table. TestDocsNameTests checks that the tests exist.
func TestDocsChoosingALock(t *testing.T) {
	t.Parallel()
	page := readText(t, filepath.Join("docs", "choosing-a-lock.md"))
	faults := tableOf(t, page, "| fault | one Redis |")
	if len(faults) != 9 {
		t.Errorf("there are %d faults; are the others not seen?", len(faults))
	}
	for i, locker := range lockers {
		section := sectionOf(t, page, "### The tests: "+locker)
		rows := tableOf(t, section, "| fault | alone |")
		if len(rows) != len(faults) {
			t.Fatalf("%s: tests of %d faults; want %d", locker, len(rows), len(faults))
		}
		for n, row := range rows {
			fault, cell := faults[n][0], faults[n][i+1]
			if row[0] != fault || row[1]+" → "+row[3] != cell {
				t.Errorf("%s: the tests are for %q: %s → %s; the table has %q: %s", locker, row[0], row[1], row[3], fault, cell)
			}
			for _, shown := range [][2]string{{row[1], row[2]}, {row[3], row[4]}} {
				switch verdict, tests := shown[0], shown[1]; {
				case !strings.Contains("|safe|late write|two holders|clocks|**unsafe**|", "|"+verdict+"|"):
					t.Errorf("%s, %s: what is %q?", locker, fault, verdict)
				case len(testsNamed(tests)) == 0:
					t.Errorf("%s, %s: %q is shown by no test: %s", locker, fault, verdict, tests)
				}
			}
		}
	}
}

// TestDocsNameTests checks that each test which these pages name exists. A name is a path of a package, a space, the test
// and perhaps a subtest. Without a path it is in the package that the section names.
func TestDocsNameTests(t *testing.T) {
	t.Parallel()
	for page, least := range map[string]int{"choosing-a-lock.md": 100, "lockers.md": 20, "effects.md": 20} {
		n := 0
		for section := range strings.SplitSeq(fenced.ReplaceAllString(readText(t, filepath.Join("docs", page)), ""), "\n#") {
			in := ""
			if m := testsAreIn.FindStringSubmatch(section); m != nil {
				in = m[1]
			}
			for _, test := range testsNamed(section) {
				n++
				dir := test[1]
				switch {
				case strings.HasPrefix(test[2], "TestDocs"):
					dir = "."
				case dir == "":
					dir = in
				}
				if err := testExists(dir, test[2], test[3]); err != "" {
					t.Errorf("docs/%s names %s: %s", page, test[0], err)
				}
			}
		}
		if n < least {
			t.Errorf("docs/%s names %d tests; are the others not seen?", page, n)
		}
	}
}

// testsNamed returns the tests that a text names: the whole, the path or "", the test, and "" or its subtest as /name.
func testsNamed(text string) (tests [][]string) {
	for _, q := range quoted.FindAllStringSubmatch(text, -1) {
		if m := quotedTest.FindStringSubmatch(q[1]); m != nil {
			tests = append(tests, m)
		}
	}
	return tests
}

// testExists returns what is wrong with a test's name, or "". The names of subtests must be texts in the package's tests,
// or in those of package locktest that all lockers share, or in the package itself.
func testExists(dir, name, sub string) string {
	if dir == "" {
		return "in which package?"
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return "there is no package " + dir
	}
	suite, err := filepath.Glob("lock/locktest/*.go")
	if err != nil {
		return err.Error()
	}
	var tests, all strings.Builder
	for _, file := range append(files, suite...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		all.Write(text)
		if strings.HasSuffix(file, "_test.go") && filepath.Dir(file) == filepath.Clean(dir) {
			tests.Write(text)
		}
	}
	if !strings.Contains(tests.String(), "\nfunc "+name+"(") {
		return "there is no such test in " + dir
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(sub, "/"), "/") {
		if part != "" && !strings.Contains(all.String(), `"`+part+`"`) {
			return "there is no subtest " + part
		}
	}
	return ""
}

// sectionOf returns what is below a heading, up to the next one.
func sectionOf(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	section, _, _ := strings.Cut(rest, "\n#")
	return section
}

// tableOf returns the rows of the table whose head begins so, as their cells.
func tableOf(t *testing.T, text, head string) (rows [][]string) {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+head)
	if !ok {
		t.Fatalf("there is no table %q", head)
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(table, "\n")
	for _, line := range lines[2:] {
		if line == "" {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}
