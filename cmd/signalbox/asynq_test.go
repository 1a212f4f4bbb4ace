package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// asynqTask puts a pending task into a queue of asynq, with an ID that is its payload.
func asynqTask(t *testing.T, srv *redistest.Server, queue, kind, payload string) {
	t.Helper()
	var msg []byte
	for num, text := range map[protowire.Number]string{1: kind, 2: payload, 3: payload, 4: queue} {
		msg = protowire.AppendString(protowire.AppendTag(msg, num, protowire.BytesType), text)
	}
	rdb, key := srv.Client(), "asynq:{"+queue+"}:"
	for _, err := range []error{
		rdb.SAdd(t.Context(), "asynq:queues", queue).Err(),
		rdb.HSet(t.Context(), key+"t:"+payload, "msg", msg, "state", "pending", "pending_since", time.Now().UnixNano()).Err(),
		rdb.LPush(t.Context(), key+"pending", payload).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// An import from asynq counts first, moves with --yes, and says what stays.
func TestImportFromAsynq(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	sh := newShell(t, srv)
	asynqTask(t, srv, "default", "email:welcome", "1")
	asynqTask(t, srv, "default", "email:welcome", "2")
	asynqTask(t, srv, "default", "pdf", "no-json")
	mapping := filepath.Join(t.TempDir(), "map.json")
	if err := os.WriteFile(mapping, []byte(`{"queues": {"default": "mail"}, "kinds": {"email:welcome": {"kind": "welcome"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out := sh.ok("import", "--from", "asynq", "--map", mapping)
	for _, want := range []string{"stay in asynq:", "pdf", "its payload isn't JSON", "2 tasks would be moved", "1 task stay"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var report asynqJSON
	if err := json.Unmarshal([]byte(sh.ok("import", "--from", "asynq", "--map", mapping, "--yes", "-o", "json")), &report); err != nil || report.Moved != 2 || report.DryRun || len(report.Stays) != 1 || report.Stays[0].Kind != "pdf" {
		t.Errorf("%+v, %v", report, err)
	}
	if out := sh.ok("job", "ls", "mail", "--state", "scheduled"); strings.Count(out, "welcome") != 2 {
		t.Errorf("the jobs are\n%s", out)
	}
	if out := sh.ok("import", "--from", "asynq", "--undo"); strings.TrimSpace(out) != "" {
		t.Errorf("undo prints %q", out)
	}
}

// Wrong flags are refused before anything is done.
func TestImportFromAsynqMistakes(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	for _, args := range [][]string{
		{"import", "--from", "river"},
		{"import", "mail", "--from", "asynq"},
		{"import", "mail", "--yes"},
		{"import", "--from", "asynq", "--yes", "--dry-run"},
		{"import", "--from", "asynq", "--undo", "--yes"},
		{"import", "--from", "asynq", "--entries", "yaml"},
		{"import", "--from", "asynq", "--settings"},
		{"import", "--from", "asynq", "--map", "/nowhere.json"},
	} {
		if _, errs, code := sh.run(args...); code != exitUsage || errs == "" {
			t.Errorf("%v: status %d, %q", args, code, errs)
		}
	}
}

// An entry of a scheduler with a Location has ticks that aren't those of its spec in UTC. asynq tells the next one, and not the zone.
func TestImportMissesTheZone(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"0 6 * * *":                       "at 2026-11-30T05:00:00Z, is no tick",
		"@daily":                          "is no tick",
		"0 5 * * *":                       "",
		"CRON_TZ=Europe/Berlin 0 6 * * *": "",
		"@every 1h":                       "@every counts",
	} {
		line, lost := cronLineOf(&fromasynq.Entry{Spec: spec, Type: "digest", Next: time.Date(2026, 11, 30, 6, 0, 0, 0, time.FixedZone("CET", 3600))}, map[string]bool{})
		if got := strings.Join(lost, "\n"); line.Starting != "2026-11-30T05:00:00Z" || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %+v, %q", spec, line, got)
		}
	}
}

// Periodic tasks are printed as a cron file and as Go, and are never moved.
func TestImportPrintsPeriodicTasks(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	sh := newShell(t, srv)
	var entry []byte
	for _, field := range []struct {
		num  protowire.Number
		text string
	}{{1, "id"}, {2, "0 3 * * *"}, {3, "report:daily"}, {4, `{"of":"all"}`}, {5, `Queue("low")`}, {5, "MaxRetry(3)"}, {5, "Unique(1h0m0s)"}} {
		entry = protowire.AppendString(protowire.AppendTag(entry, field.num, protowire.BytesType), field.text)
	}
	rdb := srv.Client()
	for _, id := range []string{"a", "b"} { // two processes have it
		key := "asynq:schedulers:{" + id + "}"
		if err := rdb.RPush(t.Context(), key, entry).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.Do(t.Context(), "ZADD", "asynq:schedulers", 1, key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := sh.run("import", "--from", "asynq", "--entries", "cron")
	want := `[{"name":"report:daily","spec":"0 3 * * *","kind":"report:daily","args":{"of":"all"},"queue":"low","max_attempts":4}]`
	if got := strings.Join(strings.Fields(out), ""); code != 0 || got != strings.Join(strings.Fields(want), "") || !strings.Contains(errs, "Unique(1h0m0s)") {
		t.Errorf("%d: %s\n%s", code, out, errs)
	}
	out = sh.ok("import", "--from", "asynq", "--entries", "go")
	if !strings.Contains(out, `err = s.Cron("report:daily", "0 3 * * *", ReportDailyArgs{}, scheduler.Queue("low"), scheduler.MaxAttempts(4))`) {
		t.Error(out)
	}
	if out := sh.ok("import", "--from", "asynq"); !strings.Contains(out, "1 periodic task") {
		t.Error(out)
	}
}
