package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
)

// enqueueFlags are the options of a job that a shell enqueues.
type enqueueFlags struct {
	queue, id, effect string
	group, serial     string
	yields            bool
	at                string
	after, timeout    spanFlag
	expire            spanFlag
	deadline          string
	priority          string
	attempts          int
	retain            retainFlag
	headers           map[string]string
	ifAbsent          bool
}

func (a *app) enqueueCommand() *cobra.Command {
	var f enqueueFlags
	var c *cobra.Command
	c = a.command("enqueue KIND [ARGS] [flags]", "Put a job into a queue", cobra.RangeArgs(1, 2), func(ctx context.Context, args []string) error {
		job := shellArgs{kind: args[0], payload: json.RawMessage("{}")}
		if len(args) == 2 {
			var err error
			if job.payload, err = a.payload(args[1]); err != nil {
				return err
			}
		}
		opts, err := f.options(c.Flags().Changed)
		if err != nil {
			return err
		}
		rdb, err := a.connect(ctx)
		if err != nil {
			return err
		}
		s, err := scheduler.New(rdb, scheduler.Config{
			Namespace: a.namespace(), EnqueueTimeout: a.connection.timeout, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		r, err := s.Enqueue(ctx, job, opts...)
		if err != nil {
			return a.enqueueError(err, r.ID)
		}
		a.hook.registered(ctx)
		if err := a.printEnqueued(f.queue, r); err != nil {
			return err
		}
		a.warnOfNobody(ctx, rdb, f.queue)
		return nil
	})
	c.Long = `Put a job into a queue: now, at a time, or after a while.

KIND says which handler runs it. ARGS are the arguments of the handler as JSON:
text, @FILE to read a file, or - to read the standard input. Without ARGS they
are {}. The handler's program decides what they mean, so they are not checked
here. Defaults of its kind in Go (queue, priority, attempts, timeout, retain,
expire after) are not known here either: give it by flags.

Without --id the job gets a new random ID. With --id, a job of this ID that is
scheduled, ready or running stays as it is: the output says so, and the exit
code is 0. So a script can repeat the call.`
	c.Example = `  signalbox enqueue email.welcome '{"UserID":42}'
  signalbox enqueue report @report.json --queue reports --after 2h --priority low
  echo '{"order":17}' | signalbox enqueue invoice - --id order-17`
	flags := c.Flags()
	flags.StringVarP(&f.queue, "queue", "q", signalbox.DefaultQueue, "the queue")
	flags.StringVar(&f.id, "id", "", "the job's ID (default a new one)")
	flags.StringVar(&f.at, "at", "", "the `time` when the job is due, in RFC 3339: 2026-01-31T09:00:00Z")
	flags.Var(&f.after, "after", "the job is due so much later, such as 90s, 2h or 3d")
	flags.StringVar(&f.priority, "priority", "normal", "high, normal or low")
	flags.IntVar(&f.attempts, "max-attempts", 0, fmt.Sprintf("how often the job is tried before it is dead (default %d)", signalbox.DefaultMaxAttempts))
	flags.Var(&f.timeout, "job-timeout", "bound of each attempt (default none)")
	flags.Var(&f.retain, "retain", "how long the job is kept after it has ended, such as 12h or 30d; or none (default what the queue says)")
	flags.Var(&f.expire, "expire-after", "the job ends as dead if it hasn't started so long after it is due, such as 5m (default never)")
	flags.StringVar(&f.deadline, "deadline", "", "the `time` when the time for the job is over, in RFC 3339: no attempt begins or goes on after it (default none)")
	flags.StringToStringVar(&f.headers, "header", nil, "a header as `name=value`; may be repeated")
	flags.StringVar(&f.group, "group", "", "the `key` of a group whose jobs take turns with those of others")
	flags.BoolVar(&f.yields, "yield-on-retry", false, "with --serial: others go on while this job waits for its retry")
	flags.StringVar(&f.serial, "serial", "", "the `key` of a group whose jobs run one at a time, in order")
	flags.StringVar(&f.effect, "effect-key", "", "the `key` under which the handler records the job's effect (default made from queue and ID)")
	flags.BoolVar(&f.ifAbsent, "if-absent", false, "leave a dead, cancelled or completed job of this ID as it is, too")
	c.ValidArgsFunction = cobra.NoFileCompletions
	_ = c.RegisterFlagCompletionFunc("queue", a.completeQueues(-1))
	_ = c.RegisterFlagCompletionFunc("priority", priorities)
	return c
}

// options returns what the flags say that were given: a kind's own defaults are unknown here.
func (f *enqueueFlags) options(changed func(string) bool) ([]scheduler.EnqueueOption, error) {
	switch {
	case changed("at") && changed("after"):
		return nil, usage("--at and --after: want one of them")
	case changed("deadline") && changed("expire-after"):
		return nil, usage("--deadline and --expire-after: want one of them")
	case changed("group") && changed("serial"):
		return nil, usage("--group and --serial: want one of them")
	case f.yields && !changed("serial"):
		return nil, usage("--yield-on-retry goes with --serial")
	}
	opts := []scheduler.EnqueueOption{scheduler.Queue(f.queue), scheduler.Headers(f.headers)}
	if changed("id") {
		opts = append(opts, scheduler.ID(f.id))
	}
	if changed("at") {
		t, err := parseTime("--at", f.at)
		if err != nil {
			return nil, err
		}
		opts = append(opts, scheduler.At(t))
	}
	if changed("after") {
		opts = append(opts, scheduler.After(f.after.d))
	}
	if changed("priority") {
		p, err := parsePriority("--priority", f.priority)
		if err != nil {
			return nil, err
		}
		opts = append(opts, scheduler.Priority(p))
	}
	if changed("max-attempts") {
		opts = append(opts, scheduler.MaxAttempts(f.attempts))
	}
	if changed("job-timeout") {
		opts = append(opts, scheduler.Timeout(f.timeout.d))
	}
	if changed("retain") {
		opts = append(opts, scheduler.Retain(f.retain.d))
	}
	if changed("expire-after") {
		opts = append(opts, scheduler.ExpireAfter(f.expire.d))
	}
	if changed("deadline") {
		t, err := parseTime("--deadline", f.deadline)
		if err != nil {
			return nil, err
		}
		opts = append(opts, scheduler.Deadline(t))
	}
	if changed("group") {
		opts = append(opts, scheduler.Group(f.group))
	}
	if f.yields {
		opts = append(opts, scheduler.YieldOnRetry())
	}
	if changed("serial") {
		opts = append(opts, scheduler.Serial(f.serial))
	}
	if changed("effect-key") {
		opts = append(opts, scheduler.EffectKey(f.effect))
	}
	if f.ifAbsent {
		opts = append(opts, scheduler.IfAbsent())
	}
	return opts, nil
}

// warnOfNobody says so if no worker works a queue: its name may be wrong. A user who may only enqueue isn't told.
func (a *app) warnOfNobody(ctx context.Context, rdb redis.UniversalClient, queue string) {
	if a.json() {
		return // the note would not be shown
	}
	if ins, err := inspect.New(rdb, inspect.Config{Namespace: a.namespace()}); err == nil {
		a.noteNobody(ctx, ins, queue)
	}
}

// noteNobody says so if no worker works a queue, or nobody has ever used it.
func (a *app) noteNobody(ctx context.Context, ins *inspect.Inspector, queue string) {
	if q, err := ins.Queue(ctx, queue); err == nil && len(q.Workers) == 0 || errors.Is(err, inspect.ErrNoQueue) {
		a.note("no worker works queue %s now; \"signalbox queue ls\" lists the queues that there are", queue)
	}
}

func parseTime(flag, s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.IsZero() {
		return t, usage("%s %q: want a time in RFC 3339, such as 2026-01-31T09:00:00Z", flag, s)
	}
	return t, nil
}

func parsePriority(flag, s string) (signalbox.Priority, error) {
	for _, p := range []signalbox.Priority{signalbox.PriorityHigh, signalbox.PriorityNormal, signalbox.PriorityLow} {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, usage("%s %q: want high, normal or low", flag, s)
}

// payload returns the JSON that an argument names: the text itself, @FILE, or - for the standard input. Its errors don't quote it.
func (a *app) payload(arg string) (json.RawMessage, error) {
	text := []byte(arg)
	var err error
	if arg == "-" {
		if text, err = io.ReadAll(a.input()); err != nil {
			return nil, fmt.Errorf("read the standard input: %w", err)
		}
	} else if file, ok := strings.CutPrefix(arg, "@"); ok {
		if text, err = os.ReadFile(file); err != nil {
			return nil, usage("%v", err)
		}
	}
	return text, validJSON(text)
}

func validJSON(text []byte) error {
	var v any
	err := json.Unmarshal(text, &v)
	var syntax *json.SyntaxError
	var number *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		line, column := placeIn(text, syntax.Offset)
		return usage("the arguments are no JSON: there is a mistake at line %d, column %d", line, column)
	case errors.As(err, &number): // nothing else fails in an any
		line, column := placeIn(text, number.Offset-1)
		return usage("the arguments have a number that is too large for a 64-bit float, as JSON's numbers are read: it ends at line %d, column %d", line, column)
	}
	return usage("the arguments are no JSON")
}

// placeIn returns the line and the column of the byte that stands before an offset, both from 1.
func placeIn(text []byte, offset int64) (line, column int) {
	before := text[:max(0, min(int(offset)-1, len(text)))]
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
}

// shellArgs are arguments whose kind and JSON come from a command line.
type shellArgs struct {
	kind    string
	payload json.RawMessage
}

func (s shellArgs) Kind() string                 { return s.kind }
func (s shellArgs) MarshalJSON() ([]byte, error) { return s.payload, nil }

// enqueueError says what a script must know of an enqueue that may have happened: with the ID it can be repeated.
func (a *app) enqueueError(err error, id string) error {
	var maybe *scheduler.UncertainError
	if errors.As(err, &maybe) && id != "" {
		return &partError{fmt.Sprintf("job %s may be enqueued or not: look for it, or repeat the call with --id %s, which puts it in once while it is there", id, id), err}
	}
	return err
}

func (a *app) printEnqueued(queue string, r scheduler.Result) error {
	if a.json() {
		return a.document(struct {
			Queue    string          `json:"queue"`
			ID       string          `json:"id"`
			New      bool            `json:"new"`
			State    signalbox.State `json:"state"`
			Replaced signalbox.State `json:"replaced"`
		}{queue, r.ID, r.New, r.State, r.Replaced})
	}
	switch {
	case r.New && r.Replaced != "":
		fmt.Fprintf(a.out, "job %s is in queue %s, in place of a %s one\n", r.ID, queue, r.Replaced)
	case r.New:
		fmt.Fprintf(a.out, "job %s is in queue %s\n", r.ID, queue)
	case r.State == "":
		fmt.Fprintf(a.out, "nothing done: queue %s has a job %s already\n", queue, r.ID)
	default:
		fmt.Fprintf(a.out, "nothing done: queue %s has a job %s already, which is %s\n", queue, r.ID, r.State)
	}
	return nil
}
