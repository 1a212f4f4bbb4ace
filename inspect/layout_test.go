package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// oldData gives a queue what a program from before the first release has written: see TestOldLayouts of the store. It returns what the queue has.
func oldData(t *testing.T, rdb redis.UniversalClient, namespace string) func() string {
	t.Helper()
	ctx := t.Context()
	text, err := os.ReadFile("../internal/store/testdata/layout2.txt")
	if err != nil {
		t.Fatal(err)
	}
	prefix := "signalbox:{" + namespace + ":q}:"
	var keys []string
	for line := range strings.Lines(string(text)) {
		var cmd []any
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
			word, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[len(word):]
			word, _ = strconv.Unquote(word)
			if len(cmd) == 1 {
				word = prefix + word
				keys = append(keys, word)
			}
			cmd = append(cmd, word)
		}
		if err := rdb.Do(ctx, cmd...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.New(rdb, namespace, "q").Presence().Register(ctx); err != nil {
		t.Fatal(err)
	}
	return func() string {
		var all strings.Builder
		there := rdb.Keys(ctx, prefix+"*").Val()
		slices.Sort(there)
		all.WriteString(strings.Join(there, " "))
		for _, key := range keys {
			all.WriteString(rdb.Dump(ctx, key).Val())
		}
		return all.String()
	}
}

// Each function that reads or changes a queue refuses one that a program from before the first release has used, with one error, and changes nothing.
func TestOldLayout(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	now := oldData(t, rdb, namespace)
	before := now()
	ins := inspector(t, rdb, namespace)
	other := redistest.Name(t) // a namespace with a queue to export
	if err := store.New(rdb, other, "q").Presence().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := inspector(t, rdb, other).Export(t.Context(), "q", &file, nil); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"Queues": func(ctx context.Context) error { _, err := ins.Queues(ctx); return err },
		"Queue":  func(ctx context.Context) error { _, err := ins.Queue(ctx, "q"); return err },
		"Job":    func(ctx context.Context) error { _, err := ins.Job(ctx, "q", "ready1"); return err },
		"Latest": func(ctx context.Context) error { _, err := ins.Latest(ctx, "q", signalbox.StateDead, 5); return err },
		"Jobs": func(ctx context.Context) error {
			return firstError(ins.Jobs(ctx, "q", inspect.Filter{State: signalbox.StateReady}))
		},
		"DeadByError":   func(ctx context.Context) error { _, err := ins.DeadByError(ctx, "q"); return err },
		"Doctor":        func(ctx context.Context) error { _, err := ins.Doctor(ctx, "q", inspect.Checkup{}); return err },
		"DeleteWaiting": func(ctx context.Context) error { _, err := ins.DeleteWaiting(ctx, "q", inspect.Waiting{}); return err },
		"Entries":       func(ctx context.Context) error { _, err := ins.Entries(ctx); return err },
		"Entry":         func(ctx context.Context) error { _, err := ins.Entry(ctx, "q", "old"); return err },
		"PauseEntry":    func(ctx context.Context) error { _, err := ins.PauseEntry(ctx, "q", "old"); return err },
		"ForgetEntry":   func(ctx context.Context) error { return ins.ForgetEntry(ctx, "q", "old") },
		"RunEntry":      func(ctx context.Context) error { _, err := ins.RunEntry(ctx, "q", "old"); return err },
		"Export":        func(ctx context.Context) error { _, err := ins.Export(ctx, "q", &bytes.Buffer{}, nil); return err },
		"Pause":         func(ctx context.Context) error { _, err := ins.Pause(ctx, "q"); return err },
		"Resume":        func(ctx context.Context) error { _, err := ins.Resume(ctx, "q"); return err },
		"PauseGroup":    func(ctx context.Context) error { _, err := ins.PauseGroup(ctx, "q", "a"); return err },
		"PausedGroups":  func(ctx context.Context) error { _, err := ins.PausedGroups(ctx, "q"); return err },
		"SetRetention":  func(ctx context.Context) error { return ins.SetRetention(ctx, "q", signalbox.Retention{Jobs: 5}) },
		"SetLimits":     func(ctx context.Context) error { return ins.SetLimits(ctx, "q", signalbox.Limits{Running: 5}) },
		"LimitsOf":      func(ctx context.Context) error { _, err := ins.LimitsOf(ctx, "q"); return err },
		"SetMaxLength":  func(ctx context.Context) error { return ins.SetMaxLength(ctx, "q", 5) },
		"HoldBack":      func(ctx context.Context) error { _, err := ins.HoldBack(ctx, "q", "", time.Hour); return err },
		"Holds":         func(ctx context.Context) error { _, err := ins.Holds(ctx, "q"); return err },
		"Groups":        func(ctx context.Context) error { _, _, err := ins.Groups(ctx, "q", 5); return err },
		"GroupsOf":      func(ctx context.Context) error { _, err := ins.GroupsOf(ctx, "q", "a"); return err },
		"SetSlots":      func(ctx context.Context) error { return ins.SetSlots(ctx, "q", 5) },
		"Totals":        func(ctx context.Context) error { _, err := ins.Totals(ctx, "q"); return err },
		"Stats":         func(ctx context.Context) error { _, err := ins.Stats(ctx, "q", inspect.ByMinute); return err },
		"Workers":       func(ctx context.Context) error { _, err := ins.Workers(ctx); return err },
		"RemoveQueue":   func(ctx context.Context) error { return ins.RemoveQueue(ctx, "q", inspect.Removal{}) },
		"Do":            func(ctx context.Context) error { _, err := ins.Do(ctx, "q", "ready1", inspect.Delete{}); return err },
		"DoAll": func(ctx context.Context) error {
			_, err := ins.DoAll(ctx, "q", inspect.Filter{State: signalbox.StateDead}, inspect.Delete{}, inspect.Bulk{})
			return err
		},
		"ForgetOutbox":   func(ctx context.Context) error { return ins.ForgetOutbox(ctx, "q", "x") },
		"SetCopyDead":    func(ctx context.Context) error { return ins.SetCopyDead(ctx, "q", "graves") },
		"SetGroupLimits": func(ctx context.Context) error { return ins.SetGroupLimits(ctx, "q", signalbox.Limits{Running: 5}) },
		"SetLimitsOf":    func(ctx context.Context) error { return ins.SetLimitsOf(ctx, "q", "a", signalbox.Limits{Running: 5}) },
		"SetCompleted": func(ctx context.Context) error {
			return ins.SetCompletedRetention(ctx, "q", signalbox.Retention{Jobs: 5})
		},
		"ResumeGroup": func(ctx context.Context) error { _, err := ins.ResumeGroup(ctx, "q", "a"); return err },
		"ResumeEntry": func(ctx context.Context) error { _, err := ins.ResumeEntry(ctx, "q", "old"); return err },
		"RemoveQueues": func(ctx context.Context) error {
			_, _, err := ins.RemoveQueues(ctx, "q", inspect.Removal{})
			return err
		},
		"Outboxes": func(ctx context.Context) error { _, err := ins.Outboxes(ctx); return err },
		"Import": func(ctx context.Context) error {
			_, err := ins.Import(ctx, "q", strings.NewReader(file.String()), inspect.Importing{})
			return err
		},
		"Import of a trial": func(ctx context.Context) error {
			_, err := ins.Import(ctx, "q", strings.NewReader(file.String()), inspect.Importing{DryRun: true})
			return err
		},
		"Quiet":   func(ctx context.Context) error { _, err := ins.Quiet(ctx, "me"); return err },
		"Unquiet": func(ctx context.Context) error { _, err := ins.Unquiet(ctx, "me"); return err },
		"Stop":    func(ctx context.Context) error { _, err := ins.Stop(ctx, "me"); return err },
	} {
		var old *layout.Error
		if err := call(t.Context()); !errors.As(err, &old) || old.Layout != 2 || errors.Is(err, signalbox.ErrOutdated) || !strings.Contains(err.Error(), "end its jobs with that program") {
			t.Errorf("%s: %v", name, err)
		}
		if now() != before {
			t.Fatalf("%s has changed something", name)
		}
	}
}

// firstError returns the first error of a listing.
func firstError(jobs func(yield func(inspect.Job, error) bool)) (first error) {
	jobs(func(_ inspect.Job, err error) bool { first = err; return err == nil })
	return first
}
