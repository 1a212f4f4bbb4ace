package fence

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

func gate() *Gate { return &Gate{Authorize: func(*http.Request, Grant) error { return nil }} }

// serve starts a server. What it returns makes a request under a lease.
func serve(t *testing.T, h http.Handler) func(l lock.Lease) (int, error) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &Transport{Base: server.Client().Transport}}
	return func(l lock.Lease) (int, error) {
		req, err := http.NewRequestWithContext(lock.NewContext(t.Context(), l), http.MethodPost, server.URL, strings.NewReader("body"))
		if err != nil {
			t.Error(err)
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if err := CheckResponse(resp); err != nil {
			return resp.StatusCode, err
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusOK && string(body) != "done" {
			t.Errorf("the body is %q", body)
		}
		return resp.StatusCode, err
	}
}

// In one process the tokens of a resource only rise, requests of a resource wait for each other, and those of others don't.
func TestOneProcess(t *testing.T) {
	t.Parallel()
	var inside, most atomic.Int32
	post := serve(t, gate().OneProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, ok := lock.FromContext(r.Context())
		if !ok || l.Key() == "" {
			t.Error("the handler has no lease")
		}
		if n := inside.Add(1); n > most.Load() {
			most.Store(n)
		}
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "body" {
			t.Errorf("%q, %v", b, err)
		}
		inside.Add(-1)
		_, _ = w.Write([]byte("done"))
	})))
	for i, c := range []struct {
		lease  testLease
		status int
		want   error
	}{
		{testLease{"account:7/é {x}", "redis", "a", 5}, 200, nil},
		{testLease{"account:7/é {x}", "redis", "a", 5}, 200, nil},
		{testLease{"account:7/é {x}", "redis", "b", 5}, 409, ErrStale},
		{testLease{"account:7/é {x}", "redis", "c", 6}, 200, nil},
		{testLease{"account:7/é {x}", "redis", "a", 5}, 409, ErrStale},
		{testLease{"account:7/é {x}", "etcd", "a", 7}, 409, ErrForeign},
		{testLease{"account:8", "redis", "a", 1}, 200, nil},
	} {
		status, err := post(c.lease)
		if status != c.status || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("case %d: %d, %v", i, status, err)
		}
		if stale, ok := errors.AsType[*StaleError](err); ok && (stale.Resource != c.lease.key || stale.Token != 5 || stale.Highest < 5) {
			t.Errorf("case %d: %+v", i, stale)
		}
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if status, err := post(testLease{"one", "redis", "a", int64(i/4) + 1}); status != 200 && !errors.Is(err, ErrStale) {
				t.Error(status, err)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d requests of one resource at a time", most.Load())
	}
}

// OneProcess forgets no resource. It refuses new ones when it has too many.
func TestOneProcessIsBounded(t *testing.T) {
	t.Parallel()
	g := gate()
	g.MaxResources = 2
	post := serve(t, g.OneProcess(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) })))
	for i, want := range []int{200, 200, 503, 503} {
		if status, err := post(testLease{"r" + strconv.Itoa(i), "redis", "a", 1}); status != want || err != nil {
			t.Errorf("resource %d: %d, %v", i, status, err)
		}
	}
	if status, err := post(testLease{"r1", "redis", "a", 2}); status != 200 || err != nil {
		t.Errorf("a known one: %d, %v", status, err)
	}
}

// A refusal is a problem document. Nothing reaches the handler, and no mark is raised, unless the sender may do that and the token is one that can have been granted.
func TestRequire(t *testing.T) {
	t.Parallel()
	g := &Gate{Authorize: func(r *http.Request, g Grant) error {
		if r.Header.Get("Authorization") != "Bearer mine" || g.Key() != "account:7" {
			return errors.New("secret reason")
		}
		return nil
	}}
	reached := 0
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		if l, ok := lock.FromContext(r.Context()); !ok || l.Token() != 5 || l.(lock.Origin).Issuer() != "redis" {
			t.Errorf("the handler gets %v", l)
		}
	})
	good := map[string]string{"Authorization": "Bearer mine", "Fencing-Token": "5", "Fencing-Resource": "account:7", "Fencing-Issuer": "redis", "Fencing-Holder": "abc"}
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"good":                    {"X-Other", "1", 200},
		"no token":                {"Fencing-Token", "", 428},
		"not authenticated":       {"Authorization", "", 403},
		"of another's":            {"Fencing-Resource", "account:8", 403},
		"no number":               {"Fencing-Token", "five", 400},
		"not canonical":           {"Fencing-Token", "05", 400},
		"a sign":                  {"Fencing-Token", "+5", 400},
		"negative":                {"Fencing-Token", "-5", 400},
		"zero":                    {"Fencing-Token", "0", 400},
		"the largest":             {"Fencing-Token", strconv.FormatInt(math.MaxInt64, 10), 400},
		"of the far future":       {"Fencing-Token", strconv.FormatInt(time.Now().Add(2*time.Hour).UnixMicro(), 10), 400},
		"larger than any":         {"Fencing-Token", "99999999999999999999", 400},
		"no resource":             {"Fencing-Resource", "", 400},
		"a resource not escaped":  {"Fencing-Resource", "%zz", 400},
		"a resource with a NUL":   {"Fencing-Resource", "a%00b", 400},
		"no issuer":               {"Fencing-Issuer", "", 400},
		"no holder":               {"Fencing-Holder", "", 400},
		"a long holder":           {"Fencing-Holder", strings.Repeat("x", 65), 400},
		"a long issuer":           {"Fencing-Issuer", strings.Repeat("x", 65), 400},
		"an issuer with a spaces": {"Fencing-Issuer", "a b", 400},
	} {
		for _, wrap := range []func(http.Handler) http.Handler{g.Require, g.OneProcess} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			for k, v := range good {
				if k == c.header {
					v = c.value
				}
				if v != "" {
					r.Header.Set(k, v)
				}
			}
			reached = 0
			w := httptest.NewRecorder()
			wrap(next).ServeHTTP(w, r)
			if w.Code != c.status || (reached == 1) != (c.status == 200) {
				t.Errorf("%s: status %d, want %d; the handler was called %d times", name, w.Code, c.status, reached)
			}
			var p map[string]any
			if c.status != 200 && (w.Header().Get("Content-Type") != "application/problem+json" || json.Unmarshal(w.Body.Bytes(), &p) != nil ||
				p["status"] != float64(c.status) || p["type"] == "" || p["title"] == "" || strings.Contains(w.Body.String(), "secret")) {
				t.Errorf("%s: %s", name, w.Body)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a gate that authorizes nobody is taken")
		}
	}()
	new(Gate).Require(next)
}

// The transport changes no request of the caller's, and sends none without a lease.
func TestTransport(t *testing.T) {
	t.Parallel()
	sent := 0
	transport := &Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent++
		if r.Header.Get("Fencing-Token") != "5" || r.Header.Get("Fencing-Resource") != "account:7" || r.Header.Get("Fencing-Issuer") != "redis" || strings.Contains(r.Header.Get("Fencing-Holder"), "holder") {
			t.Errorf("%v", r.Header)
		}
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	req := httptest.NewRequest(http.MethodGet, "http://example.com/", nil).WithContext(under(t, "account:7", 5))
	if resp, err := transport.RoundTrip(req); err != nil || resp.StatusCode != 200 || req.Header.Get("Fencing-Token") != "" {
		t.Errorf("%v, %v", err, req.Header)
	}
	if _, err := transport.RoundTrip(req.WithContext(t.Context())); !errors.Is(err, ErrInvalid) || sent != 1 {
		t.Errorf("without a lease: %v, and %d requests", err, sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Problem answers the errors of guards only.
func TestProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
	}{{&StaleError{"r", 1, 2}, 409}, {foreign("r", "a", "b"), 409}, {ErrBlocked, 503}, {errors.New("other"), 0}, {nil, 0}} {
		w := httptest.NewRecorder()
		if got := Problem(w, c.err); got != (c.status != 0) || got && w.Code != c.status || !got && w.Body.Len() > 0 {
			t.Errorf("%v: %v, %d %s", c.err, got, w.Code, w.Body)
		}
	}
}
