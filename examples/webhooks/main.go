// Command webhooks delivers events to customers: in order, each customer at a rate of its own, and not to one that is paused.
//
//	go run ./examples/webhooks
//
// hooks.go is the application. customers.go stands in for the servers of the customers, and counts what arrives. This file publishes events and pauses a
// customer. README.md leads through it. With REDIS_URL it uses a real Redis, with a namespace of its own, which it deletes at the end. The flag -v shows the
// logs of the worker.
//
// The exit status is 0 only if each event arrived, in order, within the rate, and none while its customer was paused.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
)

const (
	each = 30      // events of a customer
	away = "birch" // its server refuses the first requests
	hush = "cedar" // it asks for a pause
)

var names = []string{"alder", away, hush, "doum", "elm"}

// A result says what became of the events.
type result struct {
	customers, delivered, refused, orderBroken, overRate, whilePaused, forged int
}

func (r result) String() string {
	return fmt.Sprintf("webhooks: customers=%d delivered=%d refused=%d order_broken=%d over_rate=%d while_paused=%d forged=%d",
		r.customers, r.delivered, r.refused, r.orderBroken, r.overRate, r.whilePaused, r.forged)
}

func (r result) Problem() error {
	if r.delivered != len(names)*each || r.refused == 0 || r.orderBroken+r.overRate+r.whilePaused+r.forged > 0 {
		return errors.New("want each event delivered, some refused at first, and none out of order, above the rate, during a pause or with a wrong signature")
	}
	return nil
}

// run publishes events while a worker delivers them, and pauses one customer.
func run(ctx context.Context, out io.Writer, db *stage.Redis) (r result, err error) {
	s, err := scheduler.New(db.Client, scheduler.Config{Namespace: db.Namespace})
	if err != nil {
		return r, err
	}
	i, err := inspect.New(db.Client, inspect.Config{Namespace: db.Namespace})
	if err != nil {
		return r, err
	}
	c := newCustomers([]byte("a secret that the customers know"), map[string]int{away: 3}, names...)
	defer c.Close()
	end := stage.Beside(ctx, func(ctx context.Context) error {
		return work(ctx, db.Client, db.Namespace, &courier{http: c.Client(), secret: c.secret})
	})
	defer func() { err = errors.Join(err, end()) }()

	var events []Event
	for n := range each {
		for _, name := range names {
			events = append(events, Event{Customer: name, URL: c.URL, Number: n + 1})
		}
	}
	if err := publish(ctx, s, events); err != nil {
		return r, err
	}
	fmt.Fprintf(out, "%d events for %d customers, at most %d a second for each; the server of %s is away at first\n", len(events), len(names), rate, away)

	// In the middle of its events a customer asks for a pause. What runs at that moment still arrives.
	if err := stage.Until(ctx, func() (bool, error) { return c.taken(hush) >= each/3, nil }); err != nil {
		return r, err
	}
	if _, err := i.PauseGroup(ctx, signalbox.DefaultQueue, hush); err != nil {
		return r, err
	}
	if err := stage.Until(ctx, func() (bool, error) { return noneRuns(ctx, i, hush) }); err != nil {
		return r, err
	}
	c.pause(hush, true)
	fmt.Fprintf(out, "%s is paused, with %d events left\n", hush, each-c.taken(hush))
	err = stage.Until(ctx, func() (bool, error) {
		for _, name := range names {
			if name != hush && c.taken(name) < each {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return r, err
	}
	fmt.Fprintf(out, "the others have all of theirs, and %s still lacks %d\n", hush, each-c.taken(hush))

	c.pause(hush, false)
	if _, err := i.ResumeGroup(ctx, signalbox.DefaultQueue, hush); err != nil {
		return r, err
	}
	if err := stage.Until(ctx, func() (bool, error) { return c.taken(hush) == each, nil }); err != nil {
		return r, err
	}
	return c.sum(), nil
}

// noneRuns reports whether no job of a group runs.
func noneRuns(ctx context.Context, i *inspect.Inspector, group string) (bool, error) {
	for _, err := range i.Jobs(ctx, signalbox.DefaultQueue, inspect.Filter{State: signalbox.StateRunning, Group: group}) {
		return false, err
	}
	return true, nil
}

func main() { stage.Main("webhooks", run) }
