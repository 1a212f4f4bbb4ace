package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// An operator sees who set what, and takes back what the workers' Config says.
func TestQueueSettings(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "k", "{}", "--queue", "mail")
	q := store.New(srv.Client(), sh.namespace, "mail")
	running := func(n int) signalbox.Limits { return signalbox.Limits{Running: n} }
	if _, err := q.Settings().Tell(t.Context(), "w-1", settings.Wanted{Limits: running(5), MaxLength: 10, LimitsOf: map[string]signalbox.Limits{"acme": running(2)}}); err != nil {
		t.Fatal(err)
	}
	sh.ok("queue", "limit", "mail", "--running", "7")
	sh.ok("queue", "limit", "mail", "--group", "acme", "--running", "3")
	row := func(out, name string) string {
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] == name {
				return strings.Join(fields, " ")
			}
		}
		return ""
	}
	out := sh.ok("queue", "settings", "mail")
	for name, want := range map[string]string{"Limits": "Limits 7 running 5 running operator ", "MaxLength": "MaxLength 10 10 worker w-1 ", "CopyDead": "CopyDead none none"} {
		if got := row(out, name); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q in\n%s", got, want, out)
		}
	}
	out = sh.ok("queue", "set", "mail", "--reset", "Limits")
	if got := row(out, "Limits"); !strings.HasPrefix(got, "Limits 5 running 5 running operator ") {
		t.Errorf("%q in\n%s", got, out)
	}
	sh.ok("queue", "limit", "mail", "--group", "acme", "--reset")
	of, err := q.Settings().GroupLimits(t.Context())
	if err != nil || of["acme"] != running(2) {
		t.Errorf("%v, %v", of, err)
	}
	var changes struct {
		Queue   string       `json:"queue"`
		Changes []changeJSON `json:"changes"`
	}
	sh.into(&changes, "queue", "settings", "mail", "--changes", "-o", "json")
	var words []string
	for _, c := range changes.Changes {
		words = append(words, c.By+" "+c.Field+" "+c.Before+">"+c.After)
	}
	same(t, strings.Join(words[:4], ", "), "operator limits of acme 3 - 0 0>2 - 0 0, operator limits 7 0 0 0>5 0 0 0, operator limits of acme 2 - 0 0>3 - 0 0, operator limits 5 0 0 0>7 0 0 0")
	var settings struct {
		Queue    string        `json:"queue"`
		Settings []settingJSON `json:"settings"`
	}
	sh.into(&settings, "queue", "settings", "mail", "-o", "json")
	if s := settings.Settings[2]; s.Setting != "MaxLength" || s.By != "worker" || s.Name != "w-1" || s.At == nil {
		t.Errorf("%+v", s)
	}
	sh.fails(exitUsage, []string{"--reset: want names of Limits"}, "queue", "set", "mail", "--reset", "slots")
	sh.fails(exitUsage, []string{"--reset goes with --group alone"}, "queue", "limit", "mail", "--reset")
	if out := sh.ok("queue", "settings", "mail", "--changes"); !strings.Contains(out, "limits of acme") {
		t.Error(out)
	}
}
