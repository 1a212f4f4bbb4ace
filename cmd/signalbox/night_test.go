package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A night is a queue in an incident: jobs of two tenants and of none, a worker, and an operator who has the command and nothing else.
type night struct {
	*shell
	p   *post
	rdb redis.UniversalClient
	n   int
}

func newNight(t *testing.T) *night {
	t.Helper()
	srv := redistest.Start(t)
	n := &night{shell: newShell(t, srv), rdb: srv.Client()}
	n.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "first", "--after", "30d") // so that the queue is known
	return n
}

// put enqueues a job with flags, and returns its ID.
func (n *night) put(do string, flags ...string) string {
	n.t.Helper()
	n.n++
	id := fmt.Sprint("j", n.n)
	n.ok(append([]string{"enqueue", "email.welcome", fmt.Sprintf(`{"do":%q}`, do), "-q", "mail", "--id", id}, flags...)...)
	return id
}

// gone waits until jobs have completed.
func (n *night) gone(ids ...string) {
	n.t.Helper()
	for _, id := range ids {
		redistest.Eventually(n.t, func() bool { _, _, code := n.run("job", "show", "mail", id); return code == exitNotFound }, "job %s completes", id)
	}
}

// rests checks that jobs are still there, and that "job show" says why.
func (n *night) rests(why string, ids ...string) {
	n.t.Helper()
	for _, id := range ids {
		redistest.Eventually(n.t, func() bool { return strings.Contains(n.ok("job", "show", "mail", id), why) }, "job %s: %s", id, why)
	}
}

// passes has a job of another tenant run to its end: the worker works, and has looked at the queue since.
func (n *night) passes() { n.t.Helper(); n.gone(n.put("", "--group", "other")) }

// What operators do at 3 a.m.: each scenario says what the operator sees, and what the jobs do.
func TestAtThreeInTheMorning(t *testing.T) {
	t.Parallel()
	atNight(t, map[string]func(n *night){
		"a tenant that floods is stopped, and goes on later": func(n *night) {
			ids := []string{n.put("", "--group", "acme"), n.put("", "--group", "acme")}
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			n.passes()
			n.rests("its group is paused", ids...)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(ids...)
		},
		"a tenant is stopped before its jobs come": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			ids := []string{n.put("", "--serial", "acme"), n.put("", "--group", "acme")}
			n.passes()
			n.rests("its group is paused", ids...)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(ids...)
		},
		"a pause waits for what runs": func(n *night) {
			n.p = n.works(redistest.Start(n.t))
			id := n.put("hold", "--group", "acme")
			<-n.p.started
			waiting := n.put("", "--group", "acme")
			n.gone(waiting) // it ran beside it
			close(n.p.free)
			if out := n.ok("queue", "pause", "mail", "--group", "acme", "--wait"); !strings.Contains(out, "is paused") {
				n.t.Error(out)
			}
			n.gone(id)
		},
		"a worker dies while its tenant is paused": func(n *night) {
			n.p = n.works(redistest.Start(n.t))
			id := n.put("hold", "--serial", "acme")
			<-n.p.started
			behind := n.put("", "--serial", "acme")
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p.stop() // it gives the job back
			n.p = n.works(redistest.Start(n.t))
			n.passes()
			redistest.Eventually(n.t, func() bool {
				return strings.Contains(n.ok("job", "show", "mail", id), "its group is paused")
			}, "the job that was given back waits")
			close(n.p.free)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id, behind)
		},
		"a retry of a paused tenant by hand": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			id := n.put("", "--group", "acme", "--after", "20d")
			n.rests("its group is paused", id)
			n.ok("job", "retry", "mail", id)
			n.passes()
			n.rests("its group is paused", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id)
		},
		"a job of a paused tenant goes to another tenant's queue": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			id := n.put("", "--group", "acme")
			n.ok("enqueue", "email.welcome", `{}`, "-q", "rescue", "--id", "x")
			n.ok("job", "mv", "mail", id, "--to", "rescue")
			if out := n.ok("job", "show", "rescue", id); strings.Contains(out, "paused") {
				n.t.Error(out)
			}
		},
		"a paused job is cancelled": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			id, next := n.put("", "--serial", "acme"), n.put("", "--serial", "acme")
			n.passes()
			n.ok("job", "cancel", "mail", id)
			n.rests("cancelled", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(next)
		},
		"a hold and a pause of one tenant": func(n *night) {
			n.ok("queue", "hold", "mail", "--group", "acme", "--for", "1h")
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			id := n.put("", "--group", "acme")
			n.passes()
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.passes()
			n.rests("its group is held back", id)
			n.ok("queue", "hold", "mail", "--group", "acme", "--lift")
			n.gone(id)
		},
		"the queue is held back, and its list says so": func(n *night) {
			n.ok("queue", "hold", "mail", "--for", "1h")
			n.p = n.works(redistest.Start(n.t))
			id := n.put("")
			n.rests("the queue is held back", id)
			if out := n.ok("queue", "ls", "mail"); !strings.Contains(out, "held") {
				n.t.Error(out)
			}
			n.ok("queue", "hold", "mail", "--lift")
			n.gone(id)
			if out := n.ok("queue", "ls", "mail"); !strings.Contains(out, "active") {
				n.t.Error(out)
			}
		},
		"the queue is paused over a pause of a tenant": func(n *night) {
			n.ok("queue", "pause", "mail")
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			plain, id := n.put(""), n.put("", "--group", "acme")
			n.rests("the queue is paused", plain, id)
			n.ok("queue", "resume", "mail")
			n.gone(plain)
			n.rests("its group is paused", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id)
		},
		"a limit that is used up, and a larger one": func(n *night) {
			n.ok("queue", "limit", "mail", "--running", "1")
			n.p = n.works(redistest.Start(n.t))
			running := n.put("hold")
			<-n.p.started
			id := n.put("")
			n.rests("limit of 1 running job", id)
			if out := n.ok("queue", "ls", "mail"); !strings.Contains(out, "limited") {
				n.t.Error(out)
			}
			n.ok("queue", "limit", "mail", "--running", "2")
			n.gone(id)
			close(n.p.free)
			n.gone(running)
		},
		"a misspelt tenant": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acmee")
			n.p = n.works(redistest.Start(n.t))
			n.gone(n.put("", "--group", "acme"))
			if out := n.ok("queue", "hold", "mail"); !strings.Contains(out, "group acmee") {
				n.t.Error(out)
			}
			n.ok("queue", "resume", "mail", "--group", "acmee")
		},
		"the doctor and a pause": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			id := n.put("", "--group", "acme")
			n.passes()
			n.ok("doctor", "mail", "--repair", "--yes")
			n.passes()
			n.rests("its group is paused", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id)
		},
		"a copy of the queue keeps its tenants stopped": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			id := n.put("", "--group", "acme")
			n.in = n.ok("export", "mail")
			n.ok("import", "copy", "--settings")
			if out := n.ok("queue", "hold", "copy"); !strings.Contains(out, "group acme") {
				n.t.Error(out)
			}
			if out := n.ok("job", "show", "copy", id); !strings.Contains(out, "its group is paused") {
				n.t.Error(out)
			}
		},
		"a queue that is full takes no more, and says so": func(n *night) {
			n.ok("queue", "limit", "mail", "--length", "2")
			id := n.put("")
			if _, errs, code := n.run("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "more"); code == 0 || !strings.Contains(errs, "full") {
				n.t.Errorf("%d, %s", code, errs)
			}
			n.p = n.works(redistest.Start(n.t))
			n.gone(id)
			n.gone(n.put(""))
		},
		"a worker that is quiet": func(n *night) {
			n.p = n.works(redistest.Start(n.t))
			n.passes()
			var got struct{ Queues []queueJSON }
			n.into(&got, "queue", "ls", "mail")
			n.ok("worker", "quiet", got.Queues[0].Workers[0])
			id := n.put("")
			n.rests("all workers of the queue are quiet", id)
			n.ok("worker", "unquiet", got.Queues[0].Workers[0])
			n.gone(id)
		},
		"a job that runs is cancelled": func(n *night) {
			n.p = n.works(redistest.Start(n.t))
			id := n.put("hold", "--serial", "acme")
			<-n.p.started
			next := n.put("", "--serial", "acme")
			n.ok("job", "cancel", "mail", id)
			n.gone(next)
			n.rests("cancelled", id)
		},
		"a job that died runs again": func(n *night) {
			n.p = n.works(redistest.Start(n.t))
			id := n.put("die", "--group", "acme", "--max-attempts", "1")
			redistest.Eventually(n.t, func() bool { return strings.Contains(n.ok("job", "show", "mail", id), "dead") }, "it dies")
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.ok("job", "edit", "mail", id, "--args", `{}`, "--run")
			n.passes()
			n.rests("its group is paused", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id)
		},
		"what waits in a paused tenant is deleted": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			id := n.put("", "--group", "acme")
			n.ok("job", "rm", "mail", id, "--yes")
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.p = n.works(redistest.Start(n.t))
			n.gone(n.put("", "--group", "acme"))
		},
		"a tenant that isn't paused is resumed": func(n *night) {
			if out := n.ok("queue", "resume", "mail", "--group", "acme"); !strings.Contains(out, "was not paused") {
				n.t.Error(out)
			}
			n.p = n.works(redistest.Start(n.t))
			n.gone(n.put("", "--group", "acme"))
		},
	})
}

// atNight runs scenes side by side. Afterwards the doctor finds nothing.
func atNight(t *testing.T, scenes map[string]func(n *night)) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNight(t)
			scene(n)
			for _, line := range strings.Split(n.ok("doctor", "mail"), "\n") {
				if strings.Contains(line, "wrong_") {
					t.Errorf("the doctor finds: %s", line)
				}
			}
		})
	}
}
