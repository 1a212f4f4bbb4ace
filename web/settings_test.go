package web_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/web"
)

// fill fills in fields of a form, each as name=value.
func (l lever) fill(fields ...string) lever {
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		l.Set(name, value)
	}
	return l
}

// Each setting has a form with what it is, which sets it and resets it. The log has the values.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "acme", "boom", signalbox.Job{})
	log := &journal{}
	h := s.pages(web.Config{Authorize: everybody, User: func(*http.Request) string { return "jo" }, Logger: slog.New(slog.NewTextHandler(log, nil))})
	queue := func() inspect.Queue {
		t.Helper()
		q, err := s.ins.Queue(t.Context(), "mail")
		s.must(err)
		return q
	}
	limits := signalbox.Limits{Running: 5, Rate: signalbox.Rate{Jobs: 10, Per: time.Minute, Burst: 2}}
	page := has(t, h, "/queue?name=mail", "Slots of each worker")
	for _, x := range []struct {
		setting string
		fields  []string
		is      func(q inspect.Queue) bool
	}{
		{"Limits", []string{"running=5", "jobs=10", "per=1m", "burst=2"}, func(q inspect.Queue) bool { return q.Limits == limits }},
		{"GroupLimits", []string{"running= 5 ", "jobs=10", "per=60s", "burst=2"}, func(q inspect.Queue) bool { return q.GroupLimits == limits }},
		{"MaxLength", []string{"length=1000"}, func(q inspect.Queue) bool { return q.MaxLength == 1000 }},
		{"Slots", []string{"slots=7"}, func(q inspect.Queue) bool { return q.Slots == 7 }},
		{"Retention", []string{"count=10", "bytes=100000", "age=72h"}, func(q inspect.Queue) bool {
			return q.Retention == signalbox.Retention{Jobs: 10, Bytes: 100_000, Age: 72 * time.Hour}
		}},
		{"CompletedRetention", []string{"count=10", "bytes=100000", "age=1h30m"}, func(q inspect.Queue) bool {
			return q.CompletedRetention == signalbox.Retention{Jobs: 10, Bytes: 100_000, Age: 90 * time.Minute}
		}},
		{"CopyDead", []string{"to=mail-dead"}, func(q inspect.Queue) bool { return q.CopyDead == "mail-dead" }},
	} {
		address := "/act?do=set&queue=mail&setting=" + x.setting
		if !strings.Contains(page, "do=set&amp;queue=mail&amp;setting="+x.setting+`"`) {
			t.Errorf("the page of the queue has no lever for %s", x.setting)
		}
		stale := ask(t, h, address)
		if status, body := ask(t, h, address).fill(x.fields...).pull(); status != http.StatusOK || !strings.Contains(body, "is set") || !x.is(queue()) {
			t.Errorf("%s: %d, %s; %+v", x.setting, status, body, queue())
		}
		if status, body := stale.pull(); status != http.StatusConflict || !strings.Contains(body, "changed since you looked") || !x.is(queue()) {
			t.Errorf("%s by a form from before: %d, %s; %+v", x.setting, status, body, queue())
		}
		for _, field := range x.fields {
			name, value, _ := strings.Cut(field, "=")
			value = strings.ReplaceAll(strings.TrimSpace(value), "60s", "1m")
			has(t, h, address, `name="`+name+`" value="`+value+`"`)
		}
		reset := "/act?do=reset&queue=mail&setting=" + x.setting
		if x.setting == "Slots" {
			if status, _, _ := get(t, h, reset); status != http.StatusConflict {
				t.Errorf("slots can be reset: %d", status)
			}
			continue
		}
		if status, body := ask(t, h, reset).pull(); status != http.StatusOK || x.is(queue()) {
			t.Errorf("%s reset: %d, %s; %+v", x.setting, status, body, queue())
		}
	}
	if text := log.String(); !strings.Contains(text, `msg="web: a user acted" user=jo do=set queue=mail setting=Limits running=5 jobs=10 per=1m burst=2`) || !strings.Contains(text, "do=reset queue=mail setting=CopyDead") {
		t.Errorf("the log: %s", text)
	}
}

// A group gets limits of its own, and loses them.
func TestLimitsOfGroup(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "acme", "boom", signalbox.Job{})
	h := s.pages(web.Config{Authorize: everybody, Logger: slog.New(slog.DiscardHandler)})
	has(t, h, "/groups?queue=mail", "./act?do=set&amp;group=acme&amp;queue=mail")
	has(t, h, "/act?do=set&queue=mail&group=acme", "do=reset&amp;group=acme")
	for _, x := range []struct {
		do     string
		fields []string
		want   signalbox.Limits
	}{
		{"set", []string{"running=3", "jobs=-1"}, signalbox.Limits{Running: 3, Rate: signalbox.Rate{Jobs: signalbox.NoLimit}}},
		{"reset", nil, signalbox.Limits{}},
	} {
		if status, body := ask(t, h, "/act?do="+x.do+"&queue=mail&group=acme").fill(x.fields...).pull(); status != http.StatusOK {
			t.Errorf("%s: %d, %s", x.do, status, body)
		}
		if all, err := s.ins.LimitsOf(t.Context(), "mail"); err != nil || all["acme"] != x.want {
			t.Errorf("%s: %+v, %v", x.do, all, err)
		}
	}
}

// A setting that can't be that, or isn't the user's, stays. A user who sees some queues learns no name of another.
func TestSettingsAreRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "acme", "boom", signalbox.Job{})
	s.queue("covert", "w")
	s.must(s.ins.SetCopyDead(t.Context(), "mail", "covert"))
	before, err := s.ins.Queue(t.Context(), "mail")
	s.must(err)
	log := &journal{}
	h := s.pages(web.Config{
		Queues: func(*http.Request) web.Scope {
			return web.Scope{Queue: func(name string) bool { return name == "mail" }}
		},
		Authorize: func(r *http.Request, a web.Action) error {
			if a.Setting == "Retention" && a.What == web.Set || r.Header.Get("User") == "guest" {
				return errors.New("ask <ops> first")
			}
			return nil
		},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	address := func(setting string) string { return "/act?do=set&queue=mail&setting=" + setting }
	if body := has(t, h, address("CopyDead"), "nowhere"); strings.Contains(body, "covert") {
		t.Error("the form names a queue that is hidden")
	}
	if body := has(t, h, "/queue?name=mail", "setting=CompletedRetention"); strings.Contains(body, "setting=Retention") {
		t.Error("the page has a lever that is not the user's")
	}
	guest := func(r *http.Request) { r.Header.Set("User", "guest") }
	elsewhere := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	for name, x := range map[string]struct {
		form   lever
		change func(*http.Request)
		status int
		says   string
	}{
		"a word for a number":      {ask(t, h, address("Slots")).fill("slots=<many>"), nil, 400, "&lt;many&gt;"},
		"a number for a duration":  {ask(t, h, address("Limits")).fill("jobs=1", "per=5"), nil, 400, "no duration"},
		"a number out of bounds":   {ask(t, h, address("Slots")).fill("slots=1000000"), nil, 400, "be set to that"},
		"a negative maximum":       {ask(t, h, address("MaxLength")).fill("length=-5"), nil, 400, "be set to that"},
		"a burst without a rate":   {ask(t, h, address("Limits")).fill("burst=5"), nil, 400, "be set to that"},
		"a hidden queue":           {ask(t, h, address("CopyDead")).fill("to=covert"), nil, 403, "of that name"},
		"a queue that isn't there": {ask(t, h, address("CopyDead")).fill("to=none"), nil, 403, "of that name"},
		"itself":                   {ask(t, h, address("CopyDead")).fill("to=mail"), nil, 400, "be set to that"},
		"another user":             {ask(t, h, address("Slots")).fill("slots=5"), guest, 403, "ask &lt;ops&gt; first"},
		"another origin":           {ask(t, h, address("Slots")).fill("slots=5"), elsewhere, 403, "another origin"},
		"what is not the user's":   {ask(t, h, address("CompletedRetention")).fill("setting=Retention", "count=1"), nil, 403, "ask"},
		"another setting's state":  {ask(t, h, address("Slots")).fill("setting=MaxLength", "length=5"), nil, 409, "changed since"},
		"no setting":               {lever{t, h, url.Values{"do": {"set"}, "queue": {"mail"}}}, nil, 400, "no such action"},
		"an unknown setting":       {ask(t, h, address("Slots")).fill("setting=Colour"), nil, 400, "no such action"},
		"a group's limits":         {ask(t, h, "/act?do=set&queue=mail&group=acme").fill("running=-7"), nil, 400, "be set to that"},
	} {
		var change []func(*http.Request)
		if x.change != nil {
			change = append(change, x.change)
		}
		if status, body := x.form.pull(change...); status != x.status || !strings.Contains(body, x.says) || strings.Contains(strings.ReplaceAll(body, x.form.Get("to"), ""), "covert") {
			t.Errorf("%s: %d, %s", name, status, body)
		}
	}
	after, err := s.ins.Queue(t.Context(), "mail")
	s.must(err)
	own, err := s.ins.LimitsOf(t.Context(), "mail")
	s.must(err)
	if after.Limits != before.Limits || after.MaxLength != 0 || after.Slots != 0 || after.Retention != before.Retention || after.CompletedRetention != before.CompletedRetention || after.CopyDead != "covert" || len(own) > 0 {
		t.Errorf("something was changed: %+v, %+v", after, own)
	}
	if text := log.String(); strings.Contains(text, "a user acted") {
		t.Errorf("the log: %s", text)
	}
}

// A form whose value can't be one is corrected and sent again. Once it has done something, it isn't.
func TestRefusedFormIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "acme", "boom", signalbox.Job{})
	h := s.pages(web.Config{Authorize: everybody})
	form := ask(t, h, "/act?do=set&queue=mail&setting=Slots")
	for _, x := range []struct {
		slots  string
		status int
	}{{"1000000", http.StatusBadRequest}, {"-1", http.StatusBadRequest}, {"5", http.StatusOK}, {"5", http.StatusConflict}} {
		if status, body := form.fill("slots=" + x.slots).pull(); status != x.status {
			t.Errorf("slots=%s: %d, want %d: %s", x.slots, status, x.status, body)
		}
	}
}
