package web_test

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/web"
)

func TestNewNeedsAnInspector(t *testing.T) {
	t.Parallel()
	if _, err := web.New(nil, web.Config{}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "inspector") {
		t.Errorf("New = %v", err)
	}
}

func TestTraceURL(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	for _, bad := range []string{"https://jaeger.example/trace/", "https://jaeger.example/{trace}/{trace}", "jaeger.example/{trace}", "/trace/{trace}", "javascript:alert('{trace}')", "https://u:SECRET@jaeger.example/{trace}", "https:///{trace}", "https://jaeger.example/%zz{trace}"} {
		_, err := web.New(s.ins, web.Config{TraceURL: bad})
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "TraceURL") || !strings.Contains(err.Error(), "https://jaeger.example/trace/{trace}") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	const enqueued, run = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	p := s.queue("mail", "w")
	p.put(signalbox.Job{ID: "traced", Kind: "k", MaxAttempts: 3, Headers: map[string]string{"traceparent": "00-" + enqueued + "-b7ad6b7169203331-01"}}, store.When{})
	d := p.claim(1)[0]
	record, err := d.FailedAttempt("boom", &store.Attempt{Number: 1, At: d.Job.ClaimedAt, Ran: time.Millisecond, Worker: "w", Error: "boom", TraceID: run, SpanID: "00f067aa0ba902b7"})
	s.must(err)
	p.claim(0, store.Settlement{ID: "traced", Token: d.Job.Token, Outcome: store.Dead, Record: record})
	p.put(signalbox.Job{ID: "plain", Kind: "k", MaxAttempts: 3}, store.When{})
	d = p.claim(1)[0]
	p.fails(store.Dead, "boom", d)
	with := s.pages(web.Config{TraceURL: "https://jaeger.example/trace/{trace}?a=1&b=2#x"})
	_, _, body := get(t, with, "/job?queue=mail&id=traced")
	for _, want := range []string{`<a href="https://jaeger.example/trace/` + enqueued + `?a=1&amp;b=2#x">` + "<bdi>" + enqueued, `<a href="https://jaeger.example/trace/` + run + `?a=1&amp;b=2#x">its trace</a>`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	if _, _, body := get(t, with, "/job?queue=mail&id=plain"); strings.Contains(body, "jaeger") {
		t.Errorf("a job without a trace has a link: %s", body)
	}
	if _, _, body := get(t, s.pages(web.Config{}), "/job?queue=mail&id=traced"); strings.Contains(body, "its trace") || !strings.Contains(body, enqueued) {
		t.Errorf("without TraceURL: %s", body)
	}
}

// What is hostile stands for itself in names, which are printable ASCII without spaces, and with more in texts.
const (
	hostileName = `"><script>alert(1)</script><img/src=x/onerror=alert(1)>'&amp;../?#%00javascript:`
	hostileText = hostileName + " \x00\u202e\u2066<!--</pre></svg><style>*{display:none}</style>" + "\r\n\t\x1b[31m\u200f"
)

// hostile puts jobs with hostile texts in all states into a queue with a hostile name.
func hostile(s *stage) *player {
	p := s.queue(hostileName, hostileName)
	p.states(hostileName, hostileName, hostileText+strings.Repeat("x", 400<<10), signalbox.Job{Payload: []byte(hostileText), Headers: map[string]string{hostileText: hostileText + strings.Repeat("y", 400<<10)}})
	p.put(signalbox.Job{ID: hostileName, Kind: hostileName, MaxAttempts: 3}, store.When{})
	return p
}

// parse returns the links of a page, of all kinds, and fails if it has an element or an attribute that no page has.
func parse(t *testing.T, path, body string) (links []string) {
	t.Helper()
	shown := regexp.MustCompile(` value="[^"]*"`).ReplaceAllString(body, "") // a field of a form keeps what was typed
	if i := strings.IndexFunc(shown, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200f
	}); i >= 0 {
		t.Errorf("%s: at %d is %q", path, i, shown[i:min(len(shown), i+4)])
	}
	for _, wrong := range []string{"<script>", "<img", "<style", "onerror=alert(1)>", "<!--"} {
		if strings.Contains(body, wrong) {
			t.Errorf("%s has %s", path, wrong)
		}
	}
	known := strings.Fields("html head meta title link script body a svg defs pattern line symbol path circle div header use nav ul li h1 h2 span p strong br form label input kbd button main fieldset legend dl dt dd section ol table thead tbody tr th td rect small figure figcaption text time bdi details summary code pre select option datalist i em")
	d := xml.NewDecoder(strings.NewReader(strings.Replace(body, "<!doctype html>", "", 1)))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	depth := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			depth++
			if !slices.Contains(known, x.Name.Local) {
				t.Errorf("%s has an element %q", path, x.Name.Local)
			}
			for _, a := range x.Attr {
				name := a.Name.Local
				if strings.HasPrefix(name, "on") || name == "style" || strings.ContainsAny(name, `<>"'`) {
					t.Errorf("%s: %s has the attribute %s", path, x.Name.Local, name)
				}
				if name == "href" || name == "src" || name == "action" {
					links = append(links, a.Value)
				}
			}
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%s: %d elements are not closed", path, depth)
	}
	return links
}

// crawl follows all links from an address, and returns the texts of the pages by their addresses. All links must lead to a page below the address's folder.
func crawl(t *testing.T, client *http.Client, start string) map[string]string {
	t.Helper()
	base, err := url.Parse(start)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	seen := map[string]bool{start: true}
	for list := []string{start}; len(list) > 0; list = list[1:] {
		reply, err := client.Get(list[0])
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if reply.StatusCode != http.StatusOK {
			t.Errorf("%s: %s\n%.300s", list[0], reply.Status, body)
			continue
		}
		if !strings.HasPrefix(reply.Header.Get("Content-Type"), "text/html") {
			continue
		}
		pages[list[0]] = string(body)
		at := reply.Request.URL
		for _, l := range parse(t, list[0], string(body)) {
			if strings.HasPrefix(l, "#") {
				if !strings.Contains(string(body), `id="`+l[1:]+`"`) {
					t.Errorf("%s: nothing has the ID %s", list[0], l)
				}
				continue
			}
			to, err := at.Parse(l)
			if err != nil {
				t.Errorf("%s has the link %q: %v", list[0], l, err)
				continue
			}
			if to.Host != base.Host || !strings.HasPrefix(to.Path, base.Path) {
				t.Errorf("%s has the link %q, which leads out of %s", list[0], l, base.Path)
				continue
			}
			if to.Fragment = ""; !seen[to.String()] {
				seen[to.String()] = true
				list = append(list, to.String())
			}
		}
		if len(pages) > 400 {
			t.Fatal("there is no end of pages")
		}
	}
	return pages
}

// All links work, and no text of a user is more than text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	hostile(s)
	s.queue("..", "w1").states("a", "g", "boom", signalbox.Job{Payload: []byte(`{"secret":1}`)})
	srv := httptest.NewServer(s.pages(web.Config{Title: hostileText, Show: func(*http.Request) bool { return true }}))
	defer srv.Close()
	pages := crawl(t, srv.Client(), srv.URL+"/")
	jobs := 0
	for address, body := range pages {
		if strings.Contains(address, "/job?") {
			jobs++
		}
		if len(body) > 400<<10 {
			t.Errorf("%s has %d bytes", address, len(body))
		}
	}
	if want := 2*7 + 1; jobs != want {
		t.Errorf("%d pages of jobs, want %d", jobs, want)
	}
}

// Under each kind of prefix all links work.
func TestLinksUnderPrefixes(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w2").states("mail.welcome", "acme", "503 from upstream", signalbox.Job{Payload: []byte(`{"to":"x"}`), Headers: map[string]string{"tenant": "acme"}})
	h := s.pages(web.Config{})
	for name, serve := range map[string]func() (http.Handler, string){
		"a mux": func() (http.Handler, string) {
			mux := http.NewServeMux()
			mux.Handle("/ops/signalbox/", h)
			return mux, "/ops/signalbox/"
		},
		"StripPrefix": func() (http.Handler, string) {
			mux := http.NewServeMux()
			mux.Handle("/queue/", http.StripPrefix("/queue", h))
			return mux, "/queue/"
		},
		"a proxy": func() (http.Handler, string) {
			behind := httptest.NewServer(h)
			t.Cleanup(behind.Close)
			to, err := url.Parse(behind.URL)
			s.must(err)
			return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.Path, "/a/b/c"), ""
			}}, "/a/b/c/"
		},
	} {
		handler, prefix := serve()
		srv := httptest.NewServer(handler)
		if pages := crawl(t, srv.Client(), srv.URL+prefix); len(pages) < 20 {
			t.Errorf("%s: only %d pages were found", name, len(pages))
		}
		srv.Close()
	}
}

// Who asks for the prefix without the slash at its end is led to the page with it.
func TestPrefixItself(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	h := http.StripPrefix("/ops/x:y", s.pages(web.Config{}))
	if status, header, _ := get(t, h, "/ops/x:y?sort=trouble"); status != http.StatusSeeOther || header.Get("Location") != "./x:y/" {
		t.Errorf("%d, to %q", status, header.Get("Location"))
	}
}

// Each answer says that it is not to be kept, framed, or scripted; and nothing but GET and HEAD is answered.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	h := s.pages(web.Config{})
	for _, path := range []string{"/", "/jobs", "/nothing", "/style.css", "/queue?name=none", "/jobs?queue=none", "/job?queue=none&id=x", "/search?q=none", "/prefs"} {
		_, header, _ := get(t, h, path)
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") ||
			header.Get("X-Frame-Options") != "DENY" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, header)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// What isn't there is said in a page, with the status that fits.
func TestNotThere(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "e", signalbox.Job{})
	h := s.pages(web.Config{})
	for path, want := range map[string]int{
		"/nothing": 404, "/queue?name=mial": 404, "/queue": 404, "/jobs?queue=mial": 404, "/job?queue=mail&id=none": 404, "/job?queue=mial&id=none": 404, "/search?q=none": 404, "/search?q=%00": 404,
		"/jobs?queue=mail&state=half": 400, "/jobs?queue=mail&newer=soon": 400, "/jobs?queue=mail&older=-1h": 400, "/jobs?queue=mail&after=xyz": 400, "/job?queue=mail&id=a+b": 404, "/search?q=": 200,
		"/jobs?queue=mail&newer=2d&error=%3C": 200, "/queue?name=mail&over=month": 200, "/queue?name=mail&over=day": 200, "/queue?name=mail&over=3h": 200, "/?from=5&sort=trouble": 200, "/?from=x": 200,
	} {
		status, _, body := get(t, h, path)
		if status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
		parse(t, path, body)
	}
	if status, header, _ := get(t, h, "/search?q=mail"); status != http.StatusSeeOther || header.Get("Location") != "./queue?name=mail" {
		t.Errorf("a search for a queue: %d, %v", status, header)
	}
	if status, header, _ := get(t, h, "/search?q=dead"); status != http.StatusSeeOther || header.Get("Location") != "./job?id=dead&queue=mail" {
		t.Errorf("a search for a job: %d, %v", status, header)
	}
}

// Arguments and headers are hidden until Show allows them to the user of the request. Errors are not.
func TestShow(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "boom 503", signalbox.Job{Payload: []byte(`{"card":"4111-SECRET"}`), Headers: map[string]string{"auth": "HEADER-SECRET"}})
	closed, open := s.pages(web.Config{}), s.pages(web.Config{Show: func(r *http.Request) bool { return r.Header.Get("User") == "root" }})
	for name, h := range map[string]http.Handler{"by default": closed, "for another user": open} {
		_, _, body := get(t, h, "/job?queue=mail&id=dead")
		if strings.Contains(body, "SECRET") || strings.Count(body, "hidden from you") != 2 || !strings.Contains(body, "boom 503") {
			t.Errorf("%s: %s", name, body)
		}
	}
	srv := httptest.NewServer(closed)
	defer srv.Close()
	for address, body := range crawl(t, srv.Client(), srv.URL+"/") {
		if strings.Contains(body, "SECRET") {
			t.Errorf("%s has arguments or headers", address)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/job?queue=mail&id=dead", nil)
	r.Header.Set("User", "root")
	w := httptest.NewRecorder()
	open.ServeHTTP(w, r)
	if _, _, body := get(t, open, "/job?queue=mail&id=completed"); strings.Contains(body, "SECRET") || !strings.Contains(body, "It is hidden from you") {
		t.Errorf("the result of a job: %s", body)
	}
	if body := w.Body.String(); !strings.Contains(body, "4111-SECRET") || !strings.Contains(body, "HEADER-SECRET") {
		t.Errorf("what Show allows isn't there: %s", body)
	}
}

// A user who may see one queue learns of no other: not from lists, nor from an address, nor from the workers that have both.
func TestScope(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mine", "shared-worker").states("k-mine", "g", "boom", signalbox.Job{})
	s.queue("covert", "shared-worker").states("covert-kind", "covert-group", "covert error", signalbox.Job{})
	s.queue("covert2", "covert-worker").states("covert-kind", "covert-group", "covert error", signalbox.Job{})
	s.must(s.ins.SetCopyDead(t.Context(), "mine", "covert"))
	_, err := s.ins.Pause(t.Context(), "covert")
	s.must(err)
	h := s.pages(web.Config{Queues: func(r *http.Request) web.Scope {
		switch r.Header.Get("User") {
		case "root":
			return web.Scope{All: true}
		case "jo":
			return web.Scope{Queue: func(name string) bool { return name == "mine" }}
		}
		return web.Scope{}
	}})
	as := func(user string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("User", user)
			h.ServeHTTP(w, r)
		})
	}
	for user, sees := range map[string][]string{"root": {"mine", "covert", "covert2", "covert-kind", "covert-worker", "covert error"}, "jo": {"mine", "shared-worker", "k-mine"}, "": {"no queue that you may see"}} {
		srv := httptest.NewServer(as(user))
		all := ""
		for address, body := range crawl(t, srv.Client(), srv.URL+"/") {
			all += address + body
		}
		srv.Close()
		for _, name := range sees {
			if !strings.Contains(all, name) {
				t.Errorf("%q doesn't see %s", user, name)
			}
		}
		if user != "root" && strings.Contains(all, "covert") || user == "" && strings.Contains(all, "mine") {
			t.Errorf("%q sees what is not for them", user)
		}
	}
	for _, pair := range [][2]string{
		{"/queue?name=covert", "/queue?name=none"}, {"/jobs?queue=covert", "/jobs?queue=none"}, {"/job?queue=covert&id=dead", "/job?queue=none&id=dead"}, {"/job?queue=covert&id=none", "/job?queue=none&id=none"},
	} {
		statusOf, _, of := get(t, as("jo"), pair[0])
		statusNone, _, none := get(t, as("jo"), pair[1])
		if statusOf != 404 || statusNone != 404 || withoutTimes(of) != withoutTimes(none) {
			t.Errorf("%s tells that the queue is there: %d, %d", pair[0], statusOf, statusNone)
		}
	}
	if status, _, _ := get(t, as("jo"), "/search?q=covert"); status != 404 {
		t.Errorf("a search finds a queue: %d", status)
	}
}

// The page of workers has each of them on each of its queues, with what it runs.
func TestWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "busy-worker").states("k", "g", "boom", signalbox.Job{})
	s.queue("reports", "idle-worker")
	_, err := s.ins.Quiet(t.Context(), "idle-worker")
	s.must(err)
	_, _, body := get(t, s.pages(web.Config{}), "/workers")
	for _, want := range []string{"<bdi>busy-worker</bdi>", "<bdi>idle-worker</bdi>", "takes no jobs", "./queue?name=mail", "./queue?name=reports", "./job?id=running&amp;queue=mail", "1 of 1"} {
		if !strings.Contains(body, want) {
			t.Errorf("it lacks %s: %s", want, body)
		}
	}
}

// withoutTimes returns a page without its times.
func withoutTimes(body string) string {
	for {
		i := strings.Index(body, "<time ")
		if i < 0 {
			return body
		}
		body = body[:i] + body[i+strings.Index(body[i:], "</time>")+len("</time>"):]
	}
}

// A namespace without queues says so.
func TestEmpty(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	h := s.pages(web.Config{})
	if status, _, body := get(t, h, "/"); status != 200 || !strings.Contains(body, "nothing runs on it yet") {
		t.Errorf("%d: %s", status, body)
	}
	if status, _, body := get(t, h, "/jobs"); status != 200 || !strings.Contains(body, "There is no queue") {
		t.Errorf("%d: %s", status, body)
	}
}

// While Redis is away, the overview shows the last state with its age, and the pages of jobs say what is so. When it is back they go on.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := newStage(t, proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }))
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	h := s.pages(web.Config{})
	restricted := s.pages(web.Config{Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(string) bool { return true }}
	}})
	for _, h := range []http.Handler{h, restricted} {
		if status, _, body := get(t, h, "/"); status != 200 || strings.Contains(body, "does not answer") {
			t.Fatalf("%d: %s", status, body)
		}
	}
	proxy.Refuse(true)
	proxy.Sever()
	redistest.Eventually(t, func() bool {
		_, _, body := get(t, h, "/")
		return strings.Contains(body, "Redis does not answer") && strings.Contains(body, " old.") && strings.Contains(body, "mail") && strings.Contains(body, "refused")
	}, "the overview says that Redis is away, and shows the last state")
	redistest.Eventually(t, func() bool {
		status, _, body := get(t, restricted, "/")
		return status == 200 && strings.Contains(body, "Redis does not answer") && !strings.Contains(body, "refused") && !strings.Contains(body, proxy.Addr())
	}, "a user of some queues doesn't learn why")
	if status, _, body := get(t, h, "/job?queue=mail&id=dead"); status != http.StatusServiceUnavailable || !strings.Contains(body, "Redis did not answer") {
		t.Errorf("%d: %s", status, body)
	}
	proxy.Refuse(false)
	redistest.Eventually(t, func() bool {
		status, _, body := get(t, h, "/")
		return status == 200 && !strings.Contains(body, "does not answer")
	}, "it is back")
}

// Many requests at a time make few calls: they share what is read.
func TestRequestsShareLooks(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := newStage(t, proxy.Client())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	h := s.pages(web.Config{})
	held, free := proxy.HoldReplies(redistest.Any)
	done := make(chan int, 20)
	for range cap(done) {
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/jobs", nil))
			done <- w.Code
		}()
	}
	<-held
	free()
	for range cap(done) {
		if status := <-done; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	get(t, h, "/jobs")
	if n := proxy.Count(redistest.Command("SMEMBERS")) + proxy.Count(redistest.Command("SSCAN")); n > 6 {
		t.Errorf("the list of queues was read %d times", n)
	}
}

// The files that pages need are small, and are kept under the address of their version only.
func TestAssets(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	h := s.pages(web.Config{})
	sizes := map[string]int{".mjs": 30_000, ".css": 14_000, ".svg": 4_000}
	files, err := filepath.Glob("assets/*")
	s.must(err)
	total := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		s.must(err)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err = z.Write(text)
		s.must(errors.Join(err, z.Close()))
		ext := filepath.Ext(file)
		if total[ext] += packed.Len(); total[ext] > sizes[ext] {
			t.Errorf("%s: %d bytes, at most %d are allowed", ext, total[ext], sizes[ext])
		}
		status, header, body := get(t, h, "/x/"+filepath.Base(file))
		if status != 200 || body != string(text) || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, %v", file, status, header)
		}
	}
	if len(files) < 5 {
		t.Fatalf("there are %v", files)
	}
	_, _, page := get(t, h, "/")
	_, rest, _ := strings.Cut(page, "./style.css?v=")
	version, _, _ := strings.Cut(rest, `"`)
	if _, header, _ := get(t, h, "/style.css?v="+version); version == "" || !strings.Contains(header.Get("Cache-Control"), "immutable") {
		t.Errorf("version %q: %v", version, header)
	}
}

// The colours are kept by a cookie, which only has one of their names.
func TestTheme(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	h := s.pages(web.Config{})
	for theme, want := range map[string]string{"dark": "dark", "light": "light", "system": "", `"><script>`: ""} {
		status, header, _ := get(t, h, "/prefs?theme="+url.QueryEscape(theme))
		cookie, err := http.ParseSetCookie(header.Get("Set-Cookie"))
		if err != nil || status != http.StatusSeeOther || cookie.Value != want || cookie.Path != "" {
			t.Errorf("%s: %d, %v, %v", theme, status, cookie, err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "signalbox-theme", Value: "dark"})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), `<html lang="en" data-theme="dark">`) {
		t.Error("the page isn't dark")
	}
}

// A list has fifty jobs on a page, and each job is on one of its pages.
func TestListPages(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	p := s.queue("mail", "w")
	const jobs = 120
	for i := range jobs {
		p.put(signalbox.Job{ID: fmt.Sprintf("job-%03d", i), Kind: "k", MaxAttempts: 1}, store.When{After: time.Hour})
	}
	srv := httptest.NewServer(s.pages(web.Config{}))
	defer srv.Close()
	path, all := "/jobs?queue=mail&state=scheduled", ""
	for page := range 3 {
		_, _, body := get(t, s.pages(web.Config{}), path)
		all += body
		links := parse(t, path, body)
		next := slices.IndexFunc(links, func(l string) bool { return strings.Contains(l, "after=") && !strings.Contains(l, "as=") })
		if (next >= 0) != (page < 2) {
			t.Fatalf("page %d: %v", page, links)
		}
		if next >= 0 {
			path = strings.TrimPrefix(links[next], ".")
		}
	}
	for i := range jobs {
		if id := fmt.Sprintf(">job-%03d<", i); strings.Count(all, id) != 1 {
			t.Errorf("%s is there %d times", id, strings.Count(all, id))
		}
	}
}

// The pages change nothing: a user of Redis who can't write sees all of them, and nothing is missing.
func TestPagesNeedNoRightToWrite(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	page, err := os.ReadFile(filepath.Join("..", "docs", "operations", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(page), "\nACL SETUSER viewer ")
	rule, _, _ = strings.Cut(rule, "\n")
	words := []any{"ACL", "SETUSER", "viewer"}
	for _, word := range strings.Fields(rule) {
		words = append(words, word)
	}
	s := newStage(t, admin)
	s.must(admin.Do(t.Context(), words...).Err())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	s.rdb = srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "viewer", "CHANGE-ME" })
	s.ins, err = inspect.New(s.rdb, inspect.Config{Namespace: s.namespace})
	s.must(err)
	web := httptest.NewServer(s.pages(web.Config{}))
	defer web.Close()
	pages := crawl(t, web.Client(), web.URL+"/")
	for address, body := range pages {
		if strings.Contains(body, "Not read") || strings.Contains(body, "could not be read") || strings.Contains(body, "NOPERM") {
			t.Errorf("%s lacks something", address)
		}
	}
	if len(pages) < 20 {
		t.Errorf("only %d pages were found", len(pages))
	}
}
