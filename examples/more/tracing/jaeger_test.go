package main

import (
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/examples/more/tracing/internal/jaeger"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestJaeger sends everything to a real Jaeger and checks the replies of Jaeger's API.
func TestJaeger(t *testing.T) {
	j := jaeger.Start(t)
	redis := startRedis(t)
	idler := startIdle(t, j, redis)
	for _, r := range rows {
		seen.expect(t.Name() + "/story/" + r.name)
	}
	t.Run("story", func(t *testing.T) {
		s := tellStory(t, j)
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) { checkRow(t, s, r) })
		}
		checks(t, whole(j, s))
	})
	checks(t, modes(j, redis))
	checks(t, events(j, redis))
	checks(t, []check{
		{"a sampled job is whole or absent", func(c *checker) { checkSampled(c, j, redis) }},
		{"an old job has a trace of its own", func(c *checker) { checkOld(c, j, redis) }},
		{"panic, timeout and cancel", func(c *checker) { checkFailures(c, j, redis) }},
		{"a lost lease", func(c *checker) { checkLost(c, j, redis) }},
		{"a corrupt traceparent", func(c *checker) { checkCorrupt(c, j, redis) }},
		{"64 KiB of baggage", func(c *checker) { checkBaggage(c, j, redis) }},
		{"64 KiB of baggage from elsewhere", func(c *checker) { checkForeignBaggage(c, j, redis) }},
		{"SIGTERM under load", func(c *checker) { checkTerminated(c, j, redis) }},
		{"idle time makes no trace", func(c *checker) { checkIdle(c, j, idler) }},
	})
}

// TestSampler needs no Jaeger. The attributes that samplers need are set at a span's start.
func TestSampler(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	queue := redistest.Name(t)
	report, _ := startProbe(t, spansTo("http://127.0.0.1:1"), probeConfig{
		Redis: r.url, Queue: queue, Service: queue, Enqueue: []task{{}}, Until: 1, Sample: true,
	}).end()
	job := []string{attrSystem, attrOperation, attrType, attrDestination, attrMessageID, attrAddress, attrPort, attrKind, attrMaxAttempts}
	delivery := append(slices.Clip(job), attrClientID, attrAttempt)
	for name, want := range map[string][]string{"enqueue": job, "process": delivery, "handle": delivery, "ack": delivery} {
		for _, key := range want {
			if !slices.Contains(report.Seen[name], key) {
				t.Errorf("%s has no %s at its start: %q", name, key, report.Seen[name])
			}
		}
	}
}

// TestCollectorDown needs no Jaeger: the collector doesn't answer, or doesn't listen.
func TestCollectorDown(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	hole := blackHole(t)
	for name, otlp := range map[string]string{"refuses": "http://127.0.0.1:1", "says nothing": hole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &checker{T: t}
			queue := redistest.Name(t)
			p := startProbe(t, spansTo(otlp), probeConfig{Redis: r.url, Queue: queue, Service: queue, Enqueue: []task{{Times: 2000}}, Until: 2000})
			report, took := p.end()
			equal(c, "handlers called", report.Called, 2000)
			equal(c, "deliveries again", report.Again, 0)
			equal(c, "jobs left", r.left(c, queue), 0)
			c.that(took < 30*time.Second, "it took %v", took)
		})
	}
}

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, conn := range open {
			conn.Close()
		}
	})
	return "http://" + l.Addr().String()
}

// found returns the spans of all traces with a span of the service, by trace. It checks that Jaeger's
// data contains nothing private.
func found(c *checker, j *jaeger.Server, service string, private ...string) (byTrace map[string][]*jaeger.Span) {
	c.Helper()
	spans, body, err := j.Search(c.Context(), service, 20_000)
	if err != nil {
		c.Fatal(err)
	}
	byTrace = make(map[string][]*jaeger.Span)
	for _, sp := range spans {
		byTrace[sp.TraceID] = append(byTrace[sp.TraceID], sp)
	}
	checkPrivate(c, "the traces", string(body), private...)
	seen.saw(len(byTrace), len(spans))
	return byTrace
}

// ops returns the names of spans, sorted, without their queue or kind.
func ops(spans []*jaeger.Span) string {
	var names []string
	for _, sp := range spans {
		name, _, _ := strings.Cut(sp.Name, " ")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// The spans in the trace of a job that succeeded, at once or after a retry.
const (
	wholeJob     = "ack enqueue handle process request"
	wholeRetried = "ack enqueue handle handle process process request retry"
)

func only(spans []*jaeger.Span, op string) *jaeger.Span {
	for _, sp := range spans {
		if strings.HasPrefix(sp.Name, op+" ") {
			return sp
		}
	}
	return nil
}

// idle is longer than every period of a worker. The longest period is a minute.
const idle = 65 * time.Second

// An idler is a process without jobs. It runs during the other checks.
type idler struct {
	*probe
	service string
}

func startIdle(t *testing.T, j *jaeger.Server, r *testRedis) idler {
	t.Helper()
	queue := redistest.Name(t)
	return idler{startProbe(t, spansTo(j.OTLP), probeConfig{
		Redis: r.url, Queue: queue, Service: queue, Cron: true, TTL: 2 * time.Second, For: idle,
	}), queue}
}

func checkIdle(c *checker, j *jaeger.Server, i idler) {
	report, _ := i.end()
	equal(c, "handlers called", report.Called, 0)
	c.that(report.Took > idle-time.Second, "it was idle for %v only", report.Took)
	services, err := j.Services(c.Context())
	c.that(err == nil && !slices.Contains(services, i.service), "the idle process sent spans: %v, %v", services, err)
}

func checkSampled(c *checker, j *jaeger.Server, r *testRedis) {
	const jobs, failing = 1000, 300
	queue := redistest.Name(c)
	p := startProbe(c.T, spansTo(j.OTLP, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.1"), probeConfig{
		Redis: r.url, Queue: queue, Service: queue, Until: jobs + failing,
		Enqueue: []task{{Times: jobs - failing}, {Do: "fail at first", Times: failing}},
	})
	report, _ := p.end()
	equal(c, "handlers called", report.Called, jobs+failing)
	equal(c, "deliveries again", report.Again, failing)
	byTrace := found(c, j, queue)
	c.that(len(byTrace) >= 50 && len(byTrace) <= 150, "%d traces of %d jobs at a ratio of 0.1", len(byTrace), jobs) // five deviations
	retried := 0
	for id, spans := range byTrace {
		got, want := ops(spans), wholeJob
		first, last := int64(0), int64(0)
		for _, sp := range spans {
			if attempt, _ := sp.Attributes[attrAttempt].(int64); strings.HasPrefix(sp.Name, "process ") {
				if first == 0 {
					first = attempt
				}
				last = attempt
			}
		}
		if last > 1 {
			want = wholeRetried
			retried++
		}
		if got != want || first != 1 {
			c.that(false, "trace %s has %q from attempt %d to %d, want %q; %d traces", id, got, first, last, want, len(byTrace))
			return
		}
		c.n++
	}
	c.that(retried > 0 && retried < len(byTrace), "%d of %d traces are of jobs that were retried", retried, len(byTrace))
}

func checkOld(c *checker, j *jaeger.Server, r *testRedis) {
	queue := redistest.Name(c)
	cfg := probeConfig{Redis: r.url, Queue: queue, Service: queue, Enqueue: []task{{ID: "old"}}, NoWork: true}
	startProbe(c.T, spansTo(j.OTLP), cfg).end()
	r.age(c, queue, "old", 16*time.Minute)
	cfg.Enqueue, cfg.NoWork, cfg.Until = nil, false, 1
	startProbe(c.T, spansTo(j.OTLP), cfg).end()
	byTrace := found(c, j, queue)
	equal(c, "traces", len(byTrace), 2)
	all := slices.Concat(slices.Collect(maps.Values(byTrace))...)
	enqueue, process := only(all, "enqueue"), only(all, "process")
	if enqueue == nil || process == nil {
		c.Fatalf("the spans are %s", ops(all))
	}
	c.that(process.ParentID == "", "process has a parent, though the job is old")
	c.that(slices.Contains(process.Links, enqueue.Link()), "process links to %v, want its creation", process.Links)
}

func checkFailures(c *checker, j *jaeger.Server, r *testRedis) {
	queue := redistest.Name(c)
	startProbe(c.T, spansTo(j.OTLP), probeConfig{
		Redis: r.url, Queue: queue, Service: queue, Until: 3,
		Enqueue: []task{{ID: "panics", Do: "panic"}, {ID: "waits", Do: "wait", Timeout: 50 * time.Millisecond}, {ID: "cancelled", Do: "cancel"}},
	}).end()
	byTrace := found(c, j, queue)
	want := map[string]any{"panics": "panic", "waits": "timeout", "cancelled": nil}
	for _, spans := range byTrace {
		process := only(spans, "process")
		if process == nil {
			c.Fatalf("the spans are %s", ops(spans))
		}
		id, _ := process.Attributes[attrMessageID].(string)
		errorType, ok := want[id]
		c.that(ok, "what is %q?", id)
		delete(want, id)
		equal(c, "error.type of "+id, process.Attributes[attrError], errorType)
		equal(c, "failure of "+id, process.Error, errorType != nil)
	}
	equal(c, "jobs without a trace", len(want), 0)
}

// checkLost makes a worker lose its lease: its network is held until another worker has done its job.
func checkLost(c *checker, j *jaeger.Server, r *testRedis) {
	queue := redistest.Name(c)
	proxy := r.proxy(c)
	cfg := probeConfig{
		Redis: r.urlThrough(proxy), Queue: queue, Service: queue + "-first",
		Enqueue: []task{{ID: "lost", Do: "wait"}}, Until: 1, TTL: time.Second,
	}
	first := startProbe(c.T, spansTo(j.OTLP), cfg)
	first.until(1)
	proxy.Pause()
	cfg.Redis, cfg.Service, cfg.Enqueue, cfg.Until = r.url, queue+"-second", nil, 0
	second := startProbe(c.T, spansTo(j.OTLP), cfg)
	second.until(1)
	proxy.Resume()
	first.end()
	second.terminate()
	second.end()
	byTrace := found(c, j, queue+"-first")
	all := slices.Concat(slices.Collect(maps.Values(byTrace))...)
	all = slices.DeleteFunc(all, func(sp *jaeger.Span) bool { return sp.Service != queue+"-first" })
	process := only(all, "process")
	if process == nil {
		c.Fatalf("the spans are %s", ops(all))
	}
	equal(c, "error.type", process.Attributes[attrError], any("signalbox.lease_lost"))
	for _, name := range []string{"lease.lost", "fence.rejected", "signalbox.lock.lost"} {
		c.that(slices.ContainsFunc(process.Events, func(e jaeger.Event) bool { return e.Name == name }), "no event %s in %v", name, process.Events)
	}
}

func checkCorrupt(c *checker, j *jaeger.Server, r *testRedis) {
	for name, header := range map[string]string{
		"text": "this is no traceparent", "short": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
		"zeros": "00-00000000000000000000000000000000-0000000000000000-01", "binary": "00-\x00\x01\x02",
	} {
		queue := redistest.Name(c)
		report, _ := startProbe(c.T, spansTo(j.OTLP), probeConfig{
			Redis: r.url, Queue: queue, Service: queue, Enqueue: []task{{}}, Until: 1,
			Headers: map[string]string{"traceparent": header, "tracestate": "=,=,"},
		}).end()
		equal(c, name+": handlers called", report.Called, 1)
		equal(c, name+": deliveries again", report.Again, 0)
		equal(c, name+": jobs left", r.left(c, queue), 0)
		byTrace := found(c, j, queue, header)
		equal(c, name+": traces", len(byTrace), 2)
		all := slices.Concat(slices.Collect(maps.Values(byTrace))...)
		process := only(all, "process")
		c.that(process != nil && process.ParentID == "", "%s: want a new root: %s", name, ops(all))
	}
}

// maxBaggage is the most baggage that a job's headers may have. It is W3C's limit.
const maxBaggage = 8192

// checkBaggage makes requests with 64 KiB of baggage. The allowed members arrive, except each one that
// would exceed the limit.
func checkBaggage(c *checker, j *jaeger.Server, r *testRedis) {
	const jobs = 10
	travel := []member{{"tenant", 32}, {"region", 5000}, {"user", 100}}
	tooLarge := []member{{"archive", 20 << 10}, {"trail", 4000}} // alone, and together with the region
	private := []member{{"session", 64}, {"cart", 36 << 10}}
	behind := slices.Concat(tooLarge, private)
	queue := redistest.Name(c)
	cfg := probeConfig{
		Redis: r.url, Queue: queue, Service: queue, Enqueue: []task{{Times: jobs}}, NoWork: true,
		Members: slices.Concat(travel, behind), Allow: []string{"tenant", "archive", "region", "trail", "user"},
	}
	all, kept := 0, -1 // commas separate the members
	var arrived, hidden []string
	for _, m := range cfg.Members {
		all += m.Bytes
		hidden = append(hidden, m.value()[:len(m.Name)+2])
	}
	for _, m := range travel {
		kept += len(m.Name+"="+m.value()) + 1
		arrived = append(arrived, m.Name+"="+m.value())
	}
	slices.Sort(arrived)
	c.that(all >= 64<<10, "the baggage has %d bytes", all)

	startProbe(c.T, spansTo(j.OTLP), cfg).end()
	records := r.records(c, queue)
	equal(c, "jobs in Redis", len(records), jobs)
	for _, record := range records {
		c.that(len(record) > kept && len(record) < maxBaggage+1024, "a job has %d bytes in Redis, of them %d of baggage", len(record), kept)
		for _, m := range behind {
			c.that(!strings.Contains(record, m.Name), "%s is in Redis", m.Name)
		}
	}

	cfg.Enqueue, cfg.NoWork, cfg.Until = nil, false, jobs
	report, _ := startProbe(c.T, spansTo(j.OTLP), cfg).end()
	equal(c, "handlers called", report.Called, jobs)
	equal(c, "deliveries again", report.Again, 0)
	equal(c, "jobs left", r.left(c, queue), 0)
	c.that(slices.Equal(report.Headers, []int{kept}) && kept <= maxBaggage, "jobs have %d bytes of baggage, want %d, at most %d", report.Headers, kept, maxBaggage)
	c.that(slices.Equal(report.Members, []string{strings.Join(arrived, " ")}), "the baggage of the handlers is %.300q, want %.300q", report.Members, arrived)
	equal(c, "traces", len(found(c, j, queue, hidden...)), jobs)
}

// checkForeignBaggage has a propagator that takes 64 KiB of baggage from another source.
func checkForeignBaggage(c *checker, j *jaeger.Server, r *testRedis) {
	queue := redistest.Name(c)
	report, _ := startProbe(c.T, spansTo(j.OTLP), probeConfig{
		Redis: r.url, Queue: queue, Service: queue, Enqueue: []task{{}}, Until: 1, Allow: []string{"tenant"},
		Headers: map[string]string{
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"baggage":     "tenant=" + strings.Repeat("x", 64<<10),
		},
	}).end()
	equal(c, "handlers called", report.Called, 1)
	c.that(slices.Equal(report.Headers, []int{0}) && slices.Equal(report.Members, []string{""}), "a job has %d bytes of baggage, %.300q", report.Headers, report.Members)
	c.that(len(found(c, j, queue, "xxxxx")) > 0, "no traces")
}

func checkTerminated(c *checker, j *jaeger.Server, r *testRedis) {
	const jobs = 1000
	queue := redistest.Name(c)
	cfg := probeConfig{Redis: r.url, Queue: queue, Service: queue + "-first", Enqueue: []task{{Times: jobs, Takes: 10 * time.Millisecond}}}
	first := startProbe(c.T, spansTo(j.OTLP), cfg)
	first.until(jobs / 4)
	first.terminate()
	firstReport, took := first.end()
	c.that(took < 10*time.Second, "it took %v to end", took)
	c.that(firstReport.Called < jobs, "all %d jobs were done before it ended", firstReport.Called)
	cfg.Service, cfg.Enqueue, cfg.Until = queue+"-second", nil, jobs-firstReport.Called
	second, _ := startProbe(c.T, spansTo(j.OTLP), cfg).end()
	equal(c, "handlers called", firstReport.Called+second.Called, jobs)
	equal(c, "deliveries again", firstReport.Again+second.Again, 0)
	equal(c, "jobs left", r.left(c, queue), 0)
	byTrace := found(c, j, queue+"-first")
	asked := 0
	for _, spans := range byTrace {
		for _, sp := range spans {
			if slices.ContainsFunc(sp.Events, func(e jaeger.Event) bool { return e.Name == "shutdown.requested" }) {
				asked++
			}
		}
	}
	c.that(asked > 0, "no span has the event shutdown.requested")
	for id, spans := range byTrace {
		for _, sp := range spans {
			if strings.HasPrefix(sp.Name, "process ") && only(spans, "ack") == nil {
				c.that(false, "trace %s has a process and no ack: %s", id, ops(spans))
				return
			}
		}
	}
}
