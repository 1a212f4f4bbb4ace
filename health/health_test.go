package health_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/health"
)

// fixed is a source whose problems don't change.
type fixed []health.Problem

func (f fixed) Health() health.Report { return health.Report{Problems: f} }

func probe(h http.Handler, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
	return w
}

// A restart helps only what is broken. What is unready gets no work, and what is degraded goes on.
func TestStatus(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		worst       health.Severity
		live, ready int
	}{
		{health.OK, 200, 200},
		{health.Degraded, 200, 200},
		{health.Unready, 200, 503},
		{health.Broken, 503, 503},
	} {
		well := fixed{}
		var ill fixed
		if tc.worst > health.OK {
			ill = fixed{{Part: "worker", Code: health.RedisAway, Severity: tc.worst}, {Part: "worker", Code: health.RedisDoubtful, Severity: health.Degraded}}
		}
		for _, sources := range [][]health.Source{{well, ill}, {ill, well}} {
			live, ready := probe(health.Live(sources...), http.MethodGet), probe(health.Ready(sources...), http.MethodGet)
			if live.Code != tc.live || ready.Code != tc.ready {
				t.Errorf("%v: live %d and ready %d, want %d and %d", tc.worst, live.Code, ready.Code, tc.live, tc.ready)
			}
			var body struct{ Status string }
			if err := json.Unmarshal(live.Body.Bytes(), &body); err != nil || body.Status != tc.worst.String() {
				t.Errorf("%v: the body is %s, %v", tc.worst, live.Body, err)
			}
		}
	}
}

// The body has the problems of all sources, the worst first.
func TestBody(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 4, 5, 678_900_000, time.FixedZone("", 3600))
	w := fixed{{Part: "worker", Code: health.LeaseLate, Severity: health.Degraded, Queue: "mail", Since: at, Detail: "late"}}
	s := fixed{{Part: "scheduler", Code: health.NotRunning, Severity: health.Unready, Since: at, Detail: "Run was not called"}}
	got := probe(health.Ready(w, s), http.MethodGet)
	want := `{"status":"unready","problems":[` +
		`{"part":"scheduler","code":"not-running","severity":"unready","since":"2026-01-02T14:04:05.678Z","detail":"Run was not called"},` +
		`{"part":"worker","code":"lease-late","severity":"degraded","queue":"mail","since":"2026-01-02T14:04:05.678Z","detail":"late"}]}`
	if strings.TrimSpace(got.Body.String()) != want {
		t.Errorf("the body is\n%s, want\n%s", got.Body, want)
	}
	if h := got.Header(); h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", h)
	}
	if none := probe(health.Live(fixed{}), http.MethodGet); strings.TrimSpace(none.Body.String()) != `{"status":"ok","problems":[]}` {
		t.Errorf("without a problem: %s", none.Body)
	}
}

// A probe only reads.
func TestMethods(t *testing.T) {
	t.Parallel()
	h := health.Live(fixed{{Severity: health.Broken}})
	if w := probe(h, http.MethodHead); w.Code != 503 || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
	if w := probe(h, http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// A handler that would always say that all is well is a mistake of the program.
func TestNoSource(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(...health.Source) http.Handler{"Live": health.Live, "Ready": health.Ready} {
		for _, sources := range [][]health.Source{nil, {nil}} {
			func() {
				defer func() {
					if p := fmt.Sprint(recover()); !strings.Contains(p, name) {
						t.Errorf("%s of %v panics with %s", name, sources, p)
					}
				}()
				make(sources...)
			}()
		}
	}
}

func TestSeverityNames(t *testing.T) {
	t.Parallel()
	for s, want := range map[health.Severity]string{health.OK: "ok", health.Degraded: "degraded", health.Unready: "unready", health.Broken: "broken", 9: "Severity(9)"} {
		if s.String() != want {
			t.Errorf("%d is %s, want %s", int(s), s, want)
		}
	}
}
