package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// perSecond is how many mails the provider takes in a second.
const perSecond = 10

// pause is what the provider says in Retry-After.
const pause = time.Second

// A provider stands in for one that sends mails. It counts by itself what it is asked for.
type provider struct {
	*httptest.Server

	mu      sync.Mutex
	refuses map[string]int       // addresses, and the status they get
	window  time.Time            // when the second began that it counts in
	taken   int                  // mails in it
	again   map[string]time.Time // by key: not before
	sent    map[string]string    // by key: the address
	to      map[string]int       // by address: mails
	busy    int                  // requests that it had no room for
	early   int                  // requests that came before the time that it said
}

func newProvider(refuses map[string]int) *provider {
	p := &provider{refuses: refuses, again: map[string]time.Time{}, sent: map[string]string{}, to: map[string]int{}}
	p.Server = httptest.NewServer(p)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var mail struct {
		To string `json:"to"`
	}
	if err := json.NewDecoder(r.Body).Decode(&mail); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.again[key]) {
		p.early++
	}
	if p.sent[key] != "" {
		return // it has sent this one
	}
	if status := p.refuses[mail.To]; status != 0 {
		w.WriteHeader(status)
		return
	}
	if now.Sub(p.window) >= pause {
		p.window, p.taken = now, 0
	}
	if p.taken == perSecond {
		p.busy++
		p.again[key] = now.Add(pause - 20*time.Millisecond) // the clocks of two processes
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.taken++
	p.sent[key] = mail.To
	p.to[mail.To]++
}

// forgive has the provider take mails to an address.
func (p *provider) forgive(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refuses, address)
}

// counts returns how many mails were sent, how many addresses got more than one, and how many requests were refused, and came too early.
func (p *provider) counts() (sent, twice, busy, early int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.to {
		if n > 1 {
			twice++
		}
	}
	return len(p.sent), twice, p.busy, p.early
}
