package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
	"github.com/spf13/pflag"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
)

// fromOther are the flags of an import from another system.
type fromOther struct {
	system  string
	url     string
	cluster bool
	queues  []string
	mapping string
	entries string
	yes     bool
	undo    bool
}

func (f *fromOther) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.system, "from", "", "move the tasks of this `system`: asynq")
	flags.StringVar(&f.url, "asynq-redis", "", "URL of asynq's Redis (default ASYNQ_REDIS_URL, or the Redis of --redis)")
	flags.BoolVar(&f.cluster, "asynq-cluster", false, "asynq's Redis is a Cluster; the URL has one of its nodes")
	flags.StringSliceVar(&f.queues, "queue", nil, "only these `queues` of asynq")
	flags.StringVar(&f.mapping, "map", "", "`file` that says what kinds, queues and fields become")
	flags.StringVar(&f.entries, "entries", "", "print asynq's periodic tasks as a cron file, or as Go: `cron` or go")
	flags.BoolVarP(&f.yes, "yes", "y", false, "move the tasks; without it they are only counted")
	flags.BoolVar(&f.undo, "undo", false, "give tasks back to asynq that a move has staged and not put in")
}

// check returns an error for flags that don't go together.
func (f *fromOther) check(changed func(string) bool) error {
	if !changed("from") {
		for _, name := range []string{"asynq-redis", "asynq-cluster", "queue", "map", "entries", "yes", "undo"} {
			if changed(name) {
				return usage("--%s needs --from asynq", name)
			}
		}
		return nil
	}
	switch {
	case f.system != "asynq":
		return usage("--from %q: want asynq", f.system)
	case changed("settings"):
		return usage("--settings is for a file: asynq has no settings of this kind")
	case f.yes && changed("dry-run"):
		return usage("--yes and --dry-run are given together: want one of them")
	case f.entries != "" && f.entries != "cron" && f.entries != "go":
		return usage("--entries %q: want cron or go", f.entries)
	case f.entries != "" && (f.yes || f.undo) || f.undo && f.yes:
		return usage("want one of --entries, --undo and --yes")
	}
	return nil
}

// asynqClient returns a client that has reached asynq's Redis.
func (a *app) asynqClient(ctx context.Context, f *fromOther, here redis.UniversalClient) (redis.UniversalClient, error) {
	url := cmp.Or(f.url, a.env("ASYNQ_REDIS_URL"))
	if url == "" {
		return here, nil
	}
	conn := a.connection
	conn.url, conn.cluster, conn.sentinels, conn.master = url, f.cluster, nil, ""
	nothing := func(string) string { return "" } // the user and the password of the other Redis aren't for this one
	rdb, _, err := a.reach(ctx, &conn, nothing, "--asynq-cluster")
	return rdb, err
}

func (a *app) importAsynq(ctx context.Context, f *fromOther, dry bool) error {
	cfg := fromasynq.Config{Namespace: a.namespace(), Queues: f.queues}
	if f.mapping != "" {
		file, err := os.Open(f.mapping)
		if err != nil {
			return usage("--map: %v", err)
		}
		cfg.Map, err = fromasynq.ReadMap(file)
		_ = file.Close() // it was only read
		if err != nil {
			return usage("--map: %s", strings.TrimPrefix(err.Error(), "fromasynq: "))
		}
	}
	here, err := a.connect(ctx)
	if err != nil {
		return err
	}
	there, err := a.asynqClient(ctx, f, here)
	if err != nil {
		return err
	}
	p, began := a.progress(""), time.Now()
	cfg.Progress = func(now fromasynq.Report) { p.print(func() string { return asynqProgress(now, time.Since(began)) }) }
	m, err := fromasynq.New(there, here, cfg)
	if err != nil {
		return err
	}
	if f.entries != "" {
		return a.printPeriodic(ctx, m, f.entries)
	}
	call, verb := m.Plan, "would be moved"
	switch {
	case f.undo:
		call, verb = m.Undo, "moved"
		if dry {
			return usage("--undo and --dry-run are given together: without --yes an import shows how many tasks are staged")
		}
	case f.yes:
		call, verb = m.Move, "moved"
	}
	report, err := call(ctx)
	p.end()
	if err != nil && report.Moved+report.Ended+report.Back > 0 && (f.yes || f.undo) {
		err = &partError{fmt.Sprintf("%s moved, the call may be repeated", tasks(report.Moved+report.Ended)), err}
	}
	if a.json() {
		return errors.Join(a.document(asynqJSONOf(&report, !f.yes && !f.undo)), err)
	}
	if err != nil {
		return err
	}
	a.printAsynq(&report, verb, f.undo)
	if f.yes || f.undo {
		return nil
	}
	if entries, err := m.Entries(ctx); err == nil && len(entries) > 0 {
		fmt.Fprintf(a.out, "%s: they are never moved. --entries cron, or go, prints them\n", strings.Replace(tasks(int64(len(entries))), " task", " periodic task", 1))
	}
	a.note("nothing was moved. To move: --yes")
	return nil
}

// asynqProgress returns how far a move is, and how long the rest may take.
func asynqProgress(now fromasynq.Report, took time.Duration) string {
	done := now.Moved + now.Ended + now.Back + now.Gone
	line := fmt.Sprintf("%d of %s", done, tasks(now.Total))
	if rest := now.Total - done; done > 0 && rest > 0 {
		line += fmt.Sprintf(", about %v left", (took * time.Duration(rest) / time.Duration(done)).Round(time.Second))
	}
	return line
}

func tasks(n int64) string { return plural(int(n), "task") }

// maxAsynqLines is how many lines of counts are printed.
const maxAsynqLines = 100

// printAsynq prints a report: first what can't be moved.
func (a *app) printAsynq(r *fromasynq.Report, verb string, undo bool) {
	for _, part := range []struct {
		head   string
		counts []fromasynq.Count
	}{{"stay in asynq:", r.Stays}, {"will be another way here:", r.Differs}} {
		if len(part.counts) == 0 {
			continue
		}
		fmt.Fprintln(a.out, part.head)
		t := a.table(column{name: "TASKS", right: true}, column{name: "QUEUE", cut: 10}, column{name: "KIND", cut: 12}, column{name: "WHY"})
		for _, c := range part.counts[:min(len(part.counts), maxAsynqLines)] {
			t.row(strconv.FormatInt(c.Tasks, 10), c.Queue, c.Type, c.Reason)
		}
		t.flush()
		if more := len(part.counts) - maxAsynqLines; more > 0 {
			fmt.Fprintf(a.out, "%d lines more: -o json has them\n", more)
		}
		fmt.Fprintln(a.out)
	}
	if !undo {
		fmt.Fprintf(a.out, "%s %s\n", tasks(r.Moved), verb)
	}
	for _, of := range []struct {
		n    int64
		says string
	}{
		{r.Ended, "had been put in by an earlier call"},
		{r.Back, "given back to asynq"},
		{r.Stayed(), "stay in asynq"},
		{r.Gone, "had started or changed before their turn: run it again"},
		{r.Active, "run in asynq: run it again when they have ended"},
		{r.Groups, "wait in groups to be aggregated: these are never moved, only the tasks that asynq's server makes of them"},
		{r.Completed, "are kept in asynq after they have completed: these are never moved"},
	} {
		if of.n > 0 {
			fmt.Fprintf(a.out, "%s %s\n", tasks(of.n), of.says)
		}
	}
	if len(r.Paused) > 0 {
		fmt.Fprintf(a.out, "paused, as in asynq: %s\n", strings.Join(r.Paused, ", "))
	}
}

// asynqJSON is what became of tasks. docs/cli/json.md has its fields.
type asynqJSON struct {
	DryRun    bool         `json:"dry_run"`
	Total     int64        `json:"total"`
	Moved     int64        `json:"moved"`
	Ended     int64        `json:"ended"`
	Back      int64        `json:"back"`
	Gone      int64        `json:"gone"`
	Active    int64        `json:"active"`
	Groups    int64        `json:"groups"`
	Completed int64        `json:"completed"`
	Paused    []string     `json:"paused"`
	Stays     []asynqCount `json:"stays"`
	Differs   []asynqCount `json:"differs"`
}

type asynqCount struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	Why   string `json:"why"`
	Tasks int64  `json:"tasks"`
}

func asynqJSONOf(r *fromasynq.Report, dry bool) asynqJSON {
	list := func(counts []fromasynq.Count) []asynqCount {
		all := make([]asynqCount, len(counts))
		for i, c := range counts {
			all[i] = asynqCount{c.Queue, c.Type, c.Reason, c.Tasks}
		}
		return all
	}
	return asynqJSON{
		DryRun: dry, Total: r.Total, Moved: r.Moved, Ended: r.Ended, Back: r.Back, Gone: r.Gone, Active: r.Active, Groups: r.Groups, Completed: r.Completed,
		Paused: append([]string{}, r.Paused...), Stays: list(r.Stays), Differs: list(r.Differs),
	}
}

// A cronLine is an entry of a cron file.
type cronLine struct {
	Name        string          `json:"name"`
	Spec        string          `json:"spec"`
	Kind        string          `json:"kind"`
	Args        json.RawMessage `json:"args,omitempty"`
	Queue       string          `json:"queue,omitempty"`
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Timeout     string          `json:"timeout,omitempty"`
	Retain      string          `json:"retain,omitempty"`
	Starting    string          `json:"starting,omitempty"`
}

var (
	asynqOption = regexp.MustCompile(`^(\w+)\((.*)\)$`)
	notInNames  = regexp.MustCompile(`[^!-z|~]+`)
)

// cronLineOf returns the entry of a periodic task, and what of it has no counterpart.
func cronLineOf(e *fromasynq.Entry, used map[string]bool) (line cronLine, lost []string) {
	name := notInNames.ReplaceAllString(e.Type, "-")
	for n := 2; used[name]; n++ {
		name = fmt.Sprintf("%s-%d", notInNames.ReplaceAllString(e.Type, "-"), n)
	}
	used[name] = true
	line = cronLine{Name: name, Spec: e.Spec, Kind: e.Type}
	if !e.Next.IsZero() {
		line.Starting = e.Next.UTC().Format(time.RFC3339)
	}
	if strings.Contains(e.Spec, "@every") {
		lost = append(lost, "@every counts from the start of the process in asynq, and from 1970 here")
	} else if !e.Next.IsZero() && !isTick(e.Spec, e.Next) {
		lost = append(lost, fmt.Sprintf("its time zone, which asynq doesn't tell: its next task, at %s, is no tick of %q in UTC. Give the entry its zone", line.Starting, e.Spec))
	}
	switch {
	case len(e.Payload) == 0:
	case json.Valid(e.Payload):
		line.Args = e.Payload
	default:
		lost = append(lost, "its payload, which isn't JSON")
	}
	for _, option := range e.Options {
		var ok bool
		if part := asynqOption.FindStringSubmatch(option); part != nil {
			ok = line.set(part[1], part[2])
		}
		if !ok {
			lost = append(lost, "the option "+option)
		}
	}
	return line, lost
}

// isTick reports whether a time is a tick of a spec, in UTC if the spec has no zone. asynq has this parser, too.
func isTick(spec string, at time.Time) bool {
	s, err := cron.ParseStandard(spec)
	return err == nil && s.Next(at.Add(-time.Second).UTC()).Equal(at)
}

// set sets what an option of asynq says. It reports whether there is a counterpart.
func (line *cronLine) set(option, value string) bool {
	switch option {
	case "Queue":
		name, err := strconv.Unquote(value)
		line.Queue = name
		return err == nil
	case "MaxRetry":
		n, err := strconv.Atoi(value)
		line.MaxAttempts = n + 1
		return err == nil
	case "Timeout":
		line.Timeout = value
	case "Retention":
		line.Retain = value
	default:
		return false
	}
	_, err := time.ParseDuration(value)
	return err == nil
}

// goLine returns the entry as a call of a Scheduler.
func (line *cronLine) goLine() string {
	var opts strings.Builder
	add := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&opts, ", "+format, args...)
		}
	}
	add(line.Queue != "", "scheduler.Queue(%q)", line.Queue)
	add(line.MaxAttempts > 0, "scheduler.MaxAttempts(%d)", line.MaxAttempts)
	duration := func(option, value string) {
		if d, err := time.ParseDuration(value); err == nil {
			add(true, "scheduler.%s(%d*time.Second)", option, int64(d.Seconds()))
		}
	}
	duration("Timeout", line.Timeout)
	duration("Retain", line.Retain)
	if t, err := time.Parse(time.RFC3339, line.Starting); err == nil {
		add(true, "scheduler.Starting(time.Unix(%d, 0))", t.Unix())
	}
	return fmt.Sprintf("err = s.Cron(%q, %q, %s{}%s) // args: %s", line.Name, line.Spec, goName(line.Kind), opts.String(), cmp.Or(string(line.Args), "{}"))
}

var wordStart = regexp.MustCompile(`(?:^|[^A-Za-z0-9]+)([A-Za-z0-9])`)

// goName returns a name for the type of a kind's args.
func goName(kind string) string {
	name := wordStart.ReplaceAllStringFunc(kind, func(s string) string { return strings.ToUpper(s[len(s)-1:]) })
	return strings.Trim(name, "-_:./") + "Args"
}

// printPeriodic prints asynq's periodic tasks.
func (a *app) printPeriodic(ctx context.Context, m *fromasynq.Mover, form string) error {
	entries, err := m.Entries(ctx)
	if err != nil {
		return err
	}
	lines, used := make([]cronLine, len(entries)), make(map[string]bool)
	for i := range entries {
		var lost []string
		lines[i], lost = cronLineOf(&entries[i], used)
		for _, what := range lost {
			a.note("%s: %s", lines[i].Name, clean(what))
		}
	}
	if form == "go" {
		for i := range lines {
			fmt.Fprintln(a.out, lines[i].goLine())
		}
		return nil
	}
	text, err := json.MarshalIndent(lines, "", "  ")
	if err != nil {
		return fmt.Errorf("%w entries: %w", signalbox.ErrInvalid, err)
	}
	fmt.Fprintf(a.out, "%s\n", text)
	return nil
}
