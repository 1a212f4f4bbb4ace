package web_test

import (
	"bytes"
	"cmp"
	"errors"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/web"
)

// A lever is a form that asks before an action.
type lever struct {
	t *testing.T
	h http.Handler
	url.Values
}

// ask opens the page that asks before an action, and returns its form.
func ask(t *testing.T, h http.Handler, address string) lever {
	t.Helper()
	body := has(t, h, address, `method="post"`)
	form := url.Values{}
	for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(body, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	if strings.Contains(body, "<select") {
		form.Set("for", "300")
	}
	return lever{t, h, form}
}

// pull sends the form, and returns the answer. change may change the request.
func (l lever) pull(change ...func(*http.Request)) (int, string) {
	l.t.Helper()
	r := httptest.NewRequestWithContext(l.t.Context(), http.MethodPost, "/ops/act", strings.NewReader(l.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	l.h.ServeHTTP(w, r)
	parse(l.t, "act", w.Body.String())
	return w.Code, w.Body.String()
}

// everybody lets all users do everything.
func everybody(*http.Request, web.Action) error { return nil }

// A journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}
func (j *journal) String() string { j.mu.Lock(); defer j.mu.Unlock(); return j.text.String() }

// Without Authorize nobody can do anything, and no page has a lever.
func TestNobodyActsByDefault(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	h := s.pages(web.Config{})
	for _, path := range []string{"/queue?name=mail", "/job?queue=mail&id=dead", "/groups?queue=mail", "/cron"} {
		if _, _, body := get(t, h, path); strings.Contains(body, "/act?") || !strings.Contains(body, "These pages change nothing") {
			t.Errorf("%s has a lever", path)
		}
	}
	if status, _, _ := get(t, h, "/act?do=pause&queue=mail"); status != http.StatusNotFound {
		t.Errorf("the page that asks: %d", status)
	}
	if status, _ := (lever{t, h, url.Values{"do": {"pause"}, "queue": {"mail"}}}).pull(); status != http.StatusMethodNotAllowed {
		t.Errorf("a form: %d", status)
	}
}

// Each lever does what it says, once, and the log says who pulled it.
func TestActions(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	p := s.queue("mail", "w")
	p.states("k", "acme", "boom", signalbox.Job{})
	log := &journal{}
	h := s.pages(web.Config{Authorize: everybody, User: func(*http.Request) string { return "jo@example.com" }, Logger: slog.New(slog.NewTextHandler(log, nil))})
	queue := func() inspect.Queue {
		t.Helper()
		q, err := s.ins.Queue(t.Context(), "mail")
		s.must(err)
		return q
	}
	group := func() inspect.Group {
		t.Helper()
		groups, err := s.ins.GroupsOf(t.Context(), "mail", "acme")
		s.must(err)
		for _, g := range groups {
			if !g.Serial {
				return g
			}
		}
		return inspect.Group{}
	}
	state := func(id string) signalbox.State {
		t.Helper()
		j, err := s.ins.Job(t.Context(), "mail", id)
		if errors.Is(err, inspect.ErrNoJob) {
			return "gone"
		}
		s.must(err)
		return j.State
	}
	for _, x := range []struct {
		address, says string
		is            func() bool
	}{
		{"/act?do=pause&queue=mail", "mail is paused", func() bool { return queue().Paused }},
		{"/act?do=resume&queue=mail", "mail is resumed", func() bool { return !queue().Paused }},
		{"/act?do=hold&queue=mail", "mail is held back", func() bool { return !queue().HeldUntil.IsZero() }},
		{"/act?do=release&queue=mail", "mail is not held back", func() bool { return queue().HeldUntil.IsZero() }},
		{"/act?do=pause&queue=mail&group=acme", "acme is paused", func() bool { return group().Paused }},
		{"/act?do=resume&queue=mail&group=acme", "acme is resumed", func() bool { return !group().Paused }},
		{"/act?do=hold&queue=mail&group=acme", "acme is held back", func() bool { return !group().HeldUntil.IsZero() }},
		{"/act?do=release&queue=mail&group=acme", "acme is not held back", func() bool { return group().HeldUntil.IsZero() }},
		{"/act?do=retry&queue=mail&job=dead", "dead is ready", func() bool { return state("dead") == signalbox.StateReady }},
		{"/act?do=retry&queue=mail&job=completed", "completed is ready", func() bool { return state("completed") == signalbox.StateReady }},
		{"/act?do=retry&queue=mail&job=scheduled", "scheduled is ready", func() bool { return state("scheduled") == signalbox.StateReady }},
		{"/act?do=cancel&queue=mail&job=retried", "retried is cancelled", func() bool { return state("retried") == signalbox.StateCancelled }},
		{"/act?do=cancel&queue=mail&job=running", "running was told to end", func() bool {
			j, err := s.ins.Job(t.Context(), "mail", "running")
			return err == nil && j.Cancelling
		}},
		{"/act?do=delete&queue=mail&job=cancelled", "cancelled is deleted", func() bool { return state("cancelled") == "gone" }},
	} {
		form := ask(t, h, x.address)
		if status, body := form.pull(); status != http.StatusOK || !strings.Contains(body, x.says) || !x.is() {
			t.Errorf("%s: %d, %s", x.address, status, body)
		}
		if status, body := form.pull(); status < 400 || !x.is() {
			t.Errorf("%s again: %d, %s", x.address, status, body)
		}
	}
	if text := log.String(); strings.Count(text, `msg="web: a user acted" user=jo@example.com`) != 14 || !strings.Contains(text, "do=pause queue=mail group=acme") || !strings.Contains(text, "do=delete queue=mail job=cancelled") {
		t.Errorf("the log: %s", text)
	}
}

// A cron entry is paused, resumed, and run once for each form.
func TestEntryActions(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w")
	s.entry("mail", "digest", "0 3 1 1 *")
	h := s.pages(web.Config{Authorize: everybody, Logger: slog.New(slog.DiscardHandler)})
	has(t, h, "/cron", "./act?do=pause&amp;entry=digest&amp;queue=mail", "./act?do=run&amp;entry=digest&amp;queue=mail")
	paused := func() bool {
		e, err := s.ins.Entry(t.Context(), "mail", "digest")
		s.must(err)
		return e.Paused
	}
	if status, body := ask(t, h, "/act?do=pause&queue=mail&entry=digest").pull(); status != http.StatusOK || !paused() {
		t.Errorf("pause: %d, %s", status, body)
	}
	if status, body := ask(t, h, "/act?do=resume&queue=mail&entry=digest").pull(); status != http.StatusOK || paused() {
		t.Errorf("resume: %d, %s", status, body)
	}
	run := ask(t, h, "/act?do=run&queue=mail&entry=digest")
	for i, want := range []int{http.StatusOK, http.StatusConflict, http.StatusConflict} {
		if status, body := run.pull(); status != want {
			t.Errorf("form %d: %d, %s", i, status, body)
		}
	}
	if q, err := s.ins.Queue(t.Context(), "mail"); err != nil || q.Ready != 1 {
		t.Errorf("%d jobs are ready, %v; want that of one run", q.Ready, err)
	}
}

// A cron entry can be forgotten only if no scheduler has it. Its jobs stay.
func TestForgetEntry(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w")
	s.entry("mail", "digest", "0 3 1 1 *")
	h := s.pages(web.Config{Authorize: everybody, Logger: slog.New(slog.DiscardHandler)})
	if body := has(t, h, "/cron", "do=run"); strings.Contains(body, "do=forget") {
		t.Error("an entry that a scheduler had just now can be forgotten")
	}
	if status, _, body := get(t, h, "/act?do=forget&queue=mail&entry=digest"); status != http.StatusConflict {
		t.Errorf("the page that asks: %d, %s", status, body)
	}
	_, err := s.ins.RunEntry(t.Context(), "mail", "digest")
	s.must(err)
	s.unseen("mail", "digest", time.Hour)
	has(t, s.pages(web.Config{Authorize: everybody}), "/cron", "./act?do=forget&amp;entry=digest&amp;queue=mail")
	form := ask(t, h, "/act?do=forget&queue=mail&entry=digest")
	for i, want := range []int{http.StatusOK, http.StatusNotFound} {
		if status, body := form.pull(); status != want {
			t.Errorf("form %d: %d, %s", i, status, body)
		}
	}
	if _, err := s.ins.Entry(t.Context(), "mail", "digest"); !errors.Is(err, inspect.ErrNoEntry) {
		t.Errorf("after that: %v", err)
	}
	if q, err := s.ins.Queue(t.Context(), "mail"); err != nil || q.Ready != 1 {
		t.Errorf("%d jobs are ready, %v; want that of the run", q.Ready, err)
	}
}

// unseen has it that a scheduler said for the last time so long ago that it has an entry.
func (s *stage) unseen(queue, name string, ago time.Duration) {
	s.t.Helper()
	keys, err := s.rdb.Keys(s.t.Context(), "*"+s.namespace+":"+queue+"}*entries").Result()
	s.must(err)
	if len(keys) != 1 {
		s.t.Fatalf("keys %v", keys)
	}
	_, digest, _ := strings.Cut(s.rdb.HGet(s.t.Context(), keys[0], "seen:"+name).Val(), " ")
	now, err := s.rdb.Time(s.t.Context()).Result()
	s.must(err)
	s.must(s.rdb.HSet(s.t.Context(), keys[0], "seen:"+name, strconv.FormatInt(now.Add(-ago).UnixMicro(), 10)+" "+digest).Err())
}

// Each method of an inspector either changes nothing, or has a lever, or is listed as one that only the command line has.
func TestLeversOfInspect(t *testing.T) {
	t.Parallel()
	reads := strings.Fields(`Changes DeadByError Entries Entry Export Flow FlowJobs Flows Groups GroupsOf Holds Job Jobs Latest LimitsOf Locks Memory Outboxes PausedGroups
		Queue Queues Servers Settings Stats Totals Workers`)
	levers := map[string][]string{
		"Pause": {"pause queue"}, "Resume": {"resume queue"}, "HoldBack": {"hold queue", "release queue", "hold group", "release group"},
		"PauseGroup": {"pause group"}, "ResumeGroup": {"resume group"},
		"PauseEntry": {"pause entry"}, "ResumeEntry": {"resume entry"}, "RunEntry": {"run entry"}, "ForgetEntry": {"forget entry"},
		"SetLimits": {"set setting=Limits"}, "SetGroupLimits": {"set setting=GroupLimits"}, "SetMaxLength": {"set setting=MaxLength"}, "SetSlots": {"set setting=Slots"},
		"SetRetention": {"set setting=Retention"}, "SetCompletedRetention": {"set setting=CompletedRetention"}, "SetCopyDead": {"set setting=CopyDead"},
		"Reset": {"reset setting=Limits"}, "SetLimitsOf": {"set group"}, "ResetLimitsOf": {"reset group"},
		"Quiet": {"quiet worker"}, "Unquiet": {"unquiet worker"}, "Stop": {"stop worker"}, "RemoveQueue": {"remove queue"}, "Doctor": {"repair queue"},
		"Do": {"retry job", "cancel job", "archive job", "delete job"}, "CancelFlow": {"cancel batch"},
	}
	shell := map[string]string{
		"DoAll": "it needs a preview and goes on for longer than a request", "DeleteWaiting": "the same", "Import": "a file may have gigabytes", "ForgetOutbox": "its steps are in a database, too",
		"RemoveQueues": "each queue has its own lever",
	}
	known := slices.Concat(reads, slices.Collect(maps.Keys(levers)), slices.Collect(maps.Keys(shell)))
	var methods []string
	for m := range reflect.TypeFor[*inspect.Inspector]().Methods() {
		methods = append(methods, m.Name)
	}
	slices.Sort(known)
	slices.Sort(methods)
	if !slices.Equal(known, methods) {
		t.Errorf("this test knows the methods %v; an inspector has %v", known, methods)
	}

	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w")
	h := s.pages(web.Config{Authorize: everybody})
	for method, list := range levers {
		for _, l := range list {
			what, on, _ := strings.Cut(l, " ")
			form := url.Values{"do": {what}, "queue": {"mail"}}
			kind, name, _ := strings.Cut(on, "=")
			if kind != "queue" {
				form.Set(kind, cmp.Or(name, "none"))
			}
			if kind == "worker" {
				form.Del("queue")
			}
			if status, _, body := get(t, h, "/act?"+form.Encode()); status == http.StatusBadRequest || strings.Contains(body, "no such action") {
				t.Errorf("%s has no lever %q: %d", method, l, status)
			}
		}
	}
}

// A lever that isn't the user's, or is pulled from elsewhere, again, or on something that has moved, changes nothing.
func TestActionsAreRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	s.queue("covert", "w").states("covert-kind", "covert-group", "covert error", signalbox.Job{})
	log := &journal{}
	h := s.pages(web.Config{
		Queues: func(*http.Request) web.Scope {
			return web.Scope{Queue: func(name string) bool { return name == "mail" }}
		},
		Authorize: func(r *http.Request, a web.Action) error {
			if a.What == web.Delete || r.Header.Get("User") == "guest" {
				return errors.New("ask <ops> first")
			}
			return nil
		},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	paused := func() bool {
		t.Helper()
		q, err := s.ins.Queue(t.Context(), "mail")
		s.must(err)
		return q.Paused
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	form := ask(t, h, "/act?do=pause&queue=mail")
	with := func(key, value string) lever {
		other := lever{t, h, url.Values{}}
		for k := range form.Values {
			other.Set(k, form.Get(k))
		}
		other.Set(key, value)
		return other
	}
	for name, x := range map[string]struct {
		form   lever
		change func(*http.Request)
		status int
		says   string
	}{
		"a user without the right":    {form, header("User", "guest"), 403, "ask &lt;ops&gt; first"},
		"a page of another site":      {form, header("Sec-Fetch-Site", "cross-site"), 403, "another origin"},
		"a page of another subdomain": {form, header("Sec-Fetch-Site", "same-site"), 403, "another origin"},
		"an old browser": {form, func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "https://evil.example")
		}, 403, "another origin"},
		"a forged state":              {with("seen", "0123456789abcdef"), nil, 409, "changed since you looked"},
		"no mark":                     {with("once", ""), nil, 400, "no mark"},
		"an old mark":                 {with("once", "1-"+strings.Repeat("A", 26)), nil, 409, "too old"},
		"a mark of the future":        {with("once", "zzzzzzzz-"+strings.Repeat("A", 26)), nil, 409, "too old"},
		"another action":              {with("do", "drop"), nil, 400, "no such action"},
		"no queue":                    {with("queue", ""), nil, 400, "no such action"},
		"two things":                  {with("job", "dead"), nil, 400, "no such action"},
		"a batch that isn't there":    {lever{t, h, url.Values{"do": {"cancel"}, "queue": {"mail"}, "batch": {"none"}, "once": {form.Get("once")}}}, nil, 404, "no such batch"},
		"a batch and a job":           {lever{t, h, url.Values{"do": {"cancel"}, "queue": {"mail"}, "batch": {"none"}, "job": {"dead"}}}, nil, 400, "no such action"},
		"a queue that isn't there":    {with("queue", "none"), nil, 404, "no such queue"},
		"a queue that is hidden":      {with("queue", "covert"), nil, 404, "no such queue"},
		"a form of 1 MiB":             {with("pad", strings.Repeat("x", 1<<20)), nil, 400, "The form can"},
		"a form in the address":       {lever{t, h, url.Values{}}, func(r *http.Request) { r.URL.RawQuery = form.Encode() }, 400, "no such action"},
		"a job of another queue":      {lever{t, h, url.Values{"do": {"retry"}, "queue": {"covert"}, "job": {"dead"}, "once": {form.Get("once")}}}, nil, 404, "no such queue"},
		"a deletion that is not his":  {lever{t, h, url.Values{"do": {"delete"}, "queue": {"mail"}, "job": {"dead"}, "once": {form.Get("once")}}}, nil, 403, "ask"},
		"a hold for ever":             {lever{t, h, url.Values{"do": {"hold"}, "queue": {"mail"}, "for": {"999999"}, "seen": {form.Get("seen")}, "once": {form.Get("once")}}}, nil, 400, "no such time"},
		"a group that isn't there":    {lever{t, h, url.Values{"do": {"pause"}, "queue": {"mail"}, "group": {"none"}, "once": {form.Get("once")}}}, nil, 404, "no such group"},
		"an entry that isn't there":   {lever{t, h, url.Values{"do": {"run"}, "queue": {"mail"}, "entry": {"none"}, "once": {form.Get("once")}}}, nil, 404, "no such cron entry"},
		"a job in the wrong state":    {lever{t, h, url.Values{"do": {"retry"}, "queue": {"mail"}, "job": {"running"}, "once": {form.Get("once")}}}, nil, 409, "now"},
		"a name that can't be a name": {with("queue", "a b"), nil, 404, "no such queue"},
	} {
		var change []func(*http.Request)
		if x.change != nil {
			change = append(change, x.change)
		}
		status, body := x.form.pull(change...)
		if status != x.status || !strings.Contains(body, x.says) || strings.Contains(body, "covert error") {
			t.Errorf("%s: %d, %s", name, status, body)
		}
	}
	q, err := s.ins.Queue(t.Context(), "mail")
	s.must(err)
	other, err := s.ins.Queue(t.Context(), "covert")
	s.must(err)
	if q.Paused || q.Dead != 1 || q.Ready != 1 || !q.HeldUntil.IsZero() || other.Paused || other.Dead != 1 {
		t.Errorf("something was changed: %+v, %+v", q, other)
	}
	if text := log.String(); !strings.Contains(text, "an action was refused") || strings.Contains(text, "a user acted") {
		t.Errorf("the log: %s", text)
	}

	// The same form again, also after the queue is as it was.
	if status, body := form.pull(); status != http.StatusOK || !paused() {
		t.Fatalf("%d, %s", status, body)
	}
	_, err = s.ins.Resume(t.Context(), "mail")
	s.must(err)
	if status, _ := form.pull(); status != http.StatusConflict || paused() {
		t.Errorf("a replay: %d", status)
	}

	// A job that has moved since the page was opened.
	moved := ask(t, h, "/act?do=retry&queue=mail&job=dead")
	_, err = s.ins.Do(t.Context(), "mail", "dead", inspect.Retry{})
	s.must(err)
	if status, body := moved.pull(); status != http.StatusConflict || !strings.Contains(body, "Nothing was done") && !strings.Contains(body, "It is ready") {
		t.Errorf("a job that moved: %d, %s", status, body)
	}

	// A page shows only the levers that are the user's.
	if body := has(t, h, "/job?queue=mail&id=cancelled", "do=retry"); strings.Contains(body, "do=delete") {
		t.Error("it has a lever that is not the user's")
	}
	// To look changes nothing.
	if status, _, _ := get(t, h, "/act?"+form.Encode()); status != http.StatusOK || paused() {
		t.Errorf("GET: %d", status)
	}
}

// A place in a list that was forged, or is of another queue, shows no job of that queue.
func TestForgedCursor(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	covert := s.queue("covert", "w")
	for _, id := range []string{"covert-1", "covert-2", "covert-3"} {
		covert.put(signalbox.Job{ID: id, Kind: "covert-kind", MaxAttempts: 1}, store.When{After: time.Hour})
	}
	h := s.pages(web.Config{Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(name string) bool { return name == "mail" }}
	}})
	var cursors []string
	for j, err := range s.ins.Jobs(t.Context(), "covert", inspect.Filter{State: signalbox.StateScheduled}) {
		s.must(err)
		cursors = append(cursors, j.Cursor)
	}
	cursors = append(cursors, "x", "../covert", "\x00", strings.Repeat("9", 400), "-1", "1e309|x", hostileText)
	for _, cursor := range cursors {
		for _, state := range []string{"scheduled", "ready", "dead", "running"} {
			form := url.Values{"queue": {"mail"}, "state": {state}, "after": {cursor}}
			status, _, body := get(t, h, "/jobs?"+form.Encode())
			if status != http.StatusOK && status != http.StatusBadRequest {
				t.Errorf("%q of %s: %d", cursor, state, status)
			}
			parse(t, cursor, body)
			if strings.Contains(body, "covert-kind") {
				t.Errorf("%q of %s shows jobs of another queue", cursor, state)
			}
		}
	}
}
