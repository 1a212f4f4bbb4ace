package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/web"
)

// has fails if a page lacks one of some texts.
func has(t *testing.T, h http.Handler, path string, texts ...string) string {
	t.Helper()
	status, _, body := get(t, h, path)
	if status != http.StatusOK {
		t.Errorf("%s: status %d", path, status)
	}
	parse(t, path, body)
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%s lacks %q: %s", path, text, body)
		}
	}
	return body
}

type mail struct{}

func (mail) Kind() string { return "mail.digest" }

// entry describes a cron entry in Redis, as a scheduler does that runs. That has ended when it returns.
func (s *stage) entry(queue, name, spec string, opts ...scheduler.CronOption) {
	s.t.Helper()
	sched, err := scheduler.New(s.rdb, scheduler.Config{Namespace: s.namespace})
	s.must(err)
	s.must(sched.Cron(name, spec, mail{}, append(opts, scheduler.Queue(queue))...))
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- sched.Run(ctx) }()
	redistest.Eventually(s.t, func() bool {
		_, err := s.ins.Entry(s.t.Context(), queue, name)
		return err == nil
	}, "the entry is described")
	stop()
	s.must(<-ended)
}

// The page of cron entries has each of them with its ticks, and says which is paused.
func TestCronPage(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	h := s.pages(web.Config{})
	has(t, h, "/cron", "There is no cron entry")
	s.entry("mail", "often", "@every 1m")
	s.entry("mail", "daily", "0 3 * * *", scheduler.Missed(scheduler.RunOnce))
	_, err := s.ins.PauseEntry(t.Context(), "mail", "daily")
	s.must(err)
	redistest.Eventually(t, func() bool {
		_, _, body := get(t, h, "/cron")
		return strings.Contains(body, "paused since") && strings.Contains(body, "<bdi>often</bdi>")
	}, "the page has the entries")
	has(t, h, "/cron", "<bdi>daily</bdi>", "0 3 * * * UTC", "mail.digest", "2 entries; paused: 1; no scheduler has: 0.", ">once<", "c-off", "c-band next", "./queue?name=mail", "signalbox cron ls")
}

// The page of groups has what each may run, and why its jobs wait.
func TestGroupsPage(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	p := s.queue("mail", "w")
	s.must(s.ins.SetLimits(t.Context(), "mail", signalbox.Limits{Running: 3}))
	s.must(s.ins.SetGroupLimits(t.Context(), "mail", signalbox.Limits{Running: 1}))
	s.must(s.ins.SetLimitsOf(t.Context(), "mail", "fast", signalbox.Limits{Running: signalbox.NoLimit, Rate: signalbox.Rate{Jobs: 5, Per: time.Minute}}))
	for i, g := range []string{"acme", "acme", "paused", "held"} {
		p.put(signalbox.Job{ID: fmt.Sprint(i), Kind: "k", Group: g, MaxAttempts: 3}, store.When{})
	}
	p.claim(1)
	_, err := s.ins.PauseGroup(t.Context(), "mail", "paused")
	s.must(err)
	_, err = s.ins.HoldBack(t.Context(), "mail", "held", time.Hour)
	s.must(err)
	h := s.pages(web.Config{})
	has(t, h, "/groups", "./groups?queue=mail", "3 jobs at a time", "1 job at a time")
	has(t, h, "/groups?queue=mail", "<bdi>acme</bdi>", "for its limit of 1", "the group is paused, for", "the group is held back until", "any number at a time; 5 jobs start in 1 m",
		"places of-20", `class="free"`, "signalbox queue groups mail", "./jobs?group=acme&amp;queue=mail&amp;state=ready", "not known")
	if status, _, _ := get(t, h, "/groups?queue=none"); status != http.StatusNotFound {
		t.Errorf("the groups of a queue that isn't there: %d", status)
	}
}

// The page of locks looks when it is asked, and shows who holds each. A user of some queues has no such page.
func TestLocksPage(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := newStage(t, rdb)
	locker, err := lock.New(rdb, lock.Config{TTL: time.Hour, Owner: "owner<1>"})
	s.must(err)
	key := s.namespace + "-ledger"
	held, err := locker.TryAcquire(t.Context(), key)
	s.must(err)
	h := s.pages(web.Config{})
	if body := has(t, h, "/locks", "data-still", "when you ask"); strings.Contains(body, "ledger") {
		t.Errorf("it looked, though nobody asked: %s", body)
	}
	has(t, h, "/locks?key="+s.namespace+"-*", "<bdi>"+key+"</bdi>", "owner&lt;1&gt;", "1 lock held.", `class="token"`, "not known")
	s.must(held.Release(t.Context()))
	for _, path := range []string{"/locks?key=*", "/doctor?queue=mail&look=yes"} {
		some := s.pages(web.Config{Queues: func(*http.Request) web.Scope { return web.Scope{Queue: func(string) bool { return true }} }})
		if status, _, body := get(t, some, path); status != http.StatusNotFound || strings.Contains(body, "./locks") || strings.Contains(body, "./doctor") {
			t.Errorf("%s for a user of some queues: %d", path, status)
		}
	}
}

// The page of the doctor says that each job is in one state, or what is wrong.
func TestDoctorPage(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	bad := s.queue("bad", "w")
	bad.put(signalbox.Job{ID: "lost<1>", Kind: "k", MaxAttempts: 3}, store.When{})
	h := s.pages(web.Config{})
	if body := has(t, h, "/doctor?queue=mail", "data-still", "Nobody has looked"); strings.Contains(body, "in exactly one state</strong>") {
		t.Error("it looked, though nobody asked")
	}
	has(t, h, "/doctor?queue=mail&look=yes", "7 jobs, each in exactly one state", "signalbox doctor mail")
	keys, err := s.rdb.Keys(t.Context(), "*"+s.namespace+":bad}*ready:normal").Result()
	s.must(err)
	if len(keys) != 1 {
		t.Fatalf("keys %v", keys)
	}
	s.must(s.rdb.Del(t.Context(), keys[0]).Err())
	has(t, h, "/doctor?queue=bad&look=yes", "1 finding", "no_place", "lost&lt;1&gt;")
	if status, _, _ := get(t, h, "/doctor?queue=none&look=yes"); status != http.StatusNotFound {
		t.Errorf("the doctor of a queue that isn't there: %d", status)
	}
	if _, err := s.ins.Doctor(t.Context(), "bad", inspect.Checkup{Repair: true}); err != nil {
		t.Error(err)
	}
}
