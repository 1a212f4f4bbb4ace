package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A world is what the processes of a test share: Redis, the folder, and the other system.
type world struct {
	*testing.T
	namespace string
	redis     *redistest.Server
	dir       string
	other     *httptest.Server
	spans     *httptest.Server
	env       []string // of the processes

	mu      sync.Mutex
	asked   map[string]int // by the paths of requests
	notices map[string]int // by their keys
	traces  map[string]int // by the IDs that requests came with
	exports int            // of spans
	status  int            // of the other system's answers; 0: 200

	hold    string        // the path of requests that wait for release
	reached chan struct{} // one for each of them
	release chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	w := &world{
		T: t, namespace: redistest.Name(t), redis: redistest.Start(t), dir: t.TempDir(),
		asked: map[string]int{}, notices: map[string]int{}, traces: map[string]int{},
		reached: make(chan struct{}, 10), release: make(chan struct{}),
	}
	w.other = httptest.NewServer(w)
	w.spans = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r.URL.Path == "/v1/traces" {
			w.exports++
		}
	}))
	w.env = []string{"REDIS_URL=redis://" + w.redis.Addr(), "UPSTREAM_URL=" + w.other.URL, "ADMIN_TOKEN=secret", "OTEL_EXPORTER_OTLP_ENDPOINT=" + w.spans.URL}
	t.Cleanup(w.other.Close)
	t.Cleanup(w.spans.Close)
	return w
}

// ServeHTTP is the other system.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked[r.URL.Path]++
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		w.notices[key]++
	}
	if parent := strings.Split(r.Header.Get("Traceparent"), "-"); len(parent) > 1 {
		w.traces[parent[1]]++
	}
	status, hold := w.status, w.hold == r.URL.Path
	w.mu.Unlock()
	if hold {
		w.reached <- struct{}{}
		select {
		case <-w.release:
		case <-r.Context().Done():
		}
	}
	if status != 0 {
		rw.WriteHeader(status)
		return
	}
	fmt.Fprintln(rw, r.URL.Path)
}

func (w *world) answer(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

// A process is one of the service.
type process struct {
	*world
	cmd           *exec.Cmd
	stdin         io.Closer
	api, internal string
	out           *bufio.Reader
	log           <-chan string // its records
	client        *http.Client
}

func (w *world) start(args ...string) *process {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), os.Args[0], append([]string{
		"-api", "127.0.0.1:0", "-internal", "127.0.0.1:0", "-dir", w.dir, "-namespace", w.namespace,
	}, args...)...)
	cmd.Env = append(append(os.Environ(), envMain+"=1"), w.env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	records := make(chan string, 10_000)
	cmd.Stderr = &lines{to: records}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	p := &process{world: w, cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout), log: records, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	first, err := p.out.ReadString('\n')
	if err != nil {
		w.Fatalf("its first line: %v", err)
	}
	if _, err := fmt.Sscanf(first, "embed: API on %s for operators on %s", &p.api, &p.internal); err != nil {
		w.Fatalf("%q: %v", first, err)
	}
	p.api = strings.TrimSuffix(p.api, ",")
	redistest.Eventually(w, func() bool { code, _ := p.get(p.internal + "/readyz"); return code == http.StatusOK }, "it gets ready")
	return p
}

// lines is a writer that sends lines to a channel.
type lines struct {
	to   chan<- string
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.to <- string(line)
		l.rest = rest
	}
}

func (p *process) signal() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

// says waits for a log record with all parts.
func (p *process) says(parts ...string) {
	p.Helper()
	for {
		select {
		case record := <-p.log:
			found := true
			for _, part := range parts {
				found = found && strings.Contains(record, part)
			}
			if found {
				return
			}
		case <-time.After(time.Minute):
			p.Fatalf("it doesn't say %q", parts)
		}
	}
}

// ends waits for a clean end.
func (p *process) ends() {
	p.Helper()
	err := p.cmd.Wait()
	_ = p.stdin.Close()
	if err != nil {
		for len(p.log) > 0 {
			p.Log(<-p.log)
		}
		p.Fatalf("it ended: %v", err)
	}
}

func (p *process) get(url string) (int, string) {
	return p.call(http.MethodGet, url, "")
}

// call makes a request, with the token of operators. The status is 0 if nobody answers.
func (p *process) call(method, url, body string, header ...string) (int, string) {
	req, err := http.NewRequestWithContext(p.Context(), method, url, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(answer)
}

func (p *process) want(code int, method, url, body string, header ...string) string {
	p.Helper()
	got, answer := p.call(method, url, body, header...)
	if got != code {
		p.Fatalf("%s %s: %d %s, want %d", method, url, got, answer, code)
	}
	return answer
}

// becomes waits until a report has a state.
func (p *process) becomes(id, state string) status {
	p.Helper()
	var st status
	redistest.Eventually(p, func() bool {
		_, answer := p.get(p.api + "/reports/" + id)
		return json.Unmarshal([]byte(answer), &st) == nil && st.State == state
	}, "report %s becomes %s", id, state)
	return st
}

// TestStop: SIGTERM comes while a job runs. The process ends in the right order, another one goes on where it was, and nothing is lost or
// done twice.
func TestStop(t *testing.T) {
	w := newWorld(t)
	w.hold = "/sales/acme/2026-02-05"
	first := w.start()
	first.want(http.StatusAccepted, "POST", first.api+"/reports", february)
	<-w.reached
	first.signal()
	first.says("handlers may end what they do", `"queue":"reports"`)

	// Clients are answered no more. Probes and metrics are, until the job has ended.
	if code, answer := first.get(first.api + "/reports/r-1"); code != 0 {
		t.Errorf("the API still answers: %d %s", code, answer)
	}
	first.want(http.StatusServiceUnavailable, "GET", first.internal+"/readyz", "")
	first.want(http.StatusOK, "GET", first.internal+"/healthz", "")
	first.want(http.StatusOK, "GET", first.internal+"/metrics", "")
	close(w.release)
	first.ends()

	second := w.start()
	second.becomes("r-1", "done")
	redistest.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.notices) > 0 }, "the notice is sent")
	second.signal()
	second.ends()

	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asked, "/notices/r-1")
	for path, n := range w.asked {
		if n != 1 {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	if len(w.asked) != 28 || !maps.Equal(w.notices, map[string]int{"notice:r-1": 1}) {
		t.Errorf("%d days, notices %v", len(w.asked), w.notices)
	}
	ins, err := inspect.New(w.redis.Client(), inspect.Config{Namespace: w.namespace})
	if err != nil {
		t.Fatal(err)
	}
	queues, err := ins.Queues(context.Background())
	if err != nil || len(queues) != 2 {
		t.Errorf("queues %v, %v", queues, err)
	}
	for _, q := range queues {
		if q.Ready+q.Scheduled+q.Running+q.Dead+q.Cancelled != 0 {
			t.Errorf("left behind: %+v", q)
		}
	}
}

// TestHurry: a second SIGTERM doesn't wait for the job, which is put back.
func TestHurry(t *testing.T) {
	w := newWorld(t)
	w.hold = "/sales/acme/2026-02-05"
	p := w.start("-drain", "1h")
	p.want(http.StatusAccepted, "POST", p.api+"/reports", february)
	<-w.reached
	p.signal()
	p.says("handlers may end what they do")
	p.signal()
	p.ends()
	next := w.start()
	<-w.reached
	close(w.release)
	next.becomes("r-1", "done")
	next.signal()
	next.ends()
}

// TestOperate: a job dies, an operator finds it, and runs it again. Queues are paused, and jobs cancelled.
func TestOperate(t *testing.T) {
	w := newWorld(t)
	p := w.start()

	const traceID = "0123456789abcdef0123456789abcdef"
	w.answer(http.StatusNotFound)
	p.want(http.StatusAccepted, "POST", p.api+"/reports", february, "Traceparent", "00-"+traceID+"-0123456789abcdef-01")
	p.becomes("r-1", "dead")
	var dead []deadJob
	if err := json.Unmarshal([]byte(p.want(http.StatusOK, "GET", p.internal+"/queues/reports/dead", "")), &dead); err != nil || len(dead) != 1 ||
		dead[0].ID != "r-1" || dead[0].LastError != "sales of 2026-02-01: the other system says 404" {
		t.Fatalf("dead are %+v, %v", dead, err)
	}
	w.answer(0)
	p.want(http.StatusOK, "POST", p.internal+"/queues/reports/jobs/r-1/retry", "")
	p.becomes("r-1", "done")
	p.want(http.StatusConflict, "DELETE", p.api+"/reports/r-1", "")

	p.want(http.StatusOK, "POST", p.internal+"/queues/reports/pause", "")
	second := strings.Replace(february, "r-1", "r-2", 1)
	p.want(http.StatusAccepted, "POST", p.api+"/reports", second)
	if st := p.becomes("r-2", "ready"); st.Waits != "the queue is paused" {
		t.Errorf("it waits: %s", st.Waits)
	}
	var queues []queue
	if err := json.Unmarshal([]byte(p.want(http.StatusOK, "GET", p.internal+"/queues", "")), &queues); err != nil || len(queues) != 2 ||
		queues[1].Name != queueReports || !queues[1].Paused || queues[1].Ready != 1 {
		t.Errorf("queues are %+v, %v", queues, err)
	}

	// A report is cancelled while it is made, and posted again.
	w.mu.Lock()
	w.hold = "/sales/acme/2026-02-05"
	w.mu.Unlock()
	p.want(http.StatusOK, "POST", p.internal+"/queues/reports/resume", "")
	<-w.reached
	p.want(http.StatusNoContent, "DELETE", p.api+"/reports/r-2", "")
	p.becomes("r-2", "cancelled")
	p.want(http.StatusNotFound, "GET", p.api+"/reports/r-2/rows", "")
	close(w.release)
	p.want(http.StatusAccepted, "POST", p.api+"/reports", second)
	p.becomes("r-2", "done")

	p.want(http.StatusNotFound, "GET", p.api+"/reports/r-3", "")
	p.want(http.StatusNotFound, "POST", p.internal+"/queues/reports/jobs/r-3/retry", "")
	p.want(http.StatusNotFound, "GET", p.internal+"/queues/nobodys/stats", "")
	p.want(http.StatusOK, "GET", p.internal+"/queues/reports/stats", "")
	if page := p.want(http.StatusOK, "GET", p.internal+"/metrics", ""); !strings.Contains(page, `signalbox_jobs_settled_total{`) ||
		!strings.Contains(page, "http_server_request_duration_seconds") {
		t.Errorf("the page of metrics has no jobs or no requests:\n%s", page)
	}
	p.signal()
	p.ends()

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.traces[traceID] < 29 { // the days, one of them twice, and the notice
		t.Errorf("%d of the other system's requests are in the trace of the client's request: %v", w.traces[traceID], w.traces)
	}
	if w.exports == 0 {
		t.Error("no spans were sent")
	}
}

// TestTrial: the program needs nothing, and what it says to try works.
func TestTrial(t *testing.T) {
	w := newWorld(t)
	w.env = []string{"REDIS_URL=", "UPSTREAM_URL=", "ADMIN_TOKEN="}
	p := w.start("-dir", "")
	usage := ""
	for !strings.Contains(usage, "Ctrl-C") {
		line, err := p.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v", usage, err)
		}
		usage += line
	}
	post := regexp.MustCompile(`curl -d '(.*nobody.*)' (\S+)`).FindStringSubmatch(usage)
	token := regexp.MustCompile(`(Bearer [A-Z0-9]+)' (\S+/dead)`).FindStringSubmatch(usage)
	if post == nil || token == nil {
		t.Fatal(usage)
	}
	p.want(http.StatusAccepted, "POST", post[2], post[1])
	p.becomes("r-2", "dead")
	if answer := p.want(http.StatusOK, "GET", token[2], "", "Authorization", token[1]); !strings.Contains(answer, `"r-2"`) {
		t.Errorf("dead are %s", answer)
	}
	p.want(http.StatusUnauthorized, "GET", token[2], "")
	p.signal()
	p.ends()
}
