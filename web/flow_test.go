package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/web"
)

// batch makes a batch with a callback of each sort and some members.
func (s *stage) batch(queue, id string, members int, opts ...scheduler.BatchOption) *scheduler.Batch {
	s.t.Helper()
	sch, err := scheduler.New(s.rdb, scheduler.Config{Namespace: s.namespace})
	s.must(err)
	b, err := sch.Batch(s.t.Context(), queue, append(opts, scheduler.FlowID(id), scheduler.OnSuccess(letter{}, scheduler.ID(id+"-archive")), scheduler.OnEnd(letter{}, scheduler.ID(id+"-report")), scheduler.OnFailure(letter{}, scheduler.ID(id+"-alert")))...)
	s.must(err)
	for range members {
		_, err = b.Add(s.t.Context(), letter{})
		s.must(err)
	}
	return b
}

// The page of a batch says how its members are, what waits for it, and of what its members died.
func TestFlow(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	p := s.queue("mail", "w")
	b := s.batch("mail", "news", 4, scheduler.FlowTimeout(6*time.Hour))
	h := s.pages(web.Config{})
	has(t, h, "/flow?queue=mail&id=news", "Of 4 members, 0 completed, 0 dead, 0 cancelled or deleted, 4 open", "0 of 4 jobs have ended", "no; cancelled if it isn't by", "Its producer may still add to it", "None that has a record",
		`href="./job?id=news-archive&amp;queue=mail"`, "for all jobs of batch news to complete", "signalbox flow show mail news")
	s.must(b.Seal(t.Context()))
	d := p.claim(4)
	p.fails(store.Dead, "smtp 503", d[0])
	p.fails(store.Dead, "smtp 421", d[1])
	p.claim(0, store.Settlement{ID: d[2].Job.ID, Token: d[2].Job.Token, Outcome: store.Completed})

	h = s.pages(web.Config{})
	body := has(t, h, "/flow?queue=mail&id=news", "Of 4 members, 1 completed, 2 dead, 0 cancelled or deleted, 1 open", "3 of 4 jobs have ended", "failed", "smtp &lt;*&gt;", `href="./job?id=`+d[1].Job.ID+`&amp;queue=mail"`,
		`failure<span class="cell2">released</span>`, `<span class="tag ">ready</span>`, `<span class="tag ">cancelled</span>`, `<span class="tag ">awaiting</span>`)
	if strings.Contains(body, "not cancelled") || strings.Contains(body, "/act?") {
		t.Errorf("%s", body)
	}
	has(t, h, "/flows?queue=mail", `href="./flow?id=news&amp;queue=mail"`, "failed", "the newest first")
	has(t, h, "/queue?name=mail", `href="./flows?queue=mail"`)
	has(t, h, "/job?queue=mail&id="+d[0].Job.ID, `href="./flow?id=news&amp;queue=mail"`)
	if _, _, list := get(t, h, "/flows?queue=mail&as=csv"); !strings.Contains(list, "mail,news,failed,false,true,4,1,1,2,0,") {
		t.Error(list)
	}
	if _, _, list := get(t, h, "/flow?queue=mail&id=news&as=csv"); !strings.Contains(list, "mail,news,news-alert,letter,failure,true,ready,") {
		t.Error(list)
	}

	_, err := s.ins.CancelFlow(t.Context(), "mail", "news")
	s.must(err)
	h = s.pages(web.Config{})
	has(t, h, "/flow?queue=mail&id=news", "Redis doesn&#39;t keep why", "1 member still to end")
	p.claim(0, store.Settlement{ID: d[3].Job.ID, Token: d[3].Job.Token, Outcome: store.Completed})
	h = s.pages(web.Config{})
	has(t, h, "/flow?queue=mail&id=news", "It was over with that", "Of 4 members, 1 completed, 2 dead, 1 cancelled or deleted, 0 open")
	has(t, h, "/flows?queue=mail", "over")
}

// logged returns the pages with levers for all, and what they log.
func (s *stage) logged() (http.Handler, *journal) {
	log := &journal{}
	return s.pages(web.Config{Authorize: everybody, User: func(*http.Request) string { return "jo" }, Logger: slog.New(slog.NewTextHandler(log, nil))}), log
}

// A batch is cancelled by a form of its page, once, and the log has the reason. A batch that was made since with the same ID, or is cancelled or over, isn't.
func TestCancelFlow(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	p := s.queue("mail", "w")
	b := s.batch("mail", "news", 2)
	h, log := s.logged()
	has(t, h, "/flow?queue=mail&id=news", `href="./act?batch=news&amp;do=cancel&amp;queue=mail"`)
	body := has(t, h, "/act?do=cancel&queue=mail&batch=news", "The batch <bdi>news</bdi> of the queue", "It is unsealed, with 2 of 2 jobs open now.", "nothing is kept of them", `name="why"`, "for the log")
	if !strings.Contains(body, `href="./flow?id=news&amp;queue=mail"`) {
		t.Errorf("no way back: %s", body)
	}
	form := ask(t, h, "/act?do=cancel&queue=mail&batch=news")
	form.Set("why", strings.Repeat("x", 501))
	if status, body := form.pull(); status != http.StatusBadRequest || !strings.Contains(body, "501 bytes") {
		t.Errorf("a long reason: %d, %s", status, body)
	}
	_, err := b.Add(t.Context(), letter{}) // more members don't change what happens
	s.must(err)
	form.Set("why", "sent by mistake")
	if status, body := form.pull(); status != http.StatusOK || !strings.Contains(body, "news is cancelled") || !strings.Contains(body, `href="./flow?id=news&amp;queue=mail"`) {
		t.Errorf("%d: %s", status, body)
	}
	for i := range 2 {
		if status, body := form.pull(); status != http.StatusConflict {
			t.Errorf("form %d again: %d, %s", i, status, body)
		}
	}
	f, err := s.ins.Flow(t.Context(), "mail", "news")
	if s.must(err); !f.Cancelled || !f.Over || f.Gone != 3 {
		t.Errorf("%+v", f)
	}
	if body := has(t, h, "/flow?queue=mail&id=news", "Redis doesn&#39;t keep why"); strings.Contains(body, "do=cancel") {
		t.Error("a batch that is over can be cancelled")
	}
	if text := log.String(); !strings.Contains(text, `msg="web: a user acted" user=jo do=cancel queue=mail batch=news why="sent by mistake"`) {
		t.Errorf("the log: %s", text)
	}

	s.batch("mail", "open", 1)
	p.claim(1) // the callback of the other batch
	form = ask(t, h, "/act?do=cancel&queue=mail&batch=open")
	form.Set("batch", "news")
	if status, _ := form.pull(); status != http.StatusConflict {
		t.Errorf("a form of another batch: %d", status)
	}
}

// A hook calls a function before each command.
type hook func(ctx context.Context, cmd redis.Cmder) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h(ctx, cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// If the time is over while the members of a batch end, the batch is cancelled none the less, and the page and the log say so.
func TestCancelLargeFlow(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w")
	s.batch("mail", "news", 2)
	h, log := s.logged()
	form := ask(t, h, "/act?do=cancel&queue=mail&batch=news")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cancelled := false
	s.rdb.AddHook(hook(func(c context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("cancel")) {
			cancelled = true
		} else if cancelled && cmd.Name() == "zrange" { // the pass begins
			cancel()
			return c.Err()
		}
		return nil
	}))
	if status, body := form.pull(func(r *http.Request) { *r = *r.WithContext(ctx) }); status != http.StatusOK || !strings.Contains(body, "news is cancelled") {
		t.Errorf("%d: %s", status, body)
	}
	if f, err := s.ins.Flow(t.Context(), "mail", "news"); err != nil || !f.Cancelled || f.Over || !strings.Contains(log.String(), "a user acted") {
		t.Errorf("%+v, %v, %s", f, err, log)
	}
}

// A job that is cancelled or archived has the reason as its last error.
func TestReasons(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "g", "boom", signalbox.Job{})
	s.batch("mail", "news", 0)
	h, log := s.logged()
	has(t, h, "/job?queue=mail&id=scheduled", `href="./act?do=archive&amp;job=scheduled&amp;queue=mail"`)
	for _, x := range []struct {
		do, id, why string
		state       signalbox.State
		says        string
	}{
		{"archive", "scheduled", "the customer <has> left", signalbox.StateDead, "archived: the customer <has> left"},
		{"archive", "ready", "", signalbox.StateDead, "archived: by an operator"},
		{"archive", "news-report", "", signalbox.StateDead, "archived: by an operator"},
		{"cancel", "retried", "sent twice", signalbox.StateCancelled, "job cancelled: sent twice"},
		{"cancel", "news-archive", "", signalbox.StateCancelled, "job cancelled: cancelled by an operator"},
	} {
		form := ask(t, h, "/act?queue=mail&do="+x.do+"&job="+x.id)
		form.Set("why", x.why)
		if status, body := form.pull(); status != http.StatusOK || !strings.Contains(body, x.id+" is "+x.do) {
			t.Errorf("%s: %d, %s", x.id, status, body)
		}
		if status, body := form.pull(); status != http.StatusConflict {
			t.Errorf("%s again: %d, %s", x.id, status, body)
		}
		if j, err := s.ins.Job(t.Context(), "mail", x.id); err != nil || j.State != x.state || j.LastError != x.says {
			t.Errorf("%s is %s, %q, %v", x.id, j.State, j.LastError, err)
		}
	}
	for _, id := range []string{"running", "dead", "cancelled", "completed"} {
		if status, _, body := get(t, h, "/act?do=archive&queue=mail&job="+id); status != http.StatusConflict {
			t.Errorf("%s can be archived: %s", id, body)
		}
	}
	if text := log.String(); !strings.Contains(text, `do=archive queue=mail job=scheduled why="the customer <has> left"`) || strings.Contains(text, `why=""`) {
		t.Errorf("the log: %s", text)
	}
}

// What is no batch, or is hidden, is said in a page; and all links work, whatever the names are.
func TestFlowsElsewhere(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w")
	s.queue(hostileName, "w").states(hostileName, "g", hostileText, signalbox.Job{})
	s.batch("mail", "news", 0)
	s.batch(hostileName, "<b>&news", 2, scheduler.FailFast())
	_, err := s.ins.CancelFlow(t.Context(), hostileName, "<b>&news")
	s.must(err)
	hidden := s.pages(web.Config{Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(name string) bool { return name != "mail" }}
	}})
	h := s.pages(web.Config{})
	for _, x := range []struct {
		h      http.Handler
		path   string
		status int
		says   string
	}{
		{h, "/flow?queue=mail&id=mail", 404, "no such batch"},
		{h, "/flow?queue=none&id=news", 404, "no such queue"},
		{h, "/flow?queue=mail", 400, "address is not right"},
		{h, "/flows?queue=none", 404, "no such queue"},
		{h, "/flows?queue=", 400, "address is not right"},
		{hidden, "/flows?queue=mail", 404, "no such queue"},
		{hidden, "/flow?queue=mail&id=news", 404, "no such queue"},
		{h, "/flow?queue=mail&id=news", 200, "It has none."},
	} {
		status, _, body := get(t, x.h, x.path)
		if parse(t, x.path, body); status != x.status || !strings.Contains(body, x.says) {
			t.Errorf("%s: %d, %s", x.path, status, body)
		}
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	batches := 0
	for address := range crawl(t, srv.Client(), srv.URL+"/") {
		if strings.Contains(address, "/flow?") {
			batches++
		}
	}
	if batches != 2 {
		t.Errorf("%d pages of batches, want 2", batches)
	}
}
