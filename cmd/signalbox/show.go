package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) jobShow() *cobra.Command {
	c := a.command("show QUEUE ID", "Show all of a job: arguments, why it waits, errors of its attempts", cobra.ExactArgs(2),
		func(ctx context.Context, args []string) error {
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			j, err := ins.Job(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			if a.json() {
				return a.document(showOf(&j))
			}
			a.show(&j, a.clock(ctx))
			return nil
		})
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// showJSON is all of a job, for programs. docs/cli/json.md has its fields.
type showJSON struct {
	jobJSON
	Nowhere       bool              `json:"nowhere"`
	EffectKey     string            `json:"effect_key"`
	Headers       map[string]string `json:"headers"`
	Payload       json.RawMessage   `json:"payload"`
	PayloadBase64 *string           `json:"payload_base64"`
	Encoding      string            `json:"encoding"`
	Attempts      []attemptJSON     `json:"attempts"`
	Success       *attemptJSON      `json:"success"`
	Result        json.RawMessage   `json:"result"`
	ResultBase64  *string           `json:"result_base64"`
	Progress      *progressJSON     `json:"progress"`
}

type attemptJSON struct {
	Number     int     `json:"number"`
	At         *string `json:"at"`
	RanSeconds float64 `json:"ran_seconds"`
	Worker     string  `json:"worker"`
	Error      string  `json:"error"`
	Stack      string  `json:"stack"`
	TraceID    string  `json:"trace_id"`
	SpanID     string  `json:"span_id"`
}

func attemptOf(at *inspect.Attempt) attemptJSON {
	return attemptJSON{at.Number, timestamp(at.At), seconds(at.Ran), at.Worker, at.Error, at.Stack, at.TraceID, at.SpanID}
}

func showOf(j *inspect.Job) showJSON {
	out := showJSON{jobJSON: jobOf(j), Nowhere: j.Nowhere, EffectKey: j.EffectKey, Headers: j.Headers, Encoding: j.Encoding, Attempts: make([]attemptJSON, len(j.Attempts)), Progress: progressOf(j.Progress)}
	if out.Headers == nil {
		out.Headers = map[string]string{}
	}
	out.Payload, out.PayloadBase64 = valueOf(j.Payload)
	if j.Result != nil {
		out.Result, out.ResultBase64 = valueOf(j.Result)
	}
	for i := range j.Attempts {
		out.Attempts[i] = attemptOf(&j.Attempts[i])
	}
	if j.Success != nil {
		success := attemptOf(j.Success)
		out.Success = &success
	}
	return out
}

// valueOf returns a payload or a result as it is if it is JSON, else in base64.
func valueOf(value []byte) (json.RawMessage, *string) {
	if json.Valid(value) && utf8.Valid(value) {
		return value, nil
	}
	text := base64.StdEncoding.EncodeToString(value)
	return nil, &text
}

// show prints a job for people.
func (a *app) show(j *inspect.Job, now time.Time) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-10s %s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	ago := func(t time.Time) string {
		if d := now.Sub(t); d >= 0 {
			return stamp(t) + " (" + span(d) + " ago)"
		}
		return stamp(t) + " (in " + span(t.Sub(now)) + ")"
	}
	line("job", "%s", j.ID)
	line("queue", "%s", j.Queue)
	line("kind", "%s", j.Kind)
	since := when(j, now)
	switch {
	case j.Nowhere:
		line("state", "in no place: signalbox doctor %s --repair", j.Queue)
	case since != "":
		line("state", "%s, %s", stateOf(j), since)
	default:
		line("state", "%s", stateOf(j))
	}
	if j.Waits != "" {
		line("waits", "%s", j.Waits)
	}
	if j.Err != nil {
		line("record", "%v", j.Err)
	}
	crashes := fmt.Sprintf("%d crashes", j.Crashes)
	if j.Survived > 0 {
		crashes += fmt.Sprintf(", and %d good deliveries since", j.Survived)
	}
	line("attempts", "%d of %d failed, %s", j.Failed, j.MaxAttempts, crashes)
	if j.LastError != "" {
		line("error", "%s", j.LastError)
	}
	if j.Worker != "" || j.Token != 0 {
		line("worker", "%s, since %s, token %d", j.Worker, ago(j.Since), j.Token)
	}
	if j.Progress != nil {
		line("progress", "%s, said %s", howFar(j.Progress), ago(j.Progress.At))
	}
	line("enqueued", "%s", ago(j.EnqueuedAt))
	if !j.DueAt.Equal(j.EnqueuedAt) {
		line("due", "%s", ago(j.DueAt))
	}
	if !j.EndedAt.IsZero() {
		line("ended", "%s", ago(j.EndedAt))
	}
	if at := j.Success; at != nil {
		line("completed", "attempt %d, ran %v on %s", at.Number, at.Ran, at.Worker)
	}
	line("priority", "%s", j.Priority)
	if j.Timeout > 0 {
		line("timeout", "%v for each attempt", j.Timeout)
	}
	switch {
	case j.Retain > 0 && !j.EndedAt.IsZero():
		line("kept", "for %v after its end, until %s", j.Retain, stamp(j.EndedAt.Add(j.Retain)))
	case j.Retain > 0:
		line("kept", "for %v after its end", j.Retain)
	case j.Retain < 0:
		line("kept", "not after its end")
	}
	if !j.ExpiresAt.IsZero() {
		line("expires", "%s, if it hasn't started by then", stamp(j.ExpiresAt))
	}
	if !j.Deadline.IsZero() {
		line("deadline", "%s: no attempt begins or goes on after that", stamp(j.Deadline))
	}
	switch {
	case j.YieldOnRetry:
		line("group", "%s, one job at a time; others go on while this one waits for a retry", j.Group)
	case j.Serial:
		line("group", "%s, one job at a time", j.Group)
	case j.Group != "":
		line("group", "%s", j.Group)
	}
	if j.Batch != "" {
		line("batch", "%s", j.Batch)
	}
	switch j.UniqueUntil {
	case "":
	case "started", "ended":
		line("unique", "%s, until the job has %s", j.UniqueKey, j.UniqueUntil)
	default:
		line("unique", "%s, for %s after the enqueue", j.UniqueKey, j.UniqueUntil)
	}
	if j.EffectKey != "" {
		line("effect key", "%s", j.EffectKey)
	}
	if j.TraceID != "" {
		line("trace", "%s, span %s", j.TraceID, j.SpanID)
	}
	if j.RunTraceID != "" {
		line("last run", "trace %s, span %s", j.RunTraceID, j.RunSpanID)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		line("header", "%s: %s", name, j.Headers[name])
	}
	if j.Encoding != "" {
		line("encoding", "%s", j.Encoding)
	}
	value := func(name string, b []byte) {
		text := readable(b)
		if j.Encoding != "" {
			text = fmt.Sprintf("%d bytes, which only programs with the codec can read", len(b))
		}
		fmt.Fprintf(a.out, "\n%s\n%s\n", name, indent(text))
	}
	value("arguments", j.Payload)
	if j.Result != nil {
		value("result", j.Result)
	}
	a.showAttempts(j)
	if a.errTerminal && (j.State == signalbox.StateDead || j.State == signalbox.StateCancelled) {
		a.note("\nTo run it again: signalbox job retry %s %s\nWith other arguments: signalbox job edit %s %s --run", j.Queue, j.ID, j.Queue, j.ID)
	}
}

func (a *app) showAttempts(j *inspect.Job) {
	if len(j.Attempts) == 0 {
		return
	}
	fmt.Fprintf(a.out, "\nattempts that failed\n")
	for i, at := range j.Attempts {
		if i > 0 && at.Number <= j.Attempts[i-1].Number {
			fmt.Fprintf(a.out, "  the job was run again, and its attempts count from 1\n")
		}
		trace := ""
		if at.TraceID != "" {
			trace = ", trace " + at.TraceID
		}
		fmt.Fprintf(a.out, "  %d. %s, ran %v on %s%s\n     %s\n", at.Number, stamp(at.At), at.Ran, clean(at.Worker), clean(trace), clean(at.Error))
		if at.Stack != "" {
			stack := cleanLines(strings.TrimSpace(at.Stack))
			fmt.Fprintf(a.out, "       %s\n", strings.ReplaceAll(stack, "\n", "\n       "))
		}
	}
}

// readable returns a payload for people: JSON with one field a line, other text as it is, else its size.
func readable(payload []byte) string {
	var b bytes.Buffer
	switch {
	case len(payload) == 0:
		return "none"
	case json.Indent(&b, payload, "", "  ") == nil:
		return cleanLines(b.String())
	case utf8.Valid(payload):
		return cleanLines(string(payload))
	}
	return fmt.Sprintf("%d bytes that are no text; -o json has them in base64", len(payload))
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }
