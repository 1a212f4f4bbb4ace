package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
		`<span class="tag ">ready</span>`, `<span class="tag ">cancelled</span>`, `<span class="tag ">awaiting</span>`)
	if strings.Contains(body, "not cancelled") || strings.Contains(body, "/act?") {
		t.Errorf("%s", body)
	}
	has(t, h, "/flows?queue=mail", `href="./flow?id=news&amp;queue=mail"`, "failed", "the newest first")
	has(t, h, "/queue?name=mail", `href="./flows?queue=mail"`)
	has(t, h, "/job?queue=mail&id="+d[0].Job.ID, `href="./flow?id=news&amp;queue=mail"`)
	if _, _, list := get(t, h, "/flows?queue=mail&as=csv"); !strings.Contains(list, "mail,news,failed,false,true,4,1,1,2,0,") {
		t.Error(list)
	}
	if _, _, list := get(t, h, "/flow?queue=mail&id=news&as=csv"); !strings.Contains(list, "mail,news,news-alert,letter,failure,ready,") {
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
