package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// Dead jobs are grouped by what they died of, and the flags that the command names find those of a group.
func TestJobErrors(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.fails(exitNotFound, []string{"no such queue"}, "job", "errors", "mail")
	sh.ok("enqueue", "email.welcome", "{}", "-q", "mail", "--id", "later", "--after", "1h")
	if out, errs, code := sh.run("job", "errors", "mail"); out != "" || code != exitOK || !strings.Contains(errs, "Queue mail has no dead job.") {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	sh.ended(srv, "a", "b", "c")
	var got deadSummaryJSON
	sh.into(&got, "job", "errors", "mail")
	if got.Queue != "mail" || got.Dead != 3 || got.Looked != 3 || got.Unreadable != 0 || len(got.Groups) != 1 || got.More != 0 {
		t.Fatalf("%+v", got)
	}
	g := got.Groups[0]
	if g.Count != 3 || g.Kind == "" || g.Error == "" || g.Example == "" || g.First == nil || g.Last == nil || g.Filter.Kind != g.Kind || g.Filter.Error == "" {
		t.Errorf("%+v", g)
	}
	out := sh.ok("job", "retry", "mail", "--state", "dead", "--kind", g.Filter.Kind, "--error", g.Filter.Error, "--dry-run", "-o", "json")
	if !strings.Contains(out, `"matched":3`) {
		t.Errorf("%+v names %s", g.Filter, out)
	}
	table, errs, code := sh.run("job", "errors", "mail")
	if code != exitOK || !strings.Contains(table, g.Error) || !strings.Contains(table, g.Example) || !strings.Contains(errs, "signalbox job retry mail --state dead --kind "+g.Kind+" --error '"+g.Filter.Error+"' --dry-run") {
		t.Errorf("%d, %s\n%s", code, table, errs)
	}
	sh.fails(exitUsage, []string{"--limit -1", "want 0 or more"}, "job", "errors", "mail", "--limit", "-1")
	sh.fails(exitUsage, []string{"errors QUEUE"}, "job", "errors")
}

// The table has the groups, and below it is what isn't in it.
func TestErrorsTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)
	s := &inspect.DeadSummary{Queue: "mail", Dead: 25_300, Looked: 10_000, Unreadable: 2, Groups: []inspect.ErrorGroup{
		{Kind: "email.welcome", Error: "it's away: <*>\x1b[2J", Count: 9_990, First: now.Add(-time.Hour), Last: now.Add(-time.Minute), Example: "j1", Filter: inspect.Filter{Kind: "email.welcome", Error: "it's away:"}},
		{Kind: "sms", Count: 8, First: now.Add(-time.Minute), Last: now, Example: "j2"},
	}}
	var out bytes.Buffer
	a := &app{out: &out, err: &out, flush: func() {}, output: "table"}
	a.printErrors(s, 1, now)
	same(t, strings.TrimSpace(out.String()), `
		DEAD  KIND           ERROR                       LAST   FIRST  EXAMPLE
		9990  email.welcome  it's away: <*>\u001b[2J   1m ago  1h ago  j1
		   8  sms            -                        0ms ago  1m ago  j2
		1 group more: see --limit.
		2 records can't be read and are in no group: see signalbox doctor.
		10000 of 25300 dead jobs were looked at: those that died last.
		The first group, and what else these flags name: signalbox job retry mail --state dead --kind email.welcome --error 'it'\''s away:' --dry-run`)
}
