package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
)

// A rig has the service without Redis and without a network.
type rig struct {
	*service
	jobs *signalboxtest.Jobs
	http http.Handler
}

// newRig returns a rig. other is the other system.
func newRig(t *testing.T, other http.HandlerFunc) *rig {
	t.Helper()
	files, err := openReports(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	jobs := signalboxtest.New(t)
	up := &upstream{"http://upstream.invalid", &http.Client{Transport: transport(other)}}
	s, err := newService(jobs.Client(), jobs.Locker(), files, up, config{adminToken: "secret", drain: time.Minute, namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{s, jobs, s.apiHandler()}
}

// A transport answers requests by a handler, in the goroutine of the caller. So it works in a bubble of synctest, too.
type transport http.HandlerFunc

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	f(rec, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

// sells answers with a row for each day, and takes notices.
func sells(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, strings.TrimPrefix(r.URL.Path, "/sales/")+",1\n")
	}
}

// call makes a request, and returns the status and the body.
func call(h http.Handler, method, path, body string, header ...string) (int, string) {
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	h.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

const february = `{"id":"r-1","account":"acme","month":"2026-02"}`

func TestPost(t *testing.T) {
	t.Parallel()
	r := newRig(t, sells)
	for range 2 {
		if code, body := call(r.http, "POST", "/reports", february); code != http.StatusAccepted || body != `{"id":"r-1","state":"ready"}`+"\n" {
			t.Errorf("%d %s", code, body)
		}
	}
	job := signalboxtest.One[Report](r.jobs)
	if job.ID != "r-1" || job.Queue != queueReports || job.MaxAttempts != 10 || job.Args != (Report{"r-1", "acme", "2026-02"}) {
		t.Errorf("enqueued %+v with %+v", job.Job, job.Args)
	}
	if code, body := call(r.http, "POST", "/reports", strings.Replace(february, "02", "03", 1)); code != http.StatusConflict {
		t.Errorf("another report with its ID: %d %s", code, body)
	}
	for _, body := range []string{
		`{`, `{}`, `null`, february + february, `{"id":"../x","account":"acme","month":"2026-02"}`, `{"id":"r-2","account":"a/b","month":"2026-02"}`,
		`{"id":"r-2","account":"acme","month":"2026-13"}`, `{"id":"r-2","account":"acme","month":"2026-02","more":1}`,
		`{"id":"` + strings.Repeat("r", 5000) + `","account":"acme","month":"2026-02"}`,
	} {
		if code, answer := call(r.http, "POST", "/reports", body); code != http.StatusBadRequest {
			t.Errorf("%.60s: %d %s", body, code, answer)
		}
	}
	if n := len(r.jobs.Enqueued()); n != 1 {
		t.Errorf("%d jobs are enqueued", n)
	}
}

// TestWithoutRedis: the client is told to try again, and what it asked for is known then.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, sells)
	rdb := redis.NewClient(&redis.Options{})
	if err := rdb.Close(); err != nil { // each call fails
		t.Fatal(err)
	}
	var err error
	if r.service.jobs, err = scheduler.New(rdb, scheduler.Config{}); err != nil {
		t.Fatal(err)
	}
	if code, body := call(r.http, "POST", "/reports", february); code != http.StatusServiceUnavailable || strings.Contains(body, "redis") {
		t.Errorf("%d %s", code, body)
	}
	if req, err := r.files.request("r-1"); err != nil || req.Account != "acme" {
		t.Errorf("recorded is %+v, %v", req, err)
	}
}

// TestReport: a report goes through, with its notice.
func TestReport(t *testing.T) {
	t.Parallel()
	var keys []string
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			keys = append(keys, req.URL.Path+" "+req.Header.Get("Idempotency-Key"))
		}
		sells(w, req)
	})
	call(r.http, "POST", "/reports", february)
	for _, v := range r.jobs.WorkAll(t.Context(), r.worker) {
		if v.Outcome != signalbox.OutcomeCompleted {
			t.Error(v)
		}
	}
	code, rows := call(r.http, "GET", "/reports/r-1/rows", "")
	if code != http.StatusOK || strings.Count(rows, "\n") != 28 || !strings.HasPrefix(rows, "acme/2026-02-01,1\nacme/2026-02-02,1\n") {
		t.Errorf("the report is %d %s", code, rows)
	}
	if len(keys) != 1 || keys[0] != "/notices/r-1 notice:r-1" {
		t.Errorf("notices: %q", keys)
	}
	if code, body := call(r.http, "POST", "/reports", february); code != http.StatusOK || !strings.Contains(body, `"done"`) {
		t.Errorf("posted again: %d %s", code, body)
	}
	// A second delivery, as after a crash at the end, makes nothing twice: the notice has the key that it had.
	v := r.jobs.Work(t.Context(), r.worker, r.jobs.NewJob(Report{"r-1", "acme", "2026-02"}))
	if v.Outcome != signalbox.OutcomeCompleted {
		t.Error(v)
	}
	r.jobs.WorkAll(t.Context(), r.worker)
	if len(keys) != 2 || keys[1] != keys[0] {
		t.Errorf("notices: %q", keys)
	}
}

// TestFailures: how answers of the other system end an attempt.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status   int
		after    string
		outcome  signalbox.Outcome
		min, max time.Duration
	}{
		"away":       {http.StatusServiceUnavailable, "", signalbox.OutcomeRetried, 500 * time.Millisecond, time.Second},
		"overloaded": {http.StatusTooManyRequests, "40", signalbox.OutcomeRetried, 40 * time.Second, 40 * time.Second},
		"unknown":    {http.StatusNotFound, "", signalbox.OutcomeDead, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tc.after)
				w.WriteHeader(tc.status)
			})
			v := r.jobs.Work(t.Context(), r.worker, r.jobs.NewJob(Report{"r-1", "acme", "2026-02"}))
			if v.Outcome != tc.outcome || v.Delay < tc.min || v.Delay > tc.max {
				t.Error(v)
			}
		})
	}
}

// TestDeploy: when the process is to end, a report is put back after the day that it is at, and the next process goes on with the next day.
func TestDeploy(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	asked := map[string]int{}
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		asked[req.URL.Path]++
		if len(asked) == 3 {
			stop()
			<-signalbox.Draining(req.Context()) // the handler can see it
		}
		sells(w, req)
	})
	if _, err := r.files.create(Report{"r-1", "acme", "2026-02"}); err != nil {
		t.Fatal(err)
	}
	v := r.jobs.Work(ctx, r.worker, r.jobs.NewJob(Report{"r-1", "acme", "2026-02"}))
	if v.Outcome != signalbox.OutcomeSnoozed || v.Delay != 0 || len(asked) != 3 {
		t.Errorf("%v; asked for %v", v, asked)
	}
	if v := r.jobs.Work(t.Context(), r.worker, v.Next); v.Outcome != signalbox.OutcomeCompleted {
		t.Error(v)
	}
	for path, n := range asked {
		if n != 1 || len(asked) != 28 {
			t.Errorf("%d days; %s was asked for %d times", len(asked), path, n)
		}
	}
}

// TestOneOfAnAccount: a report waits for another one of its account.
func TestOneOfAnAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, sells)
	held, err := r.jobs.Locker().TryAcquire(t.Context(), middleware.KeyPrefix+"default:account:acme")
	if err != nil {
		t.Fatal(err)
	}
	call(r.http, "POST", "/reports", february)
	v := r.jobs.Work(t.Context(), r.worker, r.jobs.Enqueued()[0])
	if v.Outcome != signalbox.OutcomeSnoozed || !errors.Is(v.Err, lock.ErrHeld) {
		t.Error(v)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := r.jobs.Work(t.Context(), r.worker, v.Next); v.Outcome != signalbox.OutcomeCompleted {
		t.Error(v)
	}
}

// TestSlowDay: a job's time is over, by a clock that takes none.
func TestSlowDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
		start := time.Now()
		v := r.jobs.Work(t.Context(), r.worker, r.jobs.NewJob(Report{"r-1", "acme", "2026-02"}))
		if v.Outcome != signalbox.OutcomeRetried || !errors.Is(v.Err, context.DeadlineExceeded) || time.Since(start) != 10*time.Minute {
			t.Errorf("%v after %v", v, time.Since(start))
		}
	})
}

// TestSweep: the cron entry fires at half past three, and deletes what is older than 30 days.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sells)
		for id, age := range map[string]int{"old": 32, "new": 20} {
			if _, err := r.files.create(Report{id, "acme", "2026-02"}); err != nil {
				t.Fatal(err)
			}
			at := time.Now().AddDate(0, 0, -age)
			if err := r.files.Chtimes(id+"/"+fileRequest, at, at); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = r.service.jobs.Run(ctx) }()
		time.Sleep(24 * time.Hour)
		job := signalboxtest.One[Sweep](r.jobs)
		if at := job.ScheduledAt.UTC().Format("15:04"); at != "03:30" || job.Priority != signalbox.PriorityLow {
			t.Errorf("it ticks at %s, with priority %v", at, job.Priority)
		}
		if v := r.jobs.Work(ctx, r.worker, job.Job); v.Outcome != signalbox.OutcomeCompleted {
			t.Error(v)
		}
		if r.files.has("old") || !r.files.has("new") {
			t.Errorf("old is there: %v, new: %v", r.files.has("old"), r.files.has("new"))
		}
	})
}

// TestOperatorsOnly: nobody acts without the token, and nobody at all if there is none.
func TestOperatorsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, sells)
	open := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	guarded := r.operatorsOnly(open)
	for token, want := range map[string]int{"Bearer secret": 200, "Bearer secre": 401, "Bearer ": 401, "secret": 401, "": 401} {
		if code, body := call(guarded, "GET", "/", "", "Authorization", token); code != want {
			t.Errorf("%q: %d %s", token, code, body)
		}
	}
	for _, path := range []string{
		"GET /queues", "GET /queues/reports/dead", "GET /queues/reports/stats", "POST /queues/reports/pause",
		"POST /queues/reports/resume", "POST /queues/reports/jobs/r-1/retry", "POST /queues/reports/jobs/r-1/cancel",
	} {
		method, path, _ := strings.Cut(path, " ")
		if code, body := call(r.internalHandler(http.NotFoundHandler()), method, path, ""); code != 401 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	r.adminToken = ""
	if code, body := call(r.operatorsOnly(open), "GET", "/", "", "Authorization", "Bearer "); code != 401 {
		t.Errorf("without a token: %d %s", code, body)
	}
}

// TestReady: a process that is about to end is not ready, and is alive.
func TestReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, sells)
	r.stopping.close()
	code, body := call(r.internalHandler(http.NotFoundHandler()), "GET", "/readyz", "")
	var report struct {
		Problems []struct{ Part, Code string }
	}
	if err := json.Unmarshal([]byte(body), &report); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("%d %s: %v", code, body, err)
	}
	seen := false
	for _, p := range report.Problems {
		seen = seen || p.Part == "service" && p.Code == "draining"
	}
	if !seen {
		t.Errorf("the gate isn't seen: %s", body)
	}
	if code, body := call(r.internalHandler(http.NotFoundHandler()), "GET", "/healthz", ""); code != http.StatusOK {
		t.Errorf("not alive: %d %s", code, body)
	}
}

// TestNoPayloads: nothing of a job's arguments is in the log.
func TestNoPayloads(t *testing.T) {
	var log strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(old)
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "acme owes us money", http.StatusBadGateway)
	})
	call(r.http, "POST", "/reports", february)
	r.jobs.Work(t.Context(), r.worker, r.jobs.Enqueued()[0])
	if text := log.String(); !strings.Contains(text, "r-1") || strings.Contains(text, "acme") {
		t.Errorf("the log is %s", text)
	}
}
