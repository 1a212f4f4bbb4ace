package store

import (
	flags "flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// block returns a code block of a page of docs. The block's fence has the given language, and its text contains the given text.
func block(t *testing.T, page, language, has string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	fence := "\n```" + language + "\n"
	if before, _, ok := strings.Cut(string(doc), has); ok {
		if start := strings.LastIndex(before, fence); start >= 0 {
			body, _, _ := strings.Cut(string(doc[start+len(fence):]), "```\n")
			return body
		}
	}
	t.Fatalf("docs/%s has no block of %s with %q", page, language, has)
	return ""
}

// update has tests write what they compare.
var update = flags.Bool("update", false, "write docs/enqueue.lua")

const wireScript = "../../docs/enqueue.lua"

func scriptOfDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(wireScript)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWireDocHasTheScript(t *testing.T) {
	t.Parallel()
	text := fileOf(t, "enqueue")
	if want := text[:strings.Index(text, "\n\n")+1] + scripts.Sources()["enqueue"]; *update {
		if err := os.WriteFile(wireScript, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if scriptOfDoc(t) != want {
		t.Error("docs/enqueue.lua is not the script: make wire")
	}
	golden, err := os.ReadFile("../wire/testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := block(t, "wire/vectors.md", "", "an e-mail"); got != string(golden) {
		t.Error("the vectors in docs/wire/vectors.md are not those of testdata/golden.txt: copy them")
	}
	ends, err := os.ReadFile("../wire/testdata/ends.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := block(t, "wire/jobs.md", "", "# score"); got != string(ends) {
		t.Error("the scores in docs/wire/jobs.md are not those of testdata/ends.txt: copy them")
	}
}

// A program that follows only docs/wire.md enqueues jobs, and a worker finds them.
func TestWireDocEnqueues(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	prefix := "signalbox:{default:" + r.Name() + "}:"
	args := []any{"EVAL", scriptOfDoc(t), 20}
	for _, key := range []string{"lane:4f1x", "jobs", "due", "idle", "stats", "cron", "ready:high", "ready:normal", "ready:low", "dead", "cancelled", "notes", "settings", "completed", "lined", "turns", "groups", "unique", "windows", "expires"} {
		args = append(args, prefix+key)
	}
	args = append(args, "3 1",
		"user-42-welcome", "1", "", "\x0a\x0demail.welcome\x12\x0d{\"UserID\":42}",
		"user-42-survey", "2", "+86400000000", "\x0a\x06survey\x1a\x06\x0a\x01k\x12\x01v\x28\x03",
		"user-42-hour", "1+\x02\x00\x00\x00\x00\xd6\x93\xa4\x00", "", "\x0a\x06survey")
	for range 2 { // the second time as after a lost reply
		reply, err := r.rdb.Do(bg, args...).Slice()
		r.must(err)
		if len(reply) != 5 || reply[0] != "ok" || fmt.Sprint(reply[2:]) != "[[1] [] new]" {
			t.Fatalf("reply %v", reply)
		}
	}
	job := r.claim(1)[0].Job
	same(t, "ID", job.ID, "user-42-welcome")
	same(t, "kind", job.Kind, "email.welcome")
	same(t, "payload", string(job.Payload), `{"UserID":42}`)
	same(t, "max attempts", job.MaxAttempts, signalbox.DefaultMaxAttempts)
	job = r.one().Job
	same(t, "ID", job.ID, "user-42-hour")
	same(t, "kept for", job.Retain, time.Hour)
	r.makeDue("2user-42-survey")
	job = r.one().Job
	same(t, "kind", job.Kind, "survey")
	same(t, "header", job.Headers["k"], "v")
	same(t, "max attempts", job.MaxAttempts, 3)
	same(t, "priority", job.Priority, signalbox.PriorityLow)
}

// A mistake in such a call causes an error and changes nothing.
func TestEvalRefusesNonsense(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.put("a")
	before := r.dump()
	k := r.keys
	envelope := "\x0a\x01k"
	for _, args := range [][]any{
		{},
		{"1 1"},
		{"1", "id", "1", "", envelope},
		{" 1", "id", "1", "", envelope},
		{"x 1", "id", "1", "", envelope},
		{"1000 1", "id", "1", "", envelope},
		{"1 1", "id", "1", ""},
		{"1 1", "id", "1", "", envelope, "id2"},
		{"1 x", "id", "1", "", envelope},
		{"1 -1", "id", "1", "", envelope},
		{"1 1e3", "id", "1", "", envelope},
		{"1 nan", "id", "1", "", envelope},
		{"1 1234567890123456", "id", "1", "", envelope},
		{"1 1", "", "1", "", envelope},
		{"1 1", strings.Repeat("x", layout.MaxName+1), "1", "", envelope},
		{"1 1", "a b", "1", "", envelope},
		{"1 1", "a{b", "1", "", envelope},
		{"1 1", "a\x00", "1", "", envelope},
		{"1 1", "\xc3\xa4", "1", "", envelope},
		{"1 1", "a\n", "1", "", envelope},
		{"1 1", "id", "", "", envelope},
		{"1 1", "id", "3", "", envelope},
		{"1 1", "id", "s", "", envelope},
		{"1 1", "id", "!", "", envelope},
		{"1 1", "id", "1?", "", envelope},
		{"1 1", "id", "1!!", "", envelope},
		{"1 1", "id", "1+", "", envelope},
		{"1 1", "id", "1+\x00abc", "", envelope},
		{"1 1", "id", "1\x01abc", "", envelope},
		{"1 1", "id", "+\x01abc", "", envelope},
		{"1 1", "id", "1+!\x01" + strings.Repeat("x", wire.MaxExtras), "", envelope},
		{"1 1", "id", "1", "+", envelope},
		{"1 1", "id", "1", "5", envelope},
		{"1 1", "id", "1", "1000000", envelope},
		{"1 1", "id", "1", "+-5", envelope},
		{"1 1", "id", "1", "+inf", envelope},
		{"1 1", "id", "1", "@inf", envelope},
		{"1 1", "id", "1", "nan", envelope},
		{"1 1", "id", "1", "+nan", envelope},
		{"1 1", "id", "1", "+0x10", envelope},
		{"1 1", "id", "1", "+1.5", envelope},
		{"1 1", "id", "1", "+1e6", envelope},
		{"1 1", "id", "1", "+ 5", envelope},
		{"1 1", "id", "1", "+5 ", envelope},
		{"1 1", "id", "1", "+5 entry", envelope},
		{"1 1", "id", "1", "@soon", envelope},
		{"1 1", "id", "1", "=5", envelope},
		{"1 1", "id", "1", "=5 ", envelope},
		{"1 1", "id", "1", "=soon entry", envelope},
		{"1 1", "id", "1", "=5 two words", envelope},
		{"1 1", "id", "1", "=5 {e}", envelope},
		{"1 1", "id", "1", "=5 " + strings.Repeat("x", layout.MaxName+1), envelope},
		{"1 1", "good", "1", "", envelope, "id", "9", "", envelope},
		{"1 1", "good", "1", "", envelope, "not good", "1", "", envelope},
		many(1001, "1 1"),
		many(2000, "1 1"),
		many(9000, "1 1"),
	} {
		err := r.rdb.Eval(bg, scripts.Sources()["enqueue"], []string{
			k.Lane("other"), k.Jobs, k.Due, k.Idle, k.Stats, k.Cron, k.ReadyHigh, k.ReadyNormal, k.ReadyLow,
			k.Dead, k.Cancelled, k.Notes, k.Settings, k.Completed,
		}, args...).Err()
		if err == nil {
			t.Errorf("%.60q is accepted", fmt.Sprint(args))
		}
		r.unchanged(fmt.Sprintf("%.60q", fmt.Sprint(args)), before)
	}
}

func many(n int, args ...any) []any {
	for i := range n {
		args = append(args, fmt.Sprint("id", i), "1", "", "\x0a\x01k")
	}
	return args
}

// Runs the shell example word for word, except for the server's address and the queue.
func TestWireDocShell(t *testing.T) {
	t.Parallel()
	tool := func(name string) string {
		path, err := exec.LookPath(name)
		switch {
		case err == nil:
		case os.Getenv(redistest.Env) == "required":
			t.Fatalf("%s=required, but there is no %s", redistest.Env, name)
		default:
			t.Skipf("needs %s, to run the example of the shell as it stands", name)
		}
		return path
	}
	cli, bash := tool("redis-cli"), tool("bash")
	srv := redistest.Start(t)
	r := newQueue(t, srv.Client())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "enqueue.lua"), []byte(scriptOfDoc(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(srv.Addr(), ":")
	example := strings.NewReplacer("{default:default}", "{default:"+r.Name()+"}", "redis-cli", cli+" -h "+host+" -p "+port,
		"$(openssl rand -hex 16)", "0123456789abcdef").Replace(block(t, "wire.md", "sh", "--eval"))
	cmd := exec.Command(bash, "-euc", example)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "ok\n") || !strings.HasSuffix(string(out), "\n1\n\nnew\n") {
		t.Fatalf("%v:\n%s", err, out)
	}
	r.open()
	same(t, "kind", r.one().Job.Kind, "email.welcome")
}
