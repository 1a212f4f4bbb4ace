package signalbox_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// unindented returns the text without the white space at both ends of each line.
func unindented(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// theme returns the pages of a theme as one text: docs/<name>.md, and those of the folder docs/<name>.
func theme(t *testing.T, name string) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join("docs", name, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := readText(t, filepath.Join("docs", name+".md"))
	for _, page := range pages {
		text += "\n" + readText(t, page)
	}
	return text
}

// TestDocsJobs checks that each piece of Go code in docs/jobs.md, docs/jobs, docs/scheduling.md and docs/recipes.md is also in a file
// example_*_test.go, where it is compiled. A line "// ..." in the page stands for code that the page leaves out.
func TestDocsJobs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("example_*_test.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("files with examples: %v, %v", files, err)
	}
	code := "\n"
	for _, file := range files {
		code += unindented(readText(t, file)) + "\n"
	}
	for name, least := range map[string]int{"jobs": 40, "scheduling": 3, "recipes": 12} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(theme(t, name), -1)
		if len(blocks) < least {
			t.Errorf("%s: there are %d blocks of Go code; are the others not seen?", name, len(blocks))
		}
		for _, b := range blocks {
			for piece := range strings.SplitSeq(b[1], "// ...\n") {
				if !strings.Contains(code, "\n"+unindented(piece)+"\n") {
					t.Errorf("this code on %s is in no file example_*_test.go:\n%s", name, piece)
				}
			}
		}
	}
}

// TestDocsEffects checks that each piece of Go code in docs/effects.md and docs/effects is also in a file that is compiled.
func TestDocsEffects(t *testing.T) {
	t.Parallel()
	code := "\n"
	for _, file := range []string{"example_effects_test.go", "tests/outboxsql/docs_test.go", "tests/outboxsql/enqueue_test.go"} {
		code += unindented(readText(t, file)) + "\n"
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(theme(t, "effects"), -1)
	if len(blocks) < 15 {
		t.Errorf("docs/effects has %d blocks of Go code; are the others not seen?", len(blocks))
	}
	for _, b := range blocks {
		for piece := range strings.SplitSeq(b[1], "// ...\n") {
			if !strings.Contains(code, "\n"+unindented(piece)+"\n") {
				t.Errorf("this code of docs/effects is compiled nowhere:\n%s", piece)
			}
		}
	}
}

// TestDocsJobsLog checks that each message that docs/jobs/logs.md explains is the beginning of a message that a worker
// logs.
func TestDocsJobsLog(t *testing.T) {
	t.Parallel()
	page := readText(t, "docs/jobs/logs.md")
	_, table, ok := strings.Cut(page, "| message | level |")
	if !ok {
		t.Fatal("docs/jobs/logs.md has no table of messages")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile("(?m)^\\| `(.*?)`").FindAllStringSubmatch(table, -1)
	if len(rows) < 10 {
		t.Errorf("the table of messages has %d rows; are the others not seen?", len(rows))
	}
	files, err := filepath.Glob("worker/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	var source strings.Builder
	for _, f := range files {
		source.WriteString(readText(t, f))
	}
	for _, row := range rows {
		if !strings.Contains(source.String(), `"signalbox: `+row[1]) {
			t.Errorf("docs/jobs/logs.md explains %q, which no worker logs", row[1])
		}
	}
}

// TestDocsJobsCommands runs each redis-cli command of docs/jobs/questions.md, and checks that it finds what the page
// promises.
func TestDocsJobsCommands(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(args signalbox.Args, opts ...scheduler.EnqueueOption) {
		t.Helper()
		if _, err := s.Enqueue(ctx, args, append(opts, scheduler.Queue("mail"))...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(Receipt{}, scheduler.MaxAttempts(1)) // will be dead
	enqueue(Charge{})                            // will be cancelled
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {Concurrency: 1}}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, func(context.Context, *signalbox.Job, Receipt) error { return errors.New("busy") })
	worker.Handle(w, func(context.Context, *signalbox.Job, Charge) error {
		stop() // Run returns after the worker has logged the job
		return signalbox.Cancel(nil)
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	ctx = t.Context()
	enqueue(Digest{})
	enqueue(Digest{}, scheduler.After(time.Hour))

	commands := regexp.MustCompile("(?m)^redis-cli (.*)$").FindAllStringSubmatch(readText(t, "docs/jobs/questions.md"), -1)
	if len(commands) < 5 {
		t.Errorf("docs/jobs/questions.md has %d commands; are the others not seen?", len(commands))
	}
	for _, c := range commands {
		var args []any
		for word := range strings.FieldsSeq(strings.ReplaceAll(c[1], "'", "")) {
			args = append(args, word)
		}
		reply, err := rdb.Do(ctx, args...).Result()
		found := false
		switch r := reply.(type) {
		case int64:
			found = r == 1
		case []any:
			found = len(r) > 0
		case map[any]any:
			found = len(r) > 0
		}
		if err != nil || !found {
			t.Errorf("%s: %v, %v; want one job, or something", c[1], reply, err)
		}
	}
}

// The columns of the table of faults in docs/choosing-a-lock.md, and the sections of docs/choosing-a-lock/tests.md with the tests of each column.
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
	page := theme(t, "choosing-a-lock")
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
	for name, least := range map[string]int{"choosing-a-lock": 100, "lockers": 20, "effects": 20, "compare": 8} {
		n := 0
		for section := range strings.SplitSeq(fenced.ReplaceAllString(theme(t, name), ""), "\n#") {
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
					t.Errorf("docs/%s names %s: %s", name, test[0], err)
				}
			}
		}
		if n < least {
			t.Errorf("docs/%s names %d tests; are the others not seen?", name, n)
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

var (
	sourceOf = regexp.MustCompile(`\[([A-Z]\d+)\]`)
	sourceIs = regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\*\* `)
	number   = regexp.MustCompile(`\d[\d,.]*\d`)
)

// TestDocsListExamples checks that examples/README.md lists each example, with a command of those that are programs.
func TestDocsListExamples(t *testing.T) {
	t.Parallel()
	page := readText(t, filepath.Join("examples", "README.md"))
	listed := 0
	for _, pattern := range []string{"*", "more/*"} {
		folders, err := filepath.Glob(filepath.Join("examples", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			name := filepath.ToSlash(strings.TrimPrefix(folder, "examples"+string(filepath.Separator)))
			if info, err := os.Stat(folder); err != nil || !info.IsDir() || name == "more" || name == "internal" {
				continue
			}
			listed++
			_, row, found := strings.Cut(page, "\n| ["+name+"]("+name+") | ")
			row, _, _ = strings.Cut(row, "\n")
			if _, err := os.Stat(filepath.Join(folder, "main.go")); !found || err == nil && !strings.Contains(row, "go run .") {
				t.Errorf("examples/README.md lacks %s, or how to run it", name)
			}
		}
	}
	if listed < 10 {
		t.Errorf("%d examples", listed)
	}
}

// TestDocsCompare checks that each cell of docs/compare.md names its source, that each source is used, and that what was measured is in
// docs/benchmarks. TestDocsNameTests checks that the tests exist, TestDocsLinks that the pages do.
func TestDocsCompare(t *testing.T) {
	t.Parallel()
	page := readText(t, filepath.Join("docs", "compare.md"))
	used := make(map[string]bool)
	sources := make(map[string]bool)
	for _, m := range sourceIs.FindAllStringSubmatch(page, -1) {
		if sources[m[1]] {
			t.Errorf("there are two sources %s", m[1])
		}
		sources[m[1]] = true
	}
	for _, m := range sourceOf.FindAllStringSubmatch(page, -1) {
		if used[m[1]] = true; !sources[m[1]] {
			t.Errorf("there is no source %s", m[1])
		}
	}
	for source := range sources {
		if !used[source] {
			t.Errorf("nothing has the source %s", source)
		}
	}
	rows := tableOf(t, page, "| | Signalbox | asynq |")
	for _, row := range rows {
		if len(row) != 8 {
			t.Errorf("%q has %d cells", row[0], len(row))
		}
		for i, cell := range row[1:] {
			marks := sourceOf.FindAllStringSubmatch(cell, -1)
			if len(marks) == 0 || marks[0][1][0] != "SARBKOT"[i] {
				t.Errorf("%q: a cell without a source of that project: %s", row[0], cell)
			}
		}
	}
	if len(rows) < 10 {
		t.Errorf("the table has %d rows; are the others not seen?", len(rows))
	}
	benchmarks := theme(t, "benchmarks")
	for _, row := range tableOf(t, page, "| | Signalbox | peer | source |") {
		for _, figure := range number.FindAllString(row[1]+" "+row[2], -1) {
			if !strings.Contains(benchmarks, figure) {
				t.Errorf("%q: docs/benchmarks doesn't have %s", row[0], figure)
			}
		}
	}
}

var (
	linkTo  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.+)$")
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// slugs returns the anchors that the headings of a page have on GitHub.
func slugs(text string) (all []string) {
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(h[1], "$1")
		all = append(all, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
	}
	return all
}

// TestDocsLinks: each link of a page to another file, or to a heading, leads somewhere.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", ".github/*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	links := 0
	for _, page := range pages {
		for _, m := range linkTo.FindAllStringSubmatch(fenced.ReplaceAllString(readText(t, page), ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, ":") {
				continue // of another site
			}
			links++
			file := page
			if to != "" {
				file = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which isn't there", page, m[1])
			} else if strings.HasSuffix(file, ".md") && anchor != "" && !slices.Contains(slugs(readText(t, file)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, m[1])
			}
		}
	}
	if links < 500 {
		t.Errorf("there are %d links; are the others not seen?", links)
	}
}

// long are the pages that may have more than 2,500 words: those for people who change Signalbox.
var long = []string{"docs/internals/architecture.md", "docs/internals/reliability.md"}

// TestDocsWords: a page of the reference has at most 2,500 words, so that it can be read at one go. A page that has more is split: its first
// part stays docs/<theme>.md, and the others go into the folder docs/<theme>. The README runs a service before its 3,000th word.
func TestDocsWords(t *testing.T) {
	t.Parallel()
	pages := docsPages(t)
	if len(pages) < 20 {
		t.Errorf("there are %d pages; are the others not seen?", len(pages))
	}
	for _, page := range pages {
		switch n := len(strings.Fields(readText(t, page))); {
		case n > 2500 && !slices.Contains(long, page):
			t.Errorf("%s has %d words; a page has at most 2,500", page, n)
		case n <= 2500 && slices.Contains(long, page):
			t.Errorf("%s has only %d words: it need not be among those that may be long", page, n)
		}
	}
	before, _, ok := strings.Cut(readText(t, "README.md"), "\n## A hundred tenants\n") // the section behind the program
	if n := len(strings.Fields(before)); !ok || n > 3000 {
		t.Errorf("README.md has %d words before its service runs; it may have 3,000", n)
	}
}

// TestDocsIndex: README.md has a link to docs/README.md, and from there each page is at most two links away.
func TestDocsIndex(t *testing.T) {
	t.Parallel()
	linked := func(page string) (to []string) {
		for _, m := range linkTo.FindAllStringSubmatch(readText(t, page), -1) {
			file, _, _ := strings.Cut(m[1], "#")
			if strings.HasSuffix(file, ".md") && !strings.Contains(file, ":") {
				to = append(to, filepath.Join(filepath.Dir(page), file))
			}
		}
		return to
	}
	const index = "docs/README.md"
	if !slices.Contains(linked("README.md"), index) {
		t.Errorf("README.md has no link to %s", index)
	}
	near := map[string]bool{index: true}
	for _, page := range linked(index) {
		near[page] = true
		if strings.HasPrefix(page, "docs/") {
			for _, next := range linked(page) {
				near[next] = true
			}
		}
	}
	for _, page := range docsPages(t) {
		if !near[page] && !strings.HasPrefix(page, "docs/decisions/") { // that folder is a list by itself
			t.Errorf("%s is further than two links from %s", page, index)
		}
	}
}

// docsPages returns all pages below docs.
func docsPages(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// TestREADME: the program of README.md runs its job, and a SIGTERM ends it with status 0.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(page)
	if code == nil {
		t.Fatal("README.md has no program")
	}
	srv := redistest.New(t)
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	text := strings.ReplaceAll(string(code[1]), "localhost:6379", srv.Addr())
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.HasSuffix(lines.Text(), "welcome, user 42") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "welcome, user 42") {
		t.Errorf("%v\n%s", err, log.String())
	}
}
