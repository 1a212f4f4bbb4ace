package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

var discard = slog.New(slog.DiscardHandler)

func TestQueueLs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	if out, errs, code := sh.run("queue", "ls"); out != "" || code != 0 || !strings.Contains(errs, `no queue in namespace "`+sh.namespace) {
		t.Errorf("with no queue: %q, %q, %d", out, errs, code)
	}
	var none struct{ Queues []queueJSON }
	if sh.into(&none, "queue", "ls"); none.Queues == nil || len(none.Queues) != 0 {
		t.Errorf("with no queue: %+v", none)
	}
	for _, args := range [][]string{
		{"enqueue", "mail", "{}", "--queue", "mail", "--after", "1h"},
		{"enqueue", "mail", "{}", "--queue", "mail", "--after", "1h"},
		{"enqueue", "report", "{}", "--queue", "a-queue-with-a-long-name", "--after", "1h"},
		{"queue", "pause", "mail"},
		{"queue", "set", "mail", "--slots", "7"},
	} {
		sh.ok(args...)
	}
	same(t, sh.ok("queue", "ls"), `
		QUEUE                     STATE   READY  SCHEDULED  RUNNING  DEAD  CANCELLED  OLDEST  WORKERS  SLOTS
		a-queue-with-a-long-name  active      0          1        0     0          0       -        0      -
		mail                      paused      0          2        0     0          0       -        0      7`)
	sh.width = 80
	same(t, sh.ok("queue", "ls"), `
		QUEUE                     STATE   READY  SCHEDULED  RUNNING  DEAD  OLDEST
		a-queue-with-a-long-name  active      0          1        0     0       -
		mail                      paused      0          2        0     0       -`)
	sh.width = 0
	same(t, sh.ok("queue", "ls", "mail"), `
		QUEUE  STATE   READY  SCHEDULED  RUNNING  DEAD  CANCELLED  OLDEST  WORKERS  SLOTS
		mail   paused      0          2        0     0          0       -        0      7`)
	sh.fails(exitNotFound, []string{"no such queue", "mial", "mail"}, "queue", "ls", "mial")
}

// TestQueueJSON pins the fields that programs read. A change here is one of docs/cli/json.md.
func TestQueueJSON(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "mail", "{}", "--queue", "mail", "--after", "1h")
	same(t, sh.ok("queue", "ls", "-o", "json"),
		`{"queues":[{"queue":"mail","state":"active","paused":false,"paused_since":null,"held_until":null,"paused_groups":0,"held_groups":0,"ready":0,"blocked":0,"scheduled":1,"awaiting":0,"running":0,"dead":0,"cancelled":0,`+
			`"completed":0,"oldest_seconds":0,"slots":0,"retention":{"jobs":0,"bytes":0,"age_seconds":0},"retention_completed":null,"copy_dead":"","max_length":0,"workers":[],"quiet":[]}]}`)
	same(t, sh.ok("queue", "pause", "mail", "-o", "json"), `{"queue":"mail","group":"","paused":true,"changed":true}`)
	same(t, sh.ok("queue", "pause", "mail", "-o", "json"), `{"queue":"mail","group":"","paused":true,"changed":false}`)
	var got struct{ Queues []queueJSON }
	if sh.into(&got, "queue", "ls"); !got.Queues[0].Paused || got.Queues[0].PausedSince == nil || !strings.HasSuffix(*got.Queues[0].PausedSince, "Z") {
		t.Errorf("%+v", got)
	}
	same(t, sh.ok("queue", "set", "mail", "--slots", "3", "--keep-age", "7d", "-o", "json"),
		`{"queue":"mail","slots":3,"retention":{"jobs":100000,"bytes":268435456,"age_seconds":604800},"retention_completed":null,"copy_dead":""}`)
	same(t, sh.ok("queue", "set", "mail", "--keep-completed-age", "1d", "-o", "json"),
		`{"queue":"mail","slots":3,"retention":{"jobs":100000,"bytes":268435456,"age_seconds":604800},`+
			`"retention_completed":{"jobs":100000,"bytes":268435456,"age_seconds":86400},"copy_dead":""}`)
	same(t, sh.ok("queue", "resume", "mail", "-o", "json"), `{"queue":"mail","group":"","paused":false,"changed":true}`)
}

func TestQueuePauseAndSet(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "pause", "mail")
	sh.ok("enqueue", "mail", "--queue", "mail", "--after", "1h")
	same(t, sh.ok("queue", "pause", "mail"), "queue mail is paused; jobs that run go on, and new ones wait")
	same(t, sh.ok("queue", "pause", "mail"), "queue mail was paused already")
	same(t, sh.ok("queue", "resume", "mail"), "queue mail is resumed")
	same(t, sh.ok("queue", "resume", "mail"), "queue mail was not paused")
	sh.ok("queue", "pause", "mail", "--group", "acme")
	if _, errs, code := sh.run("queue", "resume", "mail"); code != 0 || !strings.Contains(errs, "signalbox queue hold mail") {
		t.Errorf("while a group is paused: %s", errs)
	}
	sh.ok("queue", "resume", "mail", "--group", "acme")
	sh.fails(exitUsage, []string{"port 99999"}, "queue", "ls", "--redis", "redis://localhost:99999")
	same(t, sh.ok("queue", "set", "mail", "--keep-jobs", "10"), "queue mail: slots as each worker is configured, keeps 10 jobs, 256 MiB, for 30d")
	// What no flag names stays as it was.
	same(t, sh.ok("queue", "set", "mail", "--keep-bytes", "1536KiB", "--slots", "2"), "queue mail: slots 2, keeps 10 jobs, 1.5 MiB, for 30d")
	same(t, sh.ok("queue", "set", "mail", "--keep-jobs", "0"), "queue mail: slots 2, keeps 100000 jobs, 1.5 MiB, for 30d")
	sh.fails(exitUsage, []string{"nothing to set", "--slots"}, "queue", "set", "mail")
	sh.fails(exitUsage, []string{"slots"}, "queue", "set", "mail", "--slots", "-1")
	sh.fails(exitUsage, []string{"30d"}, "queue", "set", "mail", "--keep-age", "soon")
	sh.fails(exitUsage, []string{"64MiB"}, "queue", "set", "mail", "--keep-bytes", "much")
}

// Completed jobs are kept if a flag says so, listed and shown, and not kept any more if another does.
func TestQueueKeepsCompleted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "mail", "--queue", "mail", "--id", "a")
	before := sh.ok("queue", "ls", "mail")
	if strings.Contains(before, "COMPLETED") {
		t.Errorf("a column of nothing:\n%s", before)
	}
	slots := "queue mail: slots as each worker is configured, keeps 100000 jobs, 256 MiB, for 30d\n"
	same(t, sh.ok("queue", "set", "mail", "--keep-completed"), slots+"queue mail: keeps 100000 completed jobs, 256 MiB, for 30d")
	same(t, sh.ok("queue", "set", "mail", "--keep-completed-jobs", "5", "--keep-completed-age", "2h"), slots+"queue mail: keeps 5 completed jobs, 256 MiB, for 2h")
	same(t, sh.ok("queue", "set", "mail", "--keep-completed-bytes", "1MiB"), slots+"queue mail: keeps 5 completed jobs, 1 MiB, for 2h")
	sh.complete("mail")
	if got := sh.ok("queue", "ls", "mail"); !strings.Contains(got, "COMPLETED") {
		t.Errorf("no column of completed jobs:\n%s", got)
	}
	var listed jobJSON
	if sh.into(&listed, "job", "ls", "mail", "--state", "completed"); listed.ID != "a" || listed.State != "completed" || listed.EndedAt == nil {
		t.Errorf("listed: %+v", listed)
	}
	var shown showJSON
	if sh.into(&shown, "job", "show", "mail", "a"); shown.Success == nil || shown.Success.Worker != "w1" || shown.Success.Number != 1 || shown.Success.RanSeconds != 2 {
		t.Errorf("shown: %+v", shown.Success)
	}
	if string(shown.Result) != `{"Rows":7}` || shown.ResultBase64 != nil {
		t.Errorf("the result is %s", shown.Result)
	}
	if got := sh.ok("job", "show", "mail", "a"); !strings.Contains(got, "completed  attempt 1, ran 2s on w1") || !strings.Contains(got, "\nresult\n  {\n    \"Rows\": 7\n  }\n") {
		t.Errorf("shown:\n%s", got)
	}
	same(t, sh.ok("job", "retry", "mail", "a"), "job a was completed: retried")
	sh.complete("mail")
	same(t, sh.ok("job", "rm", "mail", "--state", "completed", "--yes"), "1 job of queue mail deleted")
	sh.fails(exitUsage, []string{"--keep-completed=false"}, "queue", "set", "mail", "--keep-completed=false", "--keep-completed-jobs", "5")
	same(t, sh.ok("queue", "set", "mail", "--keep-completed=false"), slots+"queue mail: keeps no completed jobs")
}

// Dead jobs are copied to another queue, until a flag ends that.
func TestQueueCopiesDead(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "mail", "--queue", "mail", "--after", "1h")
	slots := "queue mail: slots as each worker is configured, keeps 100000 jobs, 256 MiB, for 30d\n"
	copies := "queue mail: copies its dead jobs to queue graves"
	same(t, sh.ok("queue", "set", "mail", "--copy-dead", "graves"), slots+copies)
	same(t, sh.ok("queue", "set", "mail", "--keep-jobs", "0"), slots+copies)
	if set := sh.ok("queue", "set", "mail", "--slots", "0", "-o", "json"); !strings.Contains(set, `"copy_dead":"graves"`) {
		t.Errorf("set: %s", set)
	}
	var listed struct{ Queues []queueJSON }
	if sh.into(&listed, "queue", "ls", "mail"); len(listed.Queues) != 1 || listed.Queues[0].CopyDead != "graves" {
		t.Errorf("%+v", listed)
	}
	sh.fails(exitUsage, []string{"mail", "another queue"}, "queue", "set", "mail", "--copy-dead", "mail")
	sh.fails(exitUsage, []string{"a b"}, "queue", "set", "mail", "--copy-dead", "a b")
	same(t, sh.ok("queue", "set", "mail", "--copy-dead", ""), slots+"queue mail: copies no dead jobs")
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	same(t, sh.ok("enqueue", "mail", `{"to":"x"}`, "--id", "j1", "--after", "1d"), "job j1 is in queue default")
	same(t, sh.ok("enqueue", "mail", `{"to":"x"}`, "--id", "j1", "--after", "1d"), "nothing done: queue default has a job j1 already, which is scheduled")
	same(t, sh.ok("enqueue", "mail", "--id", "j1", "-o", "json"), `{"queue":"default","id":"j1","new":false,"state":"scheduled","replaced":""}`)
	sh.in = `{"to":"y"}`
	same(t, sh.ok("enqueue", "mail", "-", "--queue", "q", "--id", "j2", "--at", "2200-01-01T00:00:00Z", "--priority", "high", "-o", "json"),
		`{"queue":"q","id":"j2","new":true,"state":"","replaced":""}`)
	for _, bad := range []string{`{"secret":`, "secret", ""} {
		sh.fails(exitUsage, []string{"no JSON"}, "enqueue", "mail", bad)
		if _, errs, _ := sh.run("enqueue", "mail", bad); strings.Contains(errs, "secret") {
			t.Errorf("the error quotes the payload: %s", errs)
		}
	}
	sh.fails(exitUsage, []string{"too large for a 64-bit float", "line 2, column 9"}, "enqueue", "mail", "{\n\"m\":1e400}")
	sh.fails(exitUsage, []string{"RFC 3339"}, "enqueue", "mail", "{}", "--at", "noon")
	sh.fails(exitUsage, []string{"high, normal or low"}, "enqueue", "mail", "{}", "--priority", "urgent")
	sh.fails(exitUsage, []string{"--at and --after"}, "enqueue", "mail", "{}", "--at", "2200-01-01T00:00:00Z", "--after", "1h")
	sh.fails(exitUsage, []string{"enqueue KIND [ARGS]"}, "enqueue")
	sh.fails(exitUsage, []string{"nosuchfile"}, "enqueue", "mail", "@/nosuchfile")
}

// A queue is listed once an enqueue has ended, though the registry is written beside it.
func TestEnqueueListsTheQueue(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	rdb := srv.Client()
	for i := range 100 {
		queue := fmt.Sprintf("q%d", i)
		sh.ok("enqueue", "mail", "--queue", queue, "--after", "1h", "-o", "json") // nothing is asked of the queue afterwards
		if listed, err := rdb.SIsMember(t.Context(), "signalbox:{"+sh.namespace+":}:queues", queue).Result(); err != nil || !listed {
			t.Fatalf("%s: %v, %v", queue, listed, err)
		}
	}
}

// A job for a queue that nobody works is put in, and the queue's name may be wrong.
func TestEnqueueForNobody(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail")
	p := sh.works(srv)
	<-p.started
	for queue, warned := range map[string]bool{"mail": false, "maill": true} {
		_, errs, code := sh.run("enqueue", "mail", "--queue", queue, "--after", "1h")
		if code != 0 || strings.Contains(errs, "no worker works queue "+queue) != warned {
			t.Errorf("%s: status %d, %q", queue, code, errs)
		}
	}
	if _, errs, _ := sh.run("enqueue", "mail", "--queue", "maill", "--after", "1h", "-o", "json"); errs != "" {
		t.Errorf("JSON: %q", errs)
	}
	// The same is said of a queue that gets copies.
	sh.ok("enqueue", "mail", "--queue", "maill2", "--after", "1h")
	for queue, warned := range map[string]bool{"mail": false, "maill": true, "no-such-queue": true, "": false} {
		_, errs, code := sh.run("queue", "set", "maill2", "--copy-dead", queue)
		if code != 0 || strings.Contains(errs, "no worker works queue "+queue) != warned {
			t.Errorf("copies to %q: status %d, %q", queue, code, errs)
		}
	}
}

// complete has a worker complete the job of a queue that is ready.
func (s *shell) complete(queue string) {
	s.t.Helper()
	options, err := redis.ParseURL(s.env["REDIS_URL"])
	if err != nil {
		s.t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	q := store.New(rdb, s.namespace, queue)
	ctx, session, lane := s.t.Context(), store.NewSession("w1"), q.NewLane()
	if _, _, err := q.Sessions().Open(ctx, session, time.Minute); err != nil {
		s.t.Fatal(err)
	}
	lane.Next()
	reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		s.t.Fatalf("%+v, %v", reply, err)
	}
	job := reply.Deliveries[0].Job
	success := &store.Attempt{Number: job.Attempt, At: job.ClaimedAt, Ran: 2 * time.Second, Worker: "w1"}
	lane.Next()
	done := store.Settlement{ID: job.ID, Token: job.Token, Outcome: store.Completed, Keep: store.Kept(success, []byte(`{"Rows":7}`))}
	if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: []store.Settlement{done}}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := q.Sessions().Close(ctx, session, false, lane); err != nil {
		s.t.Fatal(err)
	}
}

// Commands refuse a queue that a program from before the first release has used, and say what to do.
func TestQueueOfAnOldLayout(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "report", "-q", "mail", "--id", "j1")
	key := "signalbox:{" + sh.namespace + ":mail}:settings"
	for _, err := range []error{ // so it is as if a program from before the first release had used it
		srv.Client().Del(t.Context(), key).Err(),
		srv.Client().HDel(t.Context(), "signalbox:{"+sh.namespace+":mail}:stats", "layout").Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"queue", "ls"},
		{"queue", "pause", "mail"},
		{"job", "ls", "mail"},
		{"job", "show", "mail", "j1"},
		{"doctor", "mail"},
		{"doctor", "mail", "--repair", "--yes"},
		{"export", "mail"},
		{"enqueue", "report", "-q", "mail"},
		{"worker", "ls"},
	} {
		if out, errs, code := sh.run(args...); code == exitOK || !strings.Contains(errs, "the queue was used, and has no layout or layout 1") {
			t.Errorf("%v: %d, %q, %q", args, code, out, errs)
		}
	}
	if n := srv.Client().Exists(t.Context(), key).Val(); n != 0 {
		t.Error("a command has made settings")
	}
}
