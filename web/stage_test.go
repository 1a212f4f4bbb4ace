package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/web"
)

func TestMain(m *testing.M) {
	web.ListFor(time.Minute) // a slow server is no finding
	redistest.Main(m)
}

// A stage is a namespace with queues, and the pages over it.
type stage struct {
	t         *testing.T
	rdb       redis.UniversalClient
	namespace string
	ins       *inspect.Inspector
}

func newStage(t *testing.T, rdb redis.UniversalClient) *stage {
	t.Helper()
	s := &stage{t: t, rdb: rdb, namespace: redistest.Name(t)}
	var err error
	s.ins, err = inspect.New(rdb, inspect.Config{Namespace: s.namespace})
	s.must(err)
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// pages returns a handler of the pages.
func (s *stage) pages(cfg web.Config) http.Handler {
	s.t.Helper()
	h, err := web.New(s.ins, cfg)
	s.must(err)
	return h
}

// A player is a queue with one worker, which does as it is told.
type player struct {
	*store.Queue
	s             *stage
	session       string
	lane, enqueue *store.Lane
}

// queue returns a queue of the namespace that a worker has.
func (s *stage) queue(name, worker string) *player {
	s.t.Helper()
	q := store.New(s.rdb, s.namespace, name)
	s.must(q.Presence().Register(s.t.Context()))
	p := &player{Queue: q, s: s, session: store.NewSession(worker), lane: q.NewLane(), enqueue: q.NewLane()}
	_, _, err := q.Sessions().Open(s.t.Context(), p.session, time.Hour)
	s.must(err)
	return p
}

// put enqueues a job.
func (p *player) put(job signalbox.Job, when store.When) {
	p.s.t.Helper()
	item, err := store.NewItem(&job, when)
	p.s.must(err)
	p.enqueue.Next()
	_, err = p.Enqueue(p.s.t.Context(), p.enqueue, []store.Item{item})
	p.s.must(err)
}

// claim gives n jobs to the worker, and ends others.
func (p *player) claim(n int, settle ...store.Settlement) []store.Delivery {
	p.s.t.Helper()
	p.lane.Next()
	reply, err := p.Sessions().Claim(p.s.t.Context(), p.lane, &store.ClaimRequest{Session: p.session, Want: n, Settle: settle, Suspects: true})
	p.s.must(err)
	if len(reply.Deliveries) != n {
		p.s.t.Fatalf("claimed %d of %d jobs", len(reply.Deliveries), n)
	}
	return reply.Deliveries
}

// fails ends the attempt of a job.
func (p *player) fails(outcome store.Outcome, text string, d store.Delivery) {
	p.s.t.Helper()
	record, err := d.FailedAttempt(text, &store.Attempt{Number: d.Job.Attempt, At: d.Job.ClaimedAt, Ran: time.Millisecond, Worker: "w", Error: text, Stack: text})
	p.s.must(err)
	p.claim(0, store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: outcome, Delay: time.Hour, Record: record})
}

// states puts a job of each state into the queue: scheduled for its first attempt and for its second one, ready, running, dead, cancelled and completed with its arguments as its result.
func (p *player) states(kind, group, text string, job signalbox.Job) {
	p.s.t.Helper()
	job.Kind, job.Group, job.MaxAttempts = kind, "", 5
	one := func(id string, when store.When) {
		job.ID = id
		p.put(job, when)
	}
	one("dead", store.When{})
	p.fails(store.Dead, text, p.claim(1)[0])
	one("cancelled", store.When{})
	p.fails(store.Cancelled, text, p.claim(1)[0])
	one("retried", store.When{})
	p.fails(store.Retry, text, p.claim(1)[0])
	job.Retain = time.Hour
	one("completed", store.When{})
	done := p.claim(1)[0]
	p.claim(0, store.Settlement{ID: done.Job.ID, Token: done.Job.Token, Outcome: store.Completed, Keep: store.Kept(&store.Attempt{Number: 1, At: done.Job.ClaimedAt, Ran: time.Millisecond, Worker: "w"}, job.Payload)})
	job.Retain = 0
	one("running", store.When{})
	p.claim(1)
	one("scheduled", store.When{After: time.Hour})
	job.Group = group
	one("ready", store.When{})
}

// get returns the answer of a handler.
func get(t *testing.T, h http.Handler, path string) (int, http.Header, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, w.Header(), string(body)
}
