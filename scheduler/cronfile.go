package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
)

const maxCronFile = 16 << 20 // bytes

// CronFile returns a source for [Scheduler.CronFrom]: a JSON file with a list of entries. Each is an object with these fields, of which the first
// three must be there:
//
//	"name"          as of Cron
//	"spec"          as of Cron
//	"kind"          of the jobs
//	"args"          their args: any JSON; without it {}
//	"queue"         as the option Queue
//	"zone"          as the option In: "Europe/Berlin"
//	"priority"      "high", "normal" or "low"
//	"max_attempts"  as the option MaxAttempts
//	"timeout"       as the option Timeout: "1m30s"
//	"group"         as the option Group
//	"serial"        as the option Serial
//	"retain"        as the option Retain: "48h"
//	"expire_after"  as the option ExpireAfter: "10m"
//	"missed"        "skip", "once", or "all" with a number: "all 10"
//	"lateness"      as the option Lateness: "6h"
//	"overlap"       "allow", "skip", "queue" or "cancel"
//	"jitter"        as the option Jitter: "5m"
//	"starting"      as the option Starting, in RFC 3339: "2026-07-01T00:00:00Z"
//	"ending"        as the option Ending
//
// The args are passed on as they are, so the kind's handler decides what they may be. The kind's [signalbox.Defaults] don't count, since
// the file knows the kind by its name only: give the queue and the others in the file. A field that isn't listed is an error. So is an
// empty file: a file without entries is []. To change the file while it is watched, write another one beside it and rename it.
func CronFile(path string) CronSource {
	return func(context.Context) ([]CronEntry, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, maxCronFile+1))
		if err != nil {
			return nil, err
		}
		if len(text) > maxCronFile {
			return nil, fmt.Errorf("%s has more than %d bytes", path, maxCronFile)
		}
		entries, err := readCronFile(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return entries, nil
	}
}

// A fileEntry is an entry of a file.
type fileEntry struct {
	Name        string          `json:"name"`
	Spec        string          `json:"spec"`
	Kind        string          `json:"kind"`
	Args        json.RawMessage `json:"args"`
	Queue       string          `json:"queue"`
	Zone        string          `json:"zone"`
	Priority    string          `json:"priority"`
	MaxAttempts int             `json:"max_attempts"`
	Timeout     string          `json:"timeout"`
	Group       string          `json:"group"`
	Serial      string          `json:"serial"`
	Retain      string          `json:"retain"`
	ExpireAfter string          `json:"expire_after"`
	Missed      string          `json:"missed"`
	Lateness    string          `json:"lateness"`
	Overlap     string          `json:"overlap"`
	Jitter      string          `json:"jitter"`
	Starting    string          `json:"starting"`
	Ending      string          `json:"ending"`
}

// fileArgs are args that a file has.
type fileArgs struct {
	kind string
	text json.RawMessage
}

func (a fileArgs) Kind() string                 { return a.kind }
func (a fileArgs) MarshalJSON() ([]byte, error) { return a.text, nil }

// readCronFile reads the entries of a file. The error names the first wrong field of each wrong entry, and nothing of their args.
func readCronFile(text []byte) ([]CronEntry, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil || raw == nil {
		return nil, errors.New("it holds no JSON list of entries")
	}
	entries := make([]CronEntry, 0, len(raw))
	var errs []error
	for i, r := range raw {
		var f fileEntry
		d := json.NewDecoder(bytes.NewReader(r))
		d.DisallowUnknownFields()
		err := d.Decode(&f)
		var c CronEntry
		if err == nil {
			c, err = f.entry()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d, %q: %w", i+1, shorten(f.Name), err))
		}
		entries = append(entries, c)
	}
	return entries, errors.Join(errs...)
}

// entry returns what a call of Cron for the entry has.
func (f *fileEntry) entry() (CronEntry, error) {
	c := CronEntry{Name: f.Name, Spec: f.Spec, Args: fileArgs{f.Kind, f.Args}}
	if f.Kind == "" {
		return c, errors.New("kind: it is missing")
	}
	if f.Args == nil {
		c.Args = fileArgs{f.Kind, json.RawMessage("{}")}
	}
	var wrong error
	given := func(field, text string, option func() (CronOption, error)) {
		if text == "" || wrong != nil {
			return
		}
		o, err := option()
		if err != nil {
			wrong = fmt.Errorf("%s: %q: %w", field, shorten(text), err)
			return
		}
		c.Options = append(c.Options, o)
	}
	duration := func(field, text string, option func(time.Duration) CronOption) {
		given(field, text, func() (CronOption, error) {
			d, err := time.ParseDuration(text)
			return option(d), err
		})
	}
	at := func(field, text string, option func(time.Time) CronOption) {
		given(field, text, func() (CronOption, error) {
			t, err := time.Parse(time.RFC3339, text)
			return option(t), err
		})
	}
	given("queue", f.Queue, func() (CronOption, error) { return Queue(f.Queue), nil })
	given("zone", f.Zone, func() (CronOption, error) {
		loc, err := schedule.LoadZone(f.Zone)
		return In(loc), err
	})
	given("priority", f.Priority, func() (CronOption, error) {
		return oneOf(f.Priority, map[string]CronOption{
			"high": Priority(signalbox.PriorityHigh), "normal": Priority(signalbox.PriorityNormal), "low": Priority(signalbox.PriorityLow),
		})
	})
	if f.MaxAttempts != 0 {
		c.Options = append(c.Options, MaxAttempts(f.MaxAttempts))
	}
	duration("timeout", f.Timeout, func(d time.Duration) CronOption { return Timeout(d) })
	given("group", f.Group, func() (CronOption, error) { return Group(f.Group), nil })
	given("serial", f.Serial, func() (CronOption, error) { return Serial(f.Serial), nil })
	duration("retain", f.Retain, func(d time.Duration) CronOption { return Retain(d) })
	duration("expire_after", f.ExpireAfter, func(d time.Duration) CronOption { return ExpireAfter(d) })
	given("missed", f.Missed, func() (CronOption, error) {
		if n, ok := strings.CutPrefix(f.Missed, "all "); ok {
			most, err := strconv.Atoi(n)
			return Missed(RunAll(most)), err
		}
		return oneOf(f.Missed, map[string]CronOption{"skip": Missed(Skip), "once": Missed(RunOnce)})
	})
	duration("lateness", f.Lateness, Lateness)
	given("overlap", f.Overlap, func() (CronOption, error) {
		return oneOf(f.Overlap, map[string]CronOption{"allow": Overlap(Allow), "skip": Overlap(SkipIfRunning), "queue": Overlap(QueueOne), "cancel": Overlap(CancelOther)})
	})
	duration("jitter", f.Jitter, Jitter)
	at("starting", f.Starting, Starting)
	at("ending", f.Ending, Ending)
	return c, wrong
}

// oneOf returns the option of that name.
func oneOf(text string, options map[string]CronOption) (CronOption, error) {
	if o, ok := options[text]; ok {
		return o, nil
	}
	return nil, errors.New("unknown")
}
