package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// TestMain is also the main function of the servers that the tests start.
func TestMain(m *testing.M) {
	if IsChild() {
		Main([]Lock{{Name: "single", New: func(s Settings) (Guard, func() error, error) {
			r, err := lock.New(s.Redis, lock.Config{})
			if err != nil {
				return nil, nil, err
			}
			return With(r, s.Key), nil, nil
		}}})
		return
	}
	redistest.Main(m)
}

// A server must not outlive its parent, even if the parent is killed.
func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = settings{redisURL: "redis://" + redistest.Start(t).Addr(), lock: "single", prefix: redistest.Name(t)}.environ()
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("it says it serves on %q, %v", url, err)
	}
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	broken, sound := &Lock{Name: "none"}, &Lock{Name: "single", Works: true}
	several := &Lock{Name: "redlock", Works: true, Nodes: &NodeKind{Name: "masters"}}
	redlock := choices{lock: several, nodes: 5}
	for name, c := range map[string]struct {
		sum  Summary
		line string
		ok   bool
	}{
		"race":          {Summary{choices: choices{lock: broken}, Created: 5, stored: 5}, "items: lock=none created=5 rejected=0 limit=3", true},
		"lucky":         {Summary{choices: choices{lock: broken}, Created: 3, rejected: 2, stored: 3}, "items: lock=none created=3 rejected=2 limit=3", true},
		"no lock":       {Summary{choices: choices{lock: sound}, Created: 4, rejected: 1, stored: 4}, "items: lock=single created=4 rejected=1 limit=3", false},
		"not there":     {Summary{choices: redlock, Created: 3, rejected: 2, stored: 2}, "items: lock=redlock created=3 rejected=2 limit=3", false},
		"broken":        {Summary{choices: choices{lock: broken}, Created: 4, other: 1, stored: 4}, "items: lock=none created=4 rejected=0 limit=3", false},
		"one without":   {Summary{choices: redlock, Created: 3, rejected: 1, unavailable: 1, stored: 3}, "items: lock=redlock created=3 rejected=1 unavailable=1 limit=3", false},
		"none of seven": {Summary{choices: choices{lock: several, nodes: 7, kill: 4}, unavailable: 5}, "items: lock=redlock created=0 rejected=0 unavailable=5 limit=3", true},
		"three of six":  {Summary{choices: choices{lock: several, nodes: 6, kill: 3}, Created: 3, rejected: 2, stored: 3}, "items: lock=redlock created=3 rejected=2 limit=3", false},
	} {
		if line := c.sum.String(); line != c.line {
			t.Errorf("%s: %q, want %q", name, line, c.line)
		}
		if err := c.sum.Problem(); (err == nil) != c.ok {
			t.Errorf("%s: problem = %v", name, err)
		}
	}
}

// A client's mistake and a lock that is refused have their own replies.
func TestService(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	key := redistest.Name(t)
	defer rdb.Del(t.Context(), key)
	open := func(ctx context.Context, fn func(context.Context) error) error { return fn(ctx) }
	shut := func(context.Context, func(context.Context) error) error { return errors.New("no lock today") }
	for _, c := range []struct {
		guard        Guard
		method, body string
		status       int
		answer       string
	}{
		{open, "POST", `{"name":"a"}`, 201, `{"items":["a"],"total":1}` + "\n"},
		{open, "POST", `{"name":"b"}`, 201, `{"items":["a","b"],"total":2}` + "\n"},
		{shut, "POST", `{"name":"c"}`, 503, `{"detail":"The lock can't be had: no lock today"}` + "\n"},
		{open, "POST", `{"name":"c"}`, 201, `{"items":["a","b","c"],"total":3}` + "\n"},
		{open, "POST", `{"name":"d"}`, 400, `{"detail":"Cannot create more than 3 items."}` + "\n"},
		{open, "POST", `{}`, 422, `{"detail":"want an item with a name"}` + "\n"},
		{open, "POST", `a`, 422, `{"detail":"want an item with a name"}` + "\n"},
		{open, "GET", ``, 405, "Method Not Allowed\n"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/items", strings.NewReader(c.body))
		(&service{store{rdb, key}, c.guard}).handler().ServeHTTP(w, r)
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != c.status || string(body) != c.answer {
			t.Errorf("%s %s: %d %s, %v; want %d %s", c.method, c.body, w.Code, body, err, c.status, c.answer)
		}
	}
}

// The flags of nodes are those of the locks that have them.
func TestParse(t *testing.T) {
	t.Parallel()
	locks := []Lock{
		{Name: "none"},
		{Name: "etcd", Nodes: &NodeKind{Name: "members", Default: 3, Min: 1, Max: 5}},
		{Name: "zookeeper", Nodes: &NodeKind{Name: "members", Default: 3, Min: 1, Max: 5}},
		{Name: "postgres", Nodes: &NodeKind{Name: "database", Default: 1, Min: 1, Max: 1}},
	}
	for _, c := range []struct {
		args        string
		nodes, kill int
		complaint   string
	}{
		{"", 0, 0, ""},
		{"-lock etcd", 3, 0, ""},
		{"-lock zookeeper -members 5 -kill 2", 5, 2, ""},
		{"-lock postgres -kill 1", 1, 1, ""},
		{"-lock two", 0, 0, "-lock=two: want one of none, etcd, zookeeper, postgres"},
		{"-lock etcd -members 6", 0, 0, "-members=6: want 1 to 5"},
		{"-lock etcd -kill 4", 0, 0, "-kill=4: want 0 to 3"},
		{"-lock postgres -kill 2", 0, 0, "-kill=2: want 0 to 1"},
		{"-lock postgres -members 3", 0, 0, "-members is for -lock=etcd or zookeeper only"},
		{"-kill 1", 0, 0, "-kill is for -lock=etcd or zookeeper or postgres only"},
		{"-masters 3", 0, 0, "-masters"},
		{"etcd", 0, 0, `what is ["etcd"]?`},
	} {
		var out bytes.Buffer
		got, err := parse(locks, strings.Fields(c.args), &out)
		if (err == nil) != (c.complaint == "") || !strings.Contains(out.String(), c.complaint) {
			t.Errorf("%q: %v, %q; want %q", c.args, err, &out, c.complaint)
		}
		if err == nil && (got.nodes != c.nodes || got.kill != c.kill) {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
}

// Servers that the environment names are used, and not shown.
func TestGivenNodes(t *testing.T) {
	locks := []Lock{{Name: "postgres", Nodes: &NodeKind{Name: "database", Default: 1, Min: 1, Max: 1, Env: "ITEMS_TEST_NODES"}}}
	t.Setenv("ITEMS_TEST_NODES", "postgres://a:secret@b/c")
	var out bytes.Buffer
	if _, err := parse(locks, []string{"-kill", "1"}, &out); err == nil || !strings.Contains(out.String(), "ITEMS_TEST_NODES names others") {
		t.Errorf("-kill: %v, %q", err, &out)
	}
	var s settings
	nodes, err := startNodes(t.Context(), choices{lock: &locks[0], nodes: 1}, &s, &out)
	if nodes != nil || err != nil || len(s.nodes) != 1 || s.nodes[0] != "postgres://a:secret@b/c" || strings.Contains(out.String(), "secret") {
		t.Errorf("startNodes = %v, %v, %q, %q", nodes, err, s.nodes, &out)
	}
}
