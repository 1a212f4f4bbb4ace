package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// A Config configures the pages. With its zero value every user sees all queues, and no arguments, results and headers of jobs.
type Config struct {
	// Title stands beside "Signalbox" in titles, and in the corner of each page: the namespace, say. It may be "".
	Title string
	// Queues says what the user of a request may see. Nil: everything, as Scope{All: true}. It is called for each request for a page, perhaps
	// by several goroutines at a time.
	Queues func(r *http.Request) Scope
	// Authorize returns nil if the user of a request may do something, and else an error, whose text the user sees. Nil: nobody may do anything, and the
	// pages have no lever. It is called for each lever that a page could have, and again when somebody pulls it. The user sees the queue then.
	Authorize func(r *http.Request, a Action) error
	// User returns the name of the user of a request, for the log. Nil: the log says that it is not known.
	User func(r *http.Request) string
	// Logger gets a record of each action, with its user, and of each that was refused or failed. Default slog.Default.
	Logger *slog.Logger
	// Show reports whether the user of a request may see the arguments, the results and the headers of the jobs that they see. Nil: no user may. It is called as Queues is.
	Show func(r *http.Request) bool
	// TraceURL is the address of a trace where people look at traces: http or https, with {trace} once, in the place of its ID, which is 32 hexadecimal
	// digits: "https://jaeger.example/trace/{trace}". "": pages show the ID alone.
	TraceURL string
}

// A Scope is what a user may see. The zero value is nothing.
type Scope struct {
	// All lets the user see all queues, and what belongs to no single queue: the errors of Redis.
	All bool
	// Queue reports whether the user may see the queue of that name, if All is not set. Other queues are to the user as if they weren't there.
	// Nil: the user sees no queue.
	Queue func(name string) bool
}

// sees reports whether the user may see a queue.
func (s Scope) sees(queue string) bool { return s.All || s.Queue != nil && s.Queue(queue) }

// New returns a handler that serves the pages. The inspector stays the caller's. The error wraps signalbox.ErrInvalid if it is nil, or if Config.TraceURL is not
// such an address.
//
// The handler keeps what it read of Redis for a second, or for four times as long as the look took if that is more, and an error for a second, and gives it to all requests that ask for the same
// in that time. A look that several requests wait for is made once, by a goroutine that ends with it, after 10 s at the latest, or when the last
// of these requests has gone. The last state of the queues is kept until the next look, to show it while Redis is away.
func New(inspector *inspect.Inspector, cfg Config) (http.Handler, error) {
	if inspector == nil {
		return nil, fmt.Errorf("%w inspector: it is nil; give web.New that of inspect.New", signalbox.ErrInvalid)
	}
	if u, err := url.Parse(strings.Replace(cfg.TraceURL, traceHole, "0", 1)); cfg.TraceURL != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Count(cfg.TraceURL, traceHole) != 1) {
		return nil, fmt.Errorf("%w TraceURL: want an address with %s once and no password, such as https://jaeger.example/trace/%[2]s", signalbox.ErrInvalid, traceHole)
	}
	return &pages{cfg: cfg, ins: inspector, looks: newReader()}, nil
}

// traceHole is the place of a trace's ID in Config.TraceURL.
const traceHole = "{trace}"

// traceLink returns the address of a trace, or "" if there is none.
func (p *pages) traceLink(id string) string {
	if id == "" || p.cfg.TraceURL == "" {
		return ""
	}
	return strings.Replace(p.cfg.TraceURL, traceHole, id, 1)
}

// pages is the handler.
type pages struct {
	cfg   Config
	ins   *inspect.Inspector
	looks *reader
	last  keep
	sent  once
}

// A visit is one request for a page.
type visit struct {
	*pages
	*http.Request
	scope Scope
	show  bool
	state *state // of all queues, as far as the user may see them
	away  error  // why state is an old one or empty; nil: it is new
}

// An answer is what becomes of a visit: a page made with a template, a redirection, or a file.
type answer struct {
	status   int // 0: 200
	name     string
	title    string
	cur      string // which page of the list it is
	queue    string // whose page it is
	body     any
	still    bool // the page doesn't look again by itself
	redirect string
	sheet    func() *sheet // its list, for a file; nil: it has none
	file     *file
}

// A file is a list as a file.
type file struct {
	kind, name string
	data       []byte
}

// views are the pages, by the last element of their paths.
var views = map[string]func(*visit) (answer, error){
	"":        (*visit).overview,
	"queue":   (*visit).queue,
	"jobs":    (*visit).jobs,
	"job":     (*visit).job,
	"search":  (*visit).search,
	"flows":   (*visit).flows,
	"flow":    (*visit).flow,
	"workers": (*visit).workers,
	"cron":    (*visit).cron,
	"groups":  (*visit).groups,
	"locks":   (*visit).locks,
	"doctor":  (*visit).doctor,
	"redis":   (*visit).redis,
	"act":     (*visit).act,
}

// policy lets a browser load nothing but the files of the handler, and run no script of a page's text.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves a page, a list as a file, or one of the files that pages need.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch acts := name == "act" && p.cfg.Authorize != nil; {
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
	case r.Method == http.MethodPost && acts:
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		p.serve(w, r, (*visit).do)
		return
	case acts:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "want GET, HEAD or POST", http.StatusMethodNotAllowed)
		return
	default:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page changes nothing: want GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "" {
		// Somebody asked for the prefix itself, and http.StripPrefix took it off. Without a slash at its end the links would lead beside it.
		if asked, _, _ := strings.Cut(r.RequestURI, "?"); asked != "" && !strings.HasSuffix(asked, "/") {
			redirect(w, "./"+asked[strings.LastIndexByte(asked, '/')+1:]+"/")
			return
		}
	}
	if a := assets[name]; a != nil {
		a.serve(w, r)
		return
	}
	if name == "prefs" {
		setTheme(w, r)
		return
	}
	view := views[name]
	if view == nil {
		view = func(*visit) (answer, error) { return answer{}, errNoPage }
	}
	p.serve(w, r, view)
}

// redirect leads to an address that is relative to that of the request. It sets the header by itself: http.Redirect would join it with a path that may lack its prefix.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// setTheme remembers the colours that somebody chose on a page without scripts.
func setTheme(w http.ResponseWriter, r *http.Request) {
	theme := http.Cookie{Name: themeCookie, Value: r.URL.Query().Get("theme"), MaxAge: 365 * 24 * 3600, SameSite: http.SameSiteLaxMode}
	if theme.Value != "light" && theme.Value != "dark" {
		theme.Value, theme.MaxAge = "", -1
	}
	http.SetCookie(w, &theme) // its path is that of the pages, since it names none
	redirect(w, "./")
}

// themeCookie has the colours that a user chose. It is for the scripts of the pages as well.
const themeCookie = "signalbox-theme"

// errNoPage is the error of a visit to a page, a queue or a job that isn't there, or not for this user.
var errNoPage = errors.New("web: no such page")

// A mistake is what is wrong with the address of a page, in words for the user.
type mistake string

func (m mistake) Error() string { return string(m) }

// serve makes a page and sends it whole.
func (p *pages) serve(w http.ResponseWriter, r *http.Request, view func(*visit) (answer, error)) {
	v := &visit{pages: p, Request: r, scope: Scope{All: true}}
	if p.cfg.Queues != nil {
		v.scope = p.cfg.Queues(r)
	}
	v.show = p.cfg.Show != nil && p.cfg.Show(r)
	v.state, v.away = p.readState(r.Context())
	v.state = v.state.within(v.scope)
	a, err := view(v)
	if as := v.URL.Query().Get("as"); err == nil && as != "" {
		a, err = v.file(a, as)
	}
	if err != nil {
		a = v.failed(err)
	}
	switch {
	case a.redirect != "":
		redirect(w, a.redirect)
		return
	case a.file != nil:
		w.Header().Set("Content-Type", a.file.kind)
		w.Header().Set("Content-Disposition", `attachment; filename="`+a.file.name+`"`)
		_, _ = w.Write(a.file.data)
		return
	}
	var text bytes.Buffer
	if err := templates[a.name].ExecuteTemplate(&text, "shell", v.shell(&a)); err != nil {
		http.Error(w, "the page can't be made: this is a mistake of package web", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = w.Write(text.Bytes()) // who has gone needs no page
}

// failed returns the page that says why there is no other.
func (v *visit) failed(err error) answer {
	m := message{Arm: "idle", Title: "There is no such page"}
	status := http.StatusNotFound
	var wrong mistake
	var no *refusal
	switch {
	case errors.As(err, &no):
		m, status = message{Arm: "caution", Title: no.title, Text: no.text}, no.status
	case errors.As(err, &wrong):
		m, status = message{Arm: "caution", Title: "The address is not right", Text: string(wrong)}, http.StatusBadRequest
	case errors.Is(err, errNoPage):
	case errors.Is(err, inspect.ErrNoJob):
		m.Title, m.Text = "The queue has no such job", "It has completed, was dropped or deleted, or never was there."
	case errors.Is(err, inspect.ErrNoFlow):
		m.Title, m.Text = "The queue has no such batch", "It was over for a day, or never was there."
	case errors.Is(err, inspect.ErrNoQueue):
		m.Title, m.Text = "There is no such queue", "No producer and no worker has used it, or you may not see it."
	case errors.Is(err, signalbox.ErrInvalid):
		m, status = message{Arm: "caution", Title: "The address is not right", Text: "A queue, an ID or a place in a list in it can't be one."}, http.StatusBadRequest
	default:
		m, status = message{Arm: "stop", Title: "Redis did not answer", Text: v.reason(err)}, http.StatusServiceUnavailable
	}
	return answer{status: status, name: "message", title: m.Title, body: m, still: v.Method == http.MethodPost}
}

// A message is a page without a list.
type message struct {
	Arm, Title, Text string
	To, ToText       string // where to go on; "" for nowhere
}

// reason says what went wrong, as far as the user may know.
func (v *visit) reason(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "It took longer than " + span(lookBound) + "."
	case !v.scope.All:
		return "Who runs Signalbox can see why."
	}
	return clean(err.Error(), 1000)
}
