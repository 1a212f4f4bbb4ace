package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// A mail is a job whose handler does what its arguments say.
type mail struct {
	Do string `json:"do"`
	To any    `json:"to"`
}

func (mail) Kind() string { return "email.welcome" }

// A post is a worker of the queue "mail".
type post struct {
	w       *worker.Worker
	started chan string // IDs of jobs that hold
	free    chan struct{}
	stop    func()
}

// works starts a worker in the shell's namespace. It ends with the test.
func (s *shell) works(srv *redistest.Server) *post { s.t.Helper(); return s.worksBy(srv.Client()) }

func (s *shell) worksBy(rdb redis.UniversalClient) *post {
	s.t.Helper()
	p := &post{started: make(chan string, 100), free: make(chan struct{})}
	var err error
	p.w, err = worker.New(rdb, worker.Config{
		Namespace: s.namespace, Queues: worker.Queues{"mail": {Concurrency: 5}}, Logger: discard, DrainTimeout: time.Millisecond,
		StuckAfter: 100 * time.Millisecond,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	worker.Handle(p.w, func(ctx context.Context, job *signalbox.Job, m mail) error {
		switch m.Do {
		case "hold":
			p.started <- job.ID
			select {
			case <-p.free:
			case <-ctx.Done():
			}
			return ctx.Err()
		case "ignore":
			p.started <- job.ID
			<-p.free
		case "die":
			return errors.New("smtp: 451 try again later\n\x1b[31mplease\u202e")
		case "cancel":
			return signalbox.Cancel(errors.New("the address is gone"))
		}
		if m.To == "ann@@example.org" {
			return fmt.Errorf("no such address: %q", m.To)
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.w.Run(ctx); err != nil {
			s.t.Error(err)
		}
	}()
	p.stop = func() {
		stop()
		<-ended
	}
	s.t.Cleanup(p.stop)
	return p
}

// settled waits until the queue has so many dead and cancelled jobs, and none that is ready.
func (s *shell) settled(dead, cancelled int64) {
	s.t.Helper()
	redistest.Eventually(s.t, func() bool {
		var got struct{ Queues []queueJSON }
		s.into(&got, "queue", "ls", "mail")
		return got.Queues[0].Dead == dead && got.Queues[0].Cancelled == cancelled && got.Queues[0].Ready == 0
	}, "%d dead jobs, %d cancelled ones", dead, cancelled)
}

// ages hides what differs from run to run: times, spans of time, IDs of workers, tokens.
func ages(s string) string {
	for _, r := range []struct{ old, new string }{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`ran [0-9.]+[µmn]?s`, "ran SPAN"},
		{`(?m)(for |in |\()(\d+(ms|s|m|h|d))+`, "${1}SPAN"},
		{`(\d+(ms|s|m|h|d))+ ago`, "SPAN ago"},
		{`token \d+`, "token N"},
		{` +\n`, "\n"},
	} {
		s = regexp.MustCompile(r.old).ReplaceAllString(s, r.new)
	}
	return s
}

func TestJobLs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.fails(exitNotFound, []string{"no such queue"}, "job", "ls", "mail")
	sh.ok("enqueue", "email.welcome", `{"do":"die"}`, "-q", "mail", "--id", "d1", "--max-attempts", "1")
	sh.ok("enqueue", "email.welcome", `{"do":"cancel"}`, "-q", "mail", "--id", "c1")
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1")
	p := sh.works(srv)
	<-p.started
	sh.settled(1, 1)
	sh.ok("queue", "pause", "mail")
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "w1", "--max-attempts", "7")
	sh.ok("enqueue", "report", "-q", "mail", "--id", "s1", "--after", "90m")
	sh.ok("enqueue", "report", "-q", "other", "--id", "s2", "--after", "3d")

	same(t, regexp.MustCompile(` {2,}`).ReplaceAllString(ages(sh.ok("job", "ls", "mail")), "  "), `
		ID  KIND  STATE  WHEN  FAILED  ERROR
		r1  email.welcome  running  for SPAN  0/25  -
		w1  email.welcome  ready  for SPAN  0/7  -
		s1  report  scheduled  in SPAN  0/25  -
		d1  email.welcome  dead  SPAN ago  1/1  smtp: 451 try again later\n\u001b[31mplease\u202e
		c1  email.welcome  cancelled  SPAN ago  0/25  job cancelled: the address is gone`)
	if out := sh.ok("job", "ls"); !strings.Contains(out, "QUEUE") || !strings.Contains(out, "other") || !strings.Contains(out, "s2") {
		t.Error(out)
	}
	for args, want := range map[string]string{
		"--state dead":                      "d1",
		"--state dead,cancelled":            "d1 c1",
		"--kind report":                     "s1",
		"--id-prefix r":                     "r1",
		"--error 451":                       "d1",
		"--error 452":                       "",
		"--state dead --newer-than 1d":      "d1",
		"--state dead --older-than 1d":      "",
		"--state scheduled --older-than 1h": "s1",
		"--limit 2":                         "r1 w1",
		"--limit 0":                         "r1 w1 s1 d1 c1",
		"--kind email.welcome --state running,ready": "r1 w1",
	} {
		var ids []string
		for line := range strings.SplitSeq(strings.TrimSpace(sh.ok(append([]string{"job", "ls", "mail", "-o", "json"}, strings.Fields(args)...)...)), "\n") {
			if line != "" {
				var j jobJSON
				decode(t, line, &j)
				ids = append(ids, j.ID)
			}
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	sh.fails(exitUsage, []string{"--state", "running, ready"}, "job", "ls", "mail", "--state", "lost")
	sh.fails(exitUsage, []string{"--limit"}, "job", "ls", "mail", "--limit", "-1")
	sh.fails(exitUsage, []string{"--after"}, "job", "ls", "mail", "--after", "x")
	sh.fails(exitUsage, []string{"cursor"}, "job", "ls", "mail", "--state", "dead", "--after", "x")
}

// A table stops at its limit and says how to go on; the cursor does so.
func TestJobLsGoesOn(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	for i := range 53 {
		sh.ok("enqueue", "mail", "--id", fmt.Sprintf("j%02d", i), "--after", fmt.Sprintf("%dh", i+1))
	}
	out, errs, code := sh.run("job", "ls", "default", "--state", "scheduled")
	if code != 0 || strings.Count(out, "\n") != 51 || !strings.HasPrefix(errs, "There are more than these 50") {
		t.Errorf("%d, %d lines, %q", code, strings.Count(out, "\n"), errs)
	}
	cursor := strings.TrimSpace(errs[strings.Index(errs, "--after ")+len("--after "):])
	if out = sh.ok("job", "ls", "default", "--state", "scheduled", "--after", cursor); strings.Count(out, "\n") != 4 || !strings.Contains(out, "j50") {
		t.Error(out)
	}
	if _, errs, _ := sh.run("job", "ls"); !strings.HasPrefix(errs, "There are more than these 50: see --limit.") {
		t.Error(errs)
	}
	if out, errs, _ := sh.run("job", "ls", "--limit", "53"); strings.Count(out, "\n") != 54 || errs != "" {
		t.Error(out, errs)
	}
	if out := sh.ok("job", "ls", "-o", "json"); strings.Count(out, "\n") != 53 {
		t.Error(out)
	}
}

// A deadline is given to a job, and shown.
func TestJobDeadline(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "mail", "{}", "--id", "j1", "--deadline", "2200-01-01T00:00:00Z")
	if out := sh.ok("job", "show", "default", "j1"); !strings.Contains(out, "deadline   2200-01-01T00:00:00Z: no attempt begins or goes on after that") {
		t.Error(out)
	}
	if out := sh.ok("job", "show", "default", "j1", "-o", "json"); !strings.Contains(out, `"expires_at":null,"deadline":"2200-01-01T00:00:00Z"`) {
		t.Error(out)
	}
	sh.fails(exitUsage, []string{"--deadline"}, "enqueue", "mail", "{}", "--deadline", "soon")
	sh.fails(exitUsage, []string{"--deadline and --expire-after"}, "enqueue", "mail", "{}", "--deadline", "2200-01-01T00:00:00Z", "--expire-after", "1h")
}

// TestJobJSON pins the fields that programs read. A change here is one of docs/cli/json.md.
func TestJobJSON(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "mail", `{"to": "<x>"}`, "--id", "j1", "--at", "2200-01-01T00:00:00Z", "--priority", "high", "--job-timeout", "90s", "--retain", "1d", "--expire-after", "1h", "--effect-key", "k",
		"--serial", "s1", "--header", "tenant=acme", "--max-attempts", "3")
	line := sh.ok("job", "ls", "default", "-o", "json")
	cursor := regexp.MustCompile(`"cursor":"[^"]+"`)
	common := `"queue":"default","id":"j1","kind":"mail","state":"scheduled","priority":"high","failed":0,"max_attempts":3,"crashes":0,"survived":0,"timeout_seconds":90,"retain_seconds":86400,"expires_at":"TIME","deadline":null,"group":"s1","serial":true,"yield_on_retry":false,"batch":"","unique_key":"","unique_until":"",` +
		`"enqueued_at":"TIME","due_at":"TIME","ended_at":null,"last_error":"","waits":"until 2200-01-01 00:00:00 UTC","worker":"","token":0,"since":null,` +
		`"cancelling":false,"trace_id":"","span_id":"","run_trace_id":"","run_span_id":"",`
	same(t, ages(cursor.ReplaceAllString(line, `"cursor":"C"`)), "{"+common+`"cursor":"C","record_error":""}`)
	if strings.Contains(line, "<x>") || strings.Contains(line, "acme") {
		t.Errorf("a listing shows arguments: %s", line)
	}
	same(t, ages(sh.ok("job", "show", "default", "j1", "-o", "json")), "{"+common+
		`"cursor":"","record_error":"","nowhere":false,"effect_key":"k","headers":{"tenant":"acme"},"payload":{"to":"\u003cx\u003e"},"payload_base64":null,"encoding":"","attempts":[],"success":null,"result":null,"result_base64":null,"progress":null}`)
}

// Arguments that aren't JSON are named by their encoding, and not printed.
func TestShowEncoding(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{out: &out}
	j := &inspect.Job{Kind: "k", Payload: []byte("\x28\xb5"), Encoding: "zstd+json"}
	a.show(j, time.Now())
	for _, want := range []string{"encoding   zstd+json\n", "2 bytes, which only programs with the codec can read"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\xb5") {
		t.Errorf("it prints the payload:\n%s", out.String())
	}
	out.Reset()
	if err := a.document(showOf(j)); err != nil || !strings.Contains(out.String(), `"payload_base64":"KLU=","encoding":"zstd+json"`) {
		t.Errorf("%v, %s", err, out.String())
	}
}

// The output is JSON and UTF-8, whatever the arguments are.
func TestPayloadJSON(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"a": "ü"}`:     `"payload":{"a":"ü"},"payload_base64":null`,
		"":               `"payload":null,"payload_base64":""`,
		"{":              `"payload":null,"payload_base64":"ew=="`,
		"\"\xff\"":       `"payload":null,"payload_base64":"Iv8i"`,
		`"a<b>&\u2028c"`: `"payload":"a<b>&\u2028c","payload_base64":null`,
	} {
		var out strings.Builder
		a := &app{out: &out}
		if err := a.document(showOf(&inspect.Job{Payload: []byte(payload)})); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %s", payload, err, out.String())
		}
	}
}

func TestJobShow(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"die","to":["a","b"]}`, "-q", "mail", "--id", "d1", "--max-attempts", "1", "--header", "tenant=acme", "--effect-key", "k", "--retain", "12h")
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1", "--job-timeout", "1h", "--priority", "low", "--retain", "none", "--group", "g1")
	sh.works(srv)
	sh.settled(1, 0)
	got := ages(sh.ok("job", "show", "mail", "d1"))
	got, _, _ = strings.Cut(got, "\nattempts that failed")
	same(t, got, `
		job        d1
		queue      mail
		kind       email.welcome
		state      dead, SPAN ago
		attempts   1 of 1 failed, 0 crashes
		error      smtp: 451 try again later\n\u001b[31mplease\u202e
		enqueued   TIME (SPAN ago)
		ended      TIME (SPAN ago)
		priority   normal
		kept       for SPAN after its end, until TIME
		effect key k
		header     tenant: acme

		arguments
		  {
		    "do": "die",
		    "to": [
		      "a",
		      "b"
		    ]
		  }`)
	running := sh.ok("job", "show", "mail", "r1")
	for _, want := range []string{"running, for ", "timeout    1h0m0s for each attempt", "priority   low", "kept       not after its end", "group      g1", ", token "} {
		if !strings.Contains(running, want) {
			t.Errorf("%q is not in\n%s", want, running)
		}
	}
	if of := sh.ok("job", "ls", "mail", "--group", "g1"); !strings.Contains(of, "r1") || strings.Contains(of, "d1") {
		t.Errorf("the jobs of a group: %s", of)
	}
	sh.fails(exitUsage, []string{"--group and --serial"}, "enqueue", "k", "--group", "a", "--serial", "a")
	sh.fails(exitNotFound, []string{"no such job", "d2"}, "job", "show", "mail", "d2")
	sh.fails(exitNotFound, []string{"no such queue", "mial"}, "job", "show", "mial", "d1")
	sh.fails(exitUsage, []string{"job show QUEUE ID"}, "job", "show", "d1")
}

// What handlers and producers wrote is never obeyed by a terminal, whichever field it is in.
func TestShowIsSafeForATerminal(t *testing.T) {
	t.Parallel()
	evil := "\x1b]0;x\a\u009b31m\u202e\r"
	j := &inspect.Job{
		Queue: "q", ID: "i", Kind: evil, State: signalbox.StateDead, LastError: evil, Waits: evil, Worker: evil, EffectKey: evil,
		Headers: map[string]string{evil: evil}, Payload: []byte(`"` + "\u202e" + `"`), Err: errors.New(evil), TraceID: evil, RunTraceID: evil,
		Attempts: []inspect.Attempt{{Error: evil, Stack: evil + "\n" + evil, Worker: evil, TraceID: evil}},
	}
	for _, payload := range []string{`"` + "\u202e" + `"`, evil, "\xff\x1b"} {
		j.Payload = []byte(payload)
		var out strings.Builder
		a := &app{out: &out, err: &out, errTerminal: true, flush: func() {}}
		a.show(j, time.Now())
		l := a.listing(true, 0, time.Now())
		if err := l.job(j); err != nil {
			t.Fatal(err)
		}
		l.end(true, false)
		for _, r := range out.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q is printed in\n%q", r, out.String())
			}
		}
	}
}

func TestShowAttempts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{out: &out}
	at := time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)
	a.show(&inspect.Job{
		Queue: "mail", ID: "d1", Kind: "k", State: signalbox.StateDead, Failed: 2, MaxAttempts: 2, EnqueuedAt: at, DueAt: at.Add(time.Minute), EndedAt: at.Add(time.Hour),
		LastError: "second", Payload: []byte("\xff"), TraceID: "t", SpanID: "s",
		Attempts: []inspect.Attempt{
			{Number: 1, At: at, Ran: 1500 * time.Millisecond, Worker: "web-1:7:abc", Error: "handler panicked: first", Stack: "goroutine 1\n\tmain.go:7\n", TraceID: "t1"},
			{Number: 2, At: at.Add(time.Minute), Ran: time.Millisecond, Worker: "web-2:8:def", Error: "second"},
		},
	}, at.Add(2*time.Hour))
	same(t, out.String(), `
		job        d1
		queue      mail
		kind       k
		state      dead, 1h ago
		attempts   2 of 2 failed, 0 crashes
		error      second
		enqueued   2026-01-31T03:00:00Z (2h ago)
		due        2026-01-31T03:01:00Z (1h59m ago)
		ended      2026-01-31T04:00:00Z (1h ago)
		priority   normal
		trace      t, span s

		arguments
		  1 bytes that are no text; -o json has them in base64

		attempts that failed
		  1. 2026-01-31T03:00:00Z, ran 1.5s on web-1:7:abc, trace t1
		     handler panicked: first
		       goroutine 1
		           main.go:7
		  2. 2026-01-31T03:01:00Z, ran 1ms on web-2:8:def
		     second`)
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	if _, errs, code := sh.run("worker", "ls"); code != 0 || !strings.Contains(errs, "no worker in namespace") {
		t.Errorf("%d, %s", code, errs)
	}
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1")
	p := sh.works(srv)
	<-p.started
	id := p.w.ID()
	var got struct{ Workers []workerJSON }
	sh.into(&got, "worker", "ls")
	if len(got.Workers) != 1 || got.Workers[0].Worker != id || len(got.Workers[0].Sessions) != 1 || got.Workers[0].Sessions[0].Queue != "mail" ||
		got.Workers[0].Sessions[0].LeftSeconds <= 0 || len(got.Workers[0].Running) != 1 || got.Workers[0].Running[0].ID != "r1" || got.Workers[0].Running[0].Since == nil {
		t.Errorf("%+v", got)
	}
	if fields := strings.Fields(strings.Split(sh.ok("worker", "ls"), "\n")[1]); len(fields) != 6 || fields[0] != id || fields[1] != "active" || fields[2] != "1" || fields[5] != "mail" {
		t.Error(fields)
	}
	if fields := strings.Fields(strings.Split(sh.ok("worker", "ls", "--running"), "\n")[1]); len(fields) != 8 || fields[0] != "mail" || fields[1] != "r1" || fields[2] == "" || fields[6] != "-" || fields[7] != id {
		t.Error(fields)
	}
	same(t, sh.ok("worker", "quiet", id), "worker "+id+" takes no more jobs; those that it has go on")
	same(t, sh.ok("worker", "quiet", id), "worker "+id+" was quiet already")
	if fields := strings.Fields(strings.Split(sh.ok("worker", "ls"), "\n")[1]); fields[1] != "quiet" {
		t.Error(fields)
	}
	same(t, sh.ok("worker", "unquiet", id, "-o", "json"), `{"worker":"`+id+`","quiet":false,"changed":true}`)
	same(t, sh.ok("worker", "unquiet", id), "worker "+id+" was not quiet")
	sh.fails(exitNotFound, []string{"no such worker", id}, "worker", "quiet", "nobody")
	sh.fails(exitNotFound, []string{"no such worker", id}, "worker", "stop", "nobody")
	if _, errs, code := sh.run("worker", "ls", "--stuck"); code != 0 || !strings.Contains(errs, "No handler is stuck") {
		t.Errorf("%d, %s", code, errs)
	}
	same(t, sh.ok("worker", "stop", id), "worker "+id+" ends when its jobs have, or their time to drain is over")
	redistest.Eventually(t, func() bool {
		_, errs, _ := sh.run("worker", "ls")
		return strings.Contains(errs, "no worker in namespace")
	}, "it has ended")
}

// A handler that ignores a cancel is listed with its stack.
func TestStuckWorkers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"ignore"}`, "-q", "mail", "--id", "r1")
	p := sh.works(srv)
	defer close(p.free)
	<-p.started
	id := p.w.ID()
	sh.ok("job", "cancel", "mail", "r1", "--yes")
	var got struct{ Workers []workerJSON }
	redistest.Eventually(t, func() bool {
		sh.into(&got, "worker", "ls")
		return len(got.Workers) == 1 && len(got.Workers[0].Running) == 1 && got.Workers[0].Running[0].StuckSince != nil && got.Workers[0].Running[0].Stack != ""
	}, "it is stuck")
	if kind := got.Workers[0].Running[0].Kind; kind != "email.welcome" {
		t.Errorf("it is of the kind %q", kind)
	}
	if fields := strings.Fields(strings.Split(sh.ok("worker", "ls", "--running"), "\n")[1]); fields[2] != "email.welcome" || fields[3] != "stuck" {
		t.Error(fields)
	}
	if out := sh.ok("worker", "ls", "--stuck"); !strings.HasPrefix(out, "mail r1 (email.welcome): stuck for ") || !strings.Contains(out, ", keeps its slot, in worker "+id+"\n  goroutine ") ||
		!strings.Contains(out, "job_test.go") {
		t.Error(out)
	}
	same(t, sh.ok("worker", "stop", id, "-o", "json"), `{"worker":"`+id+`","stopping":true,"changed":true}`)
	same(t, sh.ok("worker", "stop", id), "worker "+id+" was asked to stop already")
	if fields := strings.Fields(strings.Split(sh.ok("worker", "ls"), "\n")[1]); fields[1] != "stopping" {
		t.Error(fields)
	}
	sh.fails(exitState, []string{id, "final"}, "worker", "unquiet", id)
}

// A pause that waits ends when the last job has ended, or by Ctrl-C.
func TestPauseWaits(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1")
	p := sh.works(srv)
	<-p.started
	proxy := redistest.NewProxy(t, srv.Addr())
	url := sh.env["REDIS_URL"]
	sh.env["REDIS_URL"] = "redis://" + proxy.Addr()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		// The pause has run. So a command that comes now was sent after its reply: the pause waits.
		commands := func() int { return proxy.Count(redistest.Any) }
		paused := 0
		redistest.Eventually(t, func() bool {
			if paused == 0 && srv.Client().HExists(t.Context(), "signalbox:{"+sh.namespace+":mail}:settings", "paused").Val() {
				paused = commands()
			}
			return paused > 0 && commands() > paused
		}, "the pause waits")
	}()
	if _, errs, code := sh.runIn(ctx, "queue", "pause", "mail", "--wait"); code != exitInterrupted || !strings.Contains(errs, "interrupted: queue mail is paused") {
		t.Errorf("%d, %s", code, errs)
	}
	sh.env["REDIS_URL"] = url
	var freed atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, errs, code := sh.run("queue", "pause", "mail", "--wait")
		if code != 0 || out != "queue mail was paused already\n" || !freed.Load() {
			t.Errorf("%d, %q, %q; the job has ended: %v", code, out, errs, freed.Load())
		}
	}()
	for range 20 {
		sh.ok("queue", "ls", "mail")
	}
	freed.Store(true)
	close(p.free)
	<-ended
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail")
	sh.ok("enqueue", "email.welcome", "-q", "other", "--after", "1h")
	p := sh.works(srv)
	<-p.started
	for args, want := range map[string]string{
		"queue pause ":          "mail other",
		"queue pause mail ":     "",
		"queue ls mail ":        "mail other",
		"job ls ":               "mail other",
		"job show mail ":        "",
		"job ls mail --state ":  "running ready scheduled dead cancelled completed awaiting",
		"enqueue k {} --queue ": "mail other",
		"queue ls --output ":    "table json",
		"worker quiet ":         p.w.ID(),
	} {
		words := append([]string{"__complete"}, strings.Split(args, " ")...)
		out := sh.ok(words...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Join(lines[:len(lines)-1], " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	for _, name := range []string{"bash", "zsh", "fish"} {
		if out := sh.ok("completion", name); !strings.Contains(out, "signalbox") {
			t.Errorf("%s: %s", name, out)
		}
	}
	sh.env["REDIS_URL"] = "redis://" + redistest.Address(t)
	if out := sh.ok("__complete", "queue", "pause", ""); !strings.HasPrefix(out, ":") {
		t.Errorf("without Redis: %q", out)
	}
}

// A listing says nothing of the age of a job whose record is lost, and what is wrong.
func TestLostRecordHasNoAge(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newShell(t, srv)
	s.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "m1")
	if err := srv.Client().Del(t.Context(), "signalbox:{"+s.namespace+":mail}:jobs").Err(); err != nil {
		t.Fatal(err)
	}
	out := s.ok("job", "ls", "mail")
	if !strings.Contains(out, "m1") || !strings.Contains(out, "ready") || strings.Contains(out, "for ") {
		t.Error(out)
	}
}
