package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/examples/more/tracing/internal/jaeger"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

const (
	envProgram = "TRACING_TEST_PROGRAM" // makes the test binary act as the program
	password   = "xyzzy-canary-password"
	canary     = "xyzzy-canary-payload" // is in every payload of a probe, and in the panics of its handlers
)

// checkPrivate searches the text that a test has read for data that must not be there: payloads, the
// password of Redis, keys of locks, and more.
func checkPrivate(c *checker, what, raw string, more ...string) {
	c.Helper()
	for _, secret := range append([]string{password, canary, card, "a lamp", "ann@example.com", ":reports"}, more...) {
		c.that(!strings.Contains(raw, secret), "%q is in %s", secret, what)
	}
}

// A testRedis is a Redis for one test.
type testRedis struct {
	url        string // contains a password, if it is a real one
	host, port string
	rdb        *redis.Client
}

func startRedis(t *testing.T) *testRedis {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	mode := os.Getenv(redistest.Env)
	r := &testRedis{}
	if mode == "required" || mode == "" && err == nil {
		addr := redistest.New(t, "--requirepass", password).Addr()
		r.url = "redis://:" + password + "@" + addr
	} else {
		srv, err := embedded.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
		})
		r.url = "redis://" + srv.Addr()
	}
	opt, err := redis.ParseURL(r.url)
	if err != nil {
		t.Fatal(err)
	}
	r.host, r.port, _ = net.SplitHostPort(opt.Addr)
	r.rdb = redis.NewClient(opt)
	t.Cleanup(func() { _ = r.rdb.Close() })
	return r
}

// spansTo returns the environment of a process that sends its spans to this URL.
func spansTo(otlp string, more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "OTEL_") || strings.HasPrefix(kv, envRedis+"=")
	})
	return append(append(env, envEndpoint+"="+otlp, "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_BSP_MAX_QUEUE_SIZE=100000"), more...)
}

// runProgram runs the program as a process and returns what it printed.
func runProgram(t *testing.T, env []string) (stdout, stderr string, err error) {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(env, envProgram+"=1")
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	return out.String(), complaints.String(), err
}

// A story has everything that a run of the program left in Jaeger.
type story struct {
	redis  *testRedis
	queue  string
	output string
	jobs   map[string][]string // IDs by the kind of request: "orders", "payments" and so on
	spans  []*jaeger.Span      // of all traces, by start time
	byID   map[jaeger.Link]*jaeger.Span
	raw    []byte // all replies of the API
}

var services = []string{"shop-web", "shop-worker", "shop-scheduler"}

// tellStory runs the program against Jaeger and reads all that it sent.
func tellStory(t *testing.T, j *jaeger.Server) *story {
	t.Helper()
	s := &story{redis: startRedis(t), jobs: make(map[string][]string), byID: make(map[jaeger.Link]*jaeger.Span)}
	out, complaints, err := runProgram(t, spansTo(j.OTLP, envRedis+"="+s.redis.url, "JAEGER_URL="+j.Query))
	if err != nil {
		t.Fatalf("the program: %v\n%s\n%s", err, out, complaints)
	}
	s.output = out + complaints
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := regexp.MustCompile(`^tracing: ok jobs=\d+ traces=[1-9]\d* retried=1 recovered=\d+ waited=1 snoozed=\d+ dead=1 ticks=\d+$`)
	if !last.MatchString(lines[len(lines)-1]) {
		t.Fatalf("the last line should be that all is well:\n%s\n%s", out, complaints)
	}
	if m := regexp.MustCompile(`(?m)^tracing: queue (\S+)`).FindStringSubmatch(out); m != nil {
		s.queue = m[1]
	}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+) +`+regexp.QuoteMeta(j.Query)+`/trace/[0-9a-f]{32}  (.+)$`).FindAllStringSubmatch(out, -1) {
		s.jobs[m[1]] = append(s.jobs[m[1]], strings.Fields(m[2])...)
	}
	ids := make(map[string]bool)
	for _, name := range services {
		found, raw, err := j.Search(t.Context(), name, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		s.raw = append(s.raw, raw...)
		for _, sp := range found {
			ids[sp.TraceID] = true
		}
	}
	for id := range ids {
		spans, raw, err := j.Trace(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		s.spans, s.raw = append(s.spans, spans...), append(s.raw, raw...)
	}
	slices.SortStableFunc(s.spans, func(a, b *jaeger.Span) int { return a.Start.Compare(b.Start) })
	for _, sp := range s.spans {
		s.byID[sp.Link()] = sp
	}
	seen.saw(len(ids), len(s.spans))
	return s
}

// of returns the spans of this operation on a job, such as "process". If job is "", it returns those
// of all jobs.
func (s *story) of(op, job string) []*jaeger.Span {
	var found []*jaeger.Span
	for _, sp := range s.spans {
		if sp.Name == op+" "+s.queue && (job == "" || sp.Attributes[attrMessageID] == job) {
			found = append(found, sp)
		}
	}
	return found
}

// named returns the spans of this name.
func (s *story) named(name string) []*jaeger.Span {
	var found []*jaeger.Span
	for _, sp := range s.spans {
		if sp.Name == name {
			found = append(found, sp)
		}
	}
	return found
}

func (s *story) parent(sp *jaeger.Span) *jaeger.Span {
	return s.byID[jaeger.Link{TraceID: sp.TraceID, SpanID: sp.ParentID}]
}

// under returns the spans of this name below a span, at any depth.
func (s *story) under(top *jaeger.Span, name string) []*jaeger.Span {
	var found []*jaeger.Span
	for _, sp := range s.named(name) {
		for p := s.parent(sp); p != nil; p = s.parent(p) {
			if p == top {
				found = append(found, sp)
				break
			}
		}
	}
	return found
}

// creation returns the span that the job's headers name.
func (s *story) creation(job string) *jaeger.Span {
	for _, op := range []string{"create", "enqueue"} {
		if found := s.of(op, job); len(found) > 0 {
			return found[0]
		}
	}
	return nil
}

// job returns the n-th job of a kind of request, or "none".
func (s *story) job(what string, n int) string {
	if n >= len(s.jobs[what]) {
		return "none"
	}
	return s.jobs[what][n]
}

func show(sp *jaeger.Span) string {
	if sp == nil {
		return "no span"
	}
	return fmt.Sprintf("%s (%s in trace %s)", sp.Name, sp.SpanID, sp.TraceID)
}

// tree returns a trace as text, for the messages of failures.
func (s *story) tree(trace string) string {
	var b strings.Builder
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		for _, sp := range s.spans {
			if sp.TraceID == trace && (sp.ParentID == parent || parent == "" && s.parent(sp) == nil) {
				fmt.Fprintf(&b, "%s%s %s links=%v %v\n", strings.Repeat("  ", depth), sp.Kind, sp.Name, sp.Links, sp.Attributes)
				add(sp.SpanID, depth+1)
			}
		}
	}
	add("", 1)
	return b.String()
}

// Without a collector the program runs all jobs, reports that there is none, and leaves nothing in
// Redis.
func TestWithoutCollector(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	for name, redisURL := range map[string]string{"embedded": "", "REDIS_URL": r.url} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, complaints, err := runProgram(t, spansTo("http://127.0.0.1:1", envRedis+"="+redisURL))
			if err != nil || !strings.Contains(out, "\ntracing: ok jobs=") || !strings.Contains(out, " traces=0 ") {
				t.Errorf("%v\n%s\n%s", err, out, complaints)
			}
			if !strings.Contains(complaints, "no collector answers") || strings.Count(complaints, "127.0.0.1:1:") > 1 {
				t.Errorf("want one clear complaint:\n%s", complaints)
			}
		})
	}
	t.Cleanup(func() { // after the subtests, and before the server ends
		if n, err := r.rdb.DBSize(context.Background()).Result(); err != nil || n > 0 {
			t.Errorf("%d keys are left, %v", n, err)
		}
	})
}

func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"redis://user:secret word@127.0.0.1:1", "ftp://user:secret@127.0.0.1:1", "redis://user:secret@127.0.0.1:1/0?max_retries=-1"} {
		out, complaints, err := runProgram(t, spansTo("http://127.0.0.1:1", envRedis+"="+bad))
		if err == nil || strings.Contains(out+complaints, "secret") {
			t.Errorf("on %q: %v\n%s\n%s", bad, err, out, complaints)
		}
	}
}
