package web

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	formAge  = time.Hour // how long a form may be sent
	mostSent = 10_000    // forms that are remembered
)

// newOnce returns the mark of a form: random, with the time when it was made.
func newOnce(at time.Time) string { return strconv.FormatInt(at.Unix(), 36) + "-" + rand.Text() }

// A once remembers the forms that were sent in the last hour, so that none counts twice. Other processes don't know of them.
type once struct {
	mu   sync.Mutex
	sent map[string]time.Time // until when a form is remembered
}

var errAgain = &refusal{http.StatusConflict, "That was done already", "The form was sent before. Nothing was done now: look again."}

// take returns an error if the form was sent before, or is too old for that to be known.
func (o *once) take(mark string, now time.Time) error {
	text, random, ok := strings.Cut(mark, "-")
	made, err := strconv.ParseInt(text, 36, 64)
	if !ok || err != nil || len(random) < 20 || len(mark) > 100 {
		return mistake("The form has no mark: open its page again.")
	}
	at := time.Unix(made, 0)
	if now.Sub(at) > formAge || at.Sub(now) > formAge {
		return &refusal{http.StatusConflict, "The form is too old", "Nothing was done: open its page again."}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for m, until := range o.sent {
		if now.After(until) {
			delete(o.sent, m)
		}
	}
	if _, sent := o.sent[mark]; sent {
		return errAgain
	}
	if len(o.sent) >= mostSent {
		return &refusal{http.StatusTooManyRequests, "Too many actions in an hour", "Nothing was done. Use the command line."}
	}
	if o.sent == nil {
		o.sent = make(map[string]time.Time)
	}
	o.sent[mark] = at.Add(2 * formAge)
	return nil
}

// giveBack forgets a form that has done nothing.
func (o *once) giveBack(mark string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.sent, mark)
}
