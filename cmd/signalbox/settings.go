package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

// configSettings are the names of settings that a worker's Config can say.
var configSettings = []string{"Limits", "GroupLimits", "MaxLength", "CopyDead", "Retention", "CompletedRetention"}

func (a *app) queueSettings() *cobra.Command {
	var changes bool
	c := a.command("settings QUEUE [flags]", "Show settings that a Config can say: who set them, and when", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		if changes {
			return a.printChanges(ctx, ins, args[0])
		}
		return a.printWho(ctx, ins, args[0], configSettings)
	})
	c.Long = `Show the settings of a queue that the Config of its workers can say: what each
is, what Config says, and who set it, and when. A value of a Config that is new
is applied when a worker with it starts. What an operator has set stays until
Config's value changes, or until signalbox queue set --reset.

--changes lists the last fifty changes instead, the newest first: also pauses,
slots, and limits of single groups, as Redis has them.

An operator is named by SIGNALBOX_OPERATOR, or else by USER.`
	c.Example = `  signalbox queue settings mail
  signalbox queue settings mail --changes`
	c.Flags().BoolVar(&changes, "changes", false, "the last fifty changes, the newest first")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// settingJSON is a setting for programs, and changeJSON a change. docs/cli/json.md has their fields.
type (
	settingJSON struct {
		Setting string     `json:"setting"`
		Value   string     `json:"value"`
		Config  string     `json:"config"`
		By      string     `json:"by"`
		Name    string     `json:"name"`
		At      *time.Time `json:"at"`
	}
	changeJSON struct {
		At     *time.Time `json:"at"`
		By     string     `json:"by"`
		Name   string     `json:"name"`
		Field  string     `json:"field"`
		Before string     `json:"before"`
		After  string     `json:"after"`
	}
)

// byWhom returns whose doing something is: "worker", "operator", or "" if nobody's.
func byWhom(s inspect.Setter) string {
	switch {
	case s.Name == "":
		return ""
	case s.Worker:
		return "worker"
	}
	return "operator"
}

func setAt(s inspect.Setter) *time.Time {
	if s.At.IsZero() {
		return nil
	}
	at := s.At.UTC()
	return &at
}

// printWho prints some settings, with who set them, and when.
func (a *app) printWho(ctx context.Context, ins *inspect.Inspector, queue string, names []string) error {
	settings, err := ins.Settings(ctx, queue)
	if err != nil {
		return err
	}
	settings = slices.DeleteFunc(settings, func(s inspect.Setting) bool { return !slices.Contains(names, s.Name) })
	if a.json() {
		list := make([]settingJSON, len(settings))
		for i, s := range settings {
			list[i] = settingJSON{s.Name, s.Value, s.Config, byWhom(s.Setter), s.Setter.Name, setAt(s.Setter)}
		}
		return a.document(struct {
			Queue    string        `json:"queue"`
			Settings []settingJSON `json:"settings"`
		}{queue, list})
	}
	t := a.table(column{name: "SETTING"}, column{name: "VALUE"}, column{name: "CONFIG"}, column{name: "SET BY"}, column{name: "SET AT"})
	for _, s := range settings {
		t.row(s.Name, s.Value, s.Config, whom(s.Setter), atWhen(s.Setter))
	}
	t.flush()
	return nil
}

func (a *app) printChanges(ctx context.Context, ins *inspect.Inspector, queue string) error {
	changes, err := ins.Changes(ctx, queue)
	if err != nil {
		return err
	}
	if a.json() {
		list := make([]changeJSON, len(changes))
		for i, c := range changes {
			list[i] = changeJSON{setAt(c.Setter), byWhom(c.Setter), c.Name, c.Field, c.Before, c.After}
		}
		return a.document(struct {
			Queue   string       `json:"queue"`
			Changes []changeJSON `json:"changes"`
		}{queue, list})
	}
	t := a.table(column{name: "AT"}, column{name: "BY"}, column{name: "FIELD"}, column{name: "BEFORE"}, column{name: "AFTER"})
	for _, c := range changes {
		t.row(atWhen(c.Setter), whom(c.Setter), c.Field, c.Before, c.After)
	}
	t.flush()
	return nil
}

// whom returns who it was in words: "operator ann".
func whom(s inspect.Setter) string {
	if s.Name == "" {
		return ""
	}
	return byWhom(s) + " " + s.Name
}

func atWhen(s inspect.Setter) string {
	if s.At.IsZero() {
		return ""
	}
	return s.At.UTC().Format(time.RFC3339)
}
