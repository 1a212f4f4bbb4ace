package signalbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// TestDocsJobs checks that each piece of Go code in docs/jobs.md and docs/scheduling.md is also in jobs_test.go, where it is compiled. A
// line "// ..." in the page stands for code that the page leaves out.
func TestDocsJobs(t *testing.T) {
	t.Parallel()
	code := "\n" + unindented(readText(t, "jobs_test.go")) + "\n"
	for page, least := range map[string]int{"jobs.md": 15, "scheduling.md": 3} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readText(t, filepath.Join("docs", page)), -1)
		if len(blocks) < least {
			t.Errorf("docs/%s has %d blocks of Go code; are the others not seen?", page, len(blocks))
		}
		for _, b := range blocks {
			for piece := range strings.SplitSeq(b[1], "// ...\n") {
				if !strings.Contains(code, "\n"+unindented(piece)+"\n") {
					t.Errorf("this code of docs/%s is not in jobs_test.go:\n%s", page, piece)
				}
			}
		}
	}
}

// TestDocsJobsLog checks that each message that docs/jobs.md explains is the beginning of a message that a worker
// logs.
func TestDocsJobsLog(t *testing.T) {
	t.Parallel()
	page := readText(t, filepath.Join("docs", "jobs.md"))
	_, table, ok := strings.Cut(page, "| message | level |")
	if !ok {
		t.Fatal("docs/jobs.md has no table of messages")
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
			t.Errorf("docs/jobs.md explains %q, which no worker logs", row[1])
		}
	}
}

// TestDocsJobsCommands runs each redis-cli command of docs/jobs.md, and checks that it finds what the page
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

	commands := regexp.MustCompile("(?m)^redis-cli (.*)$").FindAllStringSubmatch(readText(t, filepath.Join("docs", "jobs.md")), -1)
	if len(commands) < 5 {
		t.Errorf("docs/jobs.md has %d commands; are the others not seen?", len(commands))
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
