package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// The day of an operator, behind Sentinels.
func TestStoryOnSentinel(t *testing.T) {
	t.Parallel()
	servers := redistest.Sentinel(t)
	sh := newShell(t, servers.Master())
	delete(sh.env, "REDIS_URL")
	sh.where = []string{"--sentinel", strings.Join(servers.Addrs(), ","), "--master", redistest.MasterName}
	sh.story(servers.Client())
}

// The same in a Cluster of three masters, with queues on each of them.
func TestStoryOnCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t)
	sh := newShell(t, servers.Masters()[0])
	sh.where = []string{"--cluster"}
	for _, queue := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		sh.ok("enqueue", "report", "-q", queue, "--after", "1h")
	}
	sh.story(servers.Client())
}

// story finds a dead job, mends it and runs it again, and looks at all there is.
func (s *shell) story(rdb redis.UniversalClient) {
	t := s.t
	t.Helper()
	s.ok("enqueue", "email.welcome", `{"order":17,"to":"ann@@example.org"}`, "-q", "mail", "--id", "order-17", "--max-attempts", "1")
	s.ok("enqueue", "email.welcome", `{"do":"die"}`, "-q", "mail", "--id", "d1", "--max-attempts", "1")
	p := s.worksBy(rdb)
	s.settled(2, 0)
	has := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%q is not in\n%s", part, out)
			}
		}
	}
	has(s.ok("queue", "ls"), "mail", "active")
	has(s.ok("job", "ls", "mail", "--state", "dead"), "order-17", "no such address", "d1", "451")
	has(s.ok("job", "show", "mail", "order-17"), "dead, ", `no such address: "ann@@example.org"`, "attempts that failed")
	same(t, s.ok("job", "edit", "mail", "order-17", "--args", `{"order":17,"to":"ann@example.org"}`, "--run"), "job order-17 was dead: changed, and ready to run")
	redistest.Eventually(t, func() bool { return s.state("order-17") == "" }, "the job has run again")

	same(t, s.ok("queue", "pause", "mail"), "queue mail is paused; jobs that run go on, and new ones wait")
	same(t, s.ok("job", "retry", "mail", "--state", "dead", "--kind", "email.welcome", "--yes"), "1 job of queue mail retried")
	if got := s.state("d1"); got != "ready" {
		t.Errorf("in a paused queue a job that is retried is %q", got)
	}
	same(t, s.ok("job", "edit", "mail", "d1", "--args", `{"do":"hold"}`), "job d1, which is ready, was changed")
	same(t, s.ok("queue", "resume", "mail"), "queue mail is resumed")
	if id := <-p.started; id != "d1" {
		t.Errorf("%s runs", id)
	}
	has(s.ok("worker", "ls"), p.w.ID(), "active")
	has(s.ok("worker", "ls", "--running"), "d1", p.w.ID())
	close(p.free)
	redistest.Eventually(t, func() bool { return s.state("d1") == "" }, "the other job has run")

	var checked doctorJSON
	if s.into(&checked, "doctor"); checked.Queues == 0 || len(checked.Findings) != 0 {
		t.Errorf("the doctor: %+v", checked)
	}
	s.declares(rdb, "mail", "digest", "0 9 29 2 *")
	has(s.ok("cron", "ls"), "digest", "0 9 29 2 *")
	has(s.ok("cron", "next", "digest", "--limit", "1"), "-02-29T09:00:00Z")

	locker, err := lock.New(rdb, lock.Config{Owner: "web-1", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	held, err := locker.Acquire(t.Context(), s.namespace+":k")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release(t.Context())
	has(s.ok("lock", "ls", s.namespace+":*"), s.namespace+":k", "web-1")

	redistest.Eventually(t, func() bool {
		var stats statsJSON
		s.into(&stats, "queue", "stats", "mail")
		return stats.Total.Enqueued == 2 && stats.Total.Completed == 2 && stats.Total.Dead == 2 && stats.Total.Revived == 2
	}, "the statistics count two jobs that died, ran again and completed")
	has(s.ok("top", "--once", "--every", "200ms"), "mail", p.w.ID())
}
