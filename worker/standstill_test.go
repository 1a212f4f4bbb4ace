package worker_test

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// A process stands still for longer than its lease, since it was stopped or its container was paused, while a call is under way. Its log says once that the
// lease was lost, and why, before what became of the jobs. It says nothing of Redis, which had answered. An idle one says nothing.
func TestLogOfAProcessThatStoodStill(t *testing.T) {
	t.Parallel()
	for name, jobs := range map[string]int{"idle": 0, "with jobs": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.New(t)
			r := newRigOn(t, srv.Client())
			p := redistest.NewProxy(t, srv.Addr())
			c := startChild(t, childConfig{Addr: p.Addr(), Queue: r.name(), Slots: 4, TTL: 3 * time.Second})
			redistest.Eventually(t, func() bool { return c.logged("the worker is ready") == 1 }, "it is ready")
			r.orders(jobs, order{Do: "wait"})
			for range jobs {
				c.await("start")
			}
			held, free := p.HoldReplies(r.isRenew())
			get(t, held, "it renews its lease")
			c.freeze()
			free()
			<-time.After(4 * time.Second)
			c.signal(syscall.SIGCONT)
			r.orders(1, order{Do: "sleep"})
			r.until("it works again", func(n looks.Counts) bool { return n.Total.Completed == 1 })
			for _, not := range []string{"Redis is", "a call to Redis failed", "lost memory", "level=ERROR", "superseded"} {
				if c.logged(not) > 0 {
					t.Errorf("the log has %q", not)
				}
			}
			var said []string
			for line := range strings.Lines(c.text()) {
				if !strings.Contains(line, "the worker is ready") && !strings.Contains(line, "a job is given back") {
					said = append(said, line)
				}
			}
			if n := c.logged("a job is given back"); n != jobs {
				t.Errorf("%d jobs are given back, want %d", n, jobs)
			}
			if jobs == 0 && len(said) == 0 {
				return
			}
			want := regexp.MustCompile(`level=WARN msg="signalbox: the lease was lost; the handlers' contexts have ended" queue=\S+ jobs=3 cause="the process stood still for [^"]+"\n`)
			if jobs == 0 || len(said) != 1 || !want.MatchString(said[0]) {
				t.Errorf("the log says %q, want one line like %s", said, want)
			}
		})
	}
}
