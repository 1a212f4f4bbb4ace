package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/signalbox-go/signalbox"
)

// An event is a worker's report about a job: a line of JSON on its standard output.
type event struct {
	What    string `json:"what"` // started, done, failed, snoozed
	Job     string `json:"job"`
	Kind    string `json:"kind"`
	Worker  string `json:"worker"`
	Attempt int    `json:"attempt"`
	Crashes int    `json:"crashes"`
	Token   int64  `json:"token"`
	Trace   string `json:"trace"` // ID of the handler's trace, or ""
}

// tell returns a middleware that reports every delivery.
func tell(out io.Writer, name string) signalbox.Middleware {
	var mu sync.Mutex
	write := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(out).Encode(e) // an error means that the parent has ended, and this process soon will
	}
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			e := event{
				What: "started", Job: job.ID, Kind: job.Kind, Worker: name,
				Attempt: job.Attempt, Crashes: job.Crashes, Token: job.Token, Trace: traceOf(ctx),
			}
			write(e)
			err := next.Handle(ctx, job)
			e.What = outcome(err)
			write(e)
			return err
		})
	}
}

// A ledger has all events, in the order in which they arrived.
type ledger struct {
	mu     sync.Mutex
	events []event
	more   chan struct{} // closed with the next event
}

func newLedger() *ledger { return &ledger{more: make(chan struct{})} }

// read adds the events of a process until its output ends.
func (l *ledger) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("a process said what is no event: %w", err)
		}
		l.mu.Lock()
		l.events = append(l.events, e)
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
	}
	return lines.Err()
}

// find returns the events that match.
func (l *ledger) find(match func(event) bool) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []event
	for _, e := range l.events {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

// await waits until n events match, and returns them.
func (l *ledger) await(ctx context.Context, n int, what string, match func(event) bool) ([]event, error) {
	for {
		l.mu.Lock()
		more := l.more
		l.mu.Unlock()
		found := l.find(match)
		if len(found) >= n {
			return found, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: waiting for %s: %d of %d", context.Cause(ctx), what, len(found), n)
		}
	}
}
