package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A flag that is given without a value is a mistake, whatever the command: otherwise it would name more than was meant.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	empty := map[string]bool{"signalbox queue set --copy-dead": true, "signalbox job archive --why": true, "signalbox job cancel --why": true} // where it means something
	n := 0
	var visit func(path []string)
	visit = func(path []string) {
		var names []string
		find := func() (*cobra.Command, *cobra.Command) {
			root := (&app{}).root()
			c, _, err := root.Find(path)
			if err != nil {
				t.Fatal(err)
			}
			return root, c
		}
		_, c := find()
		c.InheritedFlags() // adds those of the root to c.Flags()
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		for _, name := range names {
			root, c := find()
			flag := c.CommandPath() + " --" + name
			err := c.ParseFlags([]string{"--" + name, ""})
			if err == nil {
				err = root.PersistentPreRunE(c, nil)
			}
			if c.Flags().Lookup(name).NoOptDefVal == "true" { // its value isn't the next argument
				continue
			}
			if n++; empty[flag] != (err == nil) || err != nil && !strings.Contains(err.Error(), "--"+name) {
				t.Errorf("%s \"\": %v", flag, err)
			}
		}
		for _, sub := range c.Commands() {
			visit(append(path[:len(path):len(path)], sub.Name()))
		}
	}
	visit(nil)
	if n < 100 {
		t.Errorf("only %d flags were looked at", n)
	}
}

// An empty group, kind or state does nothing to the whole queue.
func TestEmptyGroupIsNotTheQueue(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "a")
	for _, args := range []string{
		"queue limit mail --running 3 --group=", "queue hold mail --for 10m --group=", "queue hold mail --lift --group=", "queue pause mail --group=", "queue resume mail --group=",
		"job rm mail --state ready --yes --kind=", "job rm mail --kind email.welcome --yes --state=", "job rm mail --state ready, --yes", "job ls mail --group=",
		"cron ls --queue=", "queue ls --namespace=", "queue ls --redis=",
	} {
		sh.fails(exitUsage, []string{"is empty: give it a value, or leave it out"}, strings.Fields(args)...)
	}
	var held struct {
		Queue        string
		Held, Paused []json.RawMessage
	}
	if sh.into(&held, "queue", "hold", "mail"); len(held.Held) > 0 || len(held.Paused) > 0 {
		t.Errorf("held back: %s, paused: %s", held.Held, held.Paused)
	}
	if out := sh.ok("queue", "limit", "mail"); strings.Contains(out, " 3 ") {
		t.Error(out)
	}
	sh.ok("job", "show", "mail", "a")
	// An empty name of a queue or a job is one, too.
	for _, args := range [][]string{{"job", "ls", ""}, {"cron", "ls", ""}, {"queue", "ls", ""}, {"job", "cancel", "mail", ""}, {"queue", "limit", ""}, {"worker", "ls", ""}, {"doctor", ""}, {"export", ""}, {"top", ""}, {"queue", "stats", ""}} {
		if out, errs, code := sh.run(args...); code == 0 {
			t.Errorf("%q: %s%s", args, out, errs)
		}
	}
}
