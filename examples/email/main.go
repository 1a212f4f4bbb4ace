// Command email sends mails by jobs, through a provider that has a limit and refuses some addresses.
//
//	go run ./examples/email
//
// mail.go is the application. provider.go stands in for the provider, and counts what arrives. This file signs people up, and does what an operator does
// with the jobs that died. README.md leads through it. With REDIS_URL it uses a real Redis, with a namespace of its own, which it deletes at the end. The
// flag -v shows the logs of the worker.
//
// The exit status is 0 only if each mail was sent once, and no request came before the time that the provider had said.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
)

const (
	people  = 24
	typo    = "mistyped@nowhere.example" // the provider knows no such domain: 422
	blocked = "blocked@work.example"     // on the provider's list of people who want no mail, by mistake: 403
)

// A result says what became of the mails.
type result struct {
	people, leftOut, sent, twice, busy, early int
	dead, retried, deleted                    int64
}

func (r result) String() string {
	return fmt.Sprintf("email: people=%d left_out=%d sent=%d twice=%d busy=%d early=%d dead=%d retried=%d deleted=%d",
		r.people, r.leftOut, r.sent, r.twice, r.busy, r.early, r.dead, r.retried, r.deleted)
}

func (r result) Problem() error {
	if r.leftOut != r.people || r.sent != r.people-1 || r.twice > 0 || r.busy == 0 || r.early > 0 || r.dead != 2 || r.retried != 1 || r.deleted != 1 {
		return errors.New("want each sign-up left out once, a mail to all but one address, no two to any, the provider busy at times, and none asked early; two dead jobs, one retried and one deleted")
	}
	return nil
}

// run signs people up while a worker sends their mails, then looks after the dead jobs.
func run(ctx context.Context, out io.Writer, db *stage.Redis) (r result, err error) {
	s, err := scheduler.New(db.Client, scheduler.Config{Namespace: db.Namespace})
	if err != nil {
		return r, err
	}
	i, err := inspect.New(db.Client, inspect.Config{Namespace: db.Namespace})
	if err != nil {
		return r, err
	}
	p := newProvider(map[string]int{typo: http.StatusUnprocessableEntity, blocked: http.StatusForbidden})
	defer p.Close()

	// Everybody clicks twice.
	addresses := []string{typo, blocked}
	for n := len(addresses); n < people; n++ {
		addresses = append(addresses, fmt.Sprintf("person%d@home.example", n))
	}
	for range 2 {
		for _, address := range addresses {
			isNew, err := signUp(ctx, s, address)
			if err != nil {
				return r, err
			}
			if isNew {
				r.people++
			} else {
				r.leftOut++
			}
		}
	}
	fmt.Fprintf(out, "%d people have signed up, each with two clicks: %d jobs, %d left out\n", len(addresses), r.people, r.leftOut)

	end := stage.Beside(ctx, func(ctx context.Context) error {
		return work(ctx, db.Client, db.Namespace, &mailer{url: p.URL, http: p.Client()})
	})
	defer func() { err = errors.Join(err, end()) }()
	if err := idle(ctx, i); err != nil {
		return r, err
	}

	// What died, and why? The one is a mistake of the provider, which mends it. The other one is a mistake of the user.
	dead, err := i.DeadByError(ctx, signalbox.DefaultQueue)
	if err != nil {
		return r, err
	}
	r.dead = dead.Dead
	for _, g := range dead.Groups {
		fmt.Fprintf(out, "dead: %d %s, %q\n", g.Count, g.Kind, g.Error)
	}
	p.forgive(blocked)
	forbidden := inspect.Filter{State: signalbox.StateDead, Error: "403"}
	done, err := i.DoAll(ctx, signalbox.DefaultQueue, forbidden, inspect.Retry{}, inspect.Bulk{})
	if err != nil {
		return r, err
	}
	r.retried = done.Done
	if err := idle(ctx, i); err != nil {
		return r, err
	}
	done, err = i.DoAll(ctx, signalbox.DefaultQueue, inspect.Filter{State: signalbox.StateDead}, inspect.Delete{}, inspect.Bulk{})
	if err != nil {
		return r, err
	}
	r.deleted = done.Done
	fmt.Fprintf(out, "the provider has taken %s off its list: %d retried, and %d deleted\n", blocked, r.retried, r.deleted)
	r.sent, r.twice, r.busy, r.early = p.counts()
	return r, nil
}

// idle waits until no job waits or runs.
func idle(ctx context.Context, i *inspect.Inspector) error {
	return stage.Until(ctx, func() (bool, error) {
		q, err := i.Queue(ctx, signalbox.DefaultQueue)
		return q.Ready+q.Scheduled+q.Running == 0, err
	})
}

func main() { stage.Main("email", run) }
