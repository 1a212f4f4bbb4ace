package main

import (
	"crypto/hmac"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// customers stand in for the servers of all customers. They count by themselves what arrives.
type customers struct {
	*httptest.Server
	secret []byte
	begin  time.Time // before any event

	mu     sync.Mutex
	all    map[string]*customer
	forged int // requests whose signature is wrong
}

// A customer has what arrived for one.
type customer struct {
	away    int    // so many requests are refused at first
	refused int    // requests that were refused
	paused  bool   // nothing should come
	tries   int    // requests
	last    int    // the number of the last event that was taken
	lastID  string // its ID

	broken, over, hushed int // requests out of order, above the rate, and during a pause
}

func newCustomers(secret []byte, away map[string]int, names ...string) *customers {
	c := &customers{secret: secret, begin: time.Now(), all: map[string]*customer{}}
	for _, name := range names {
		c.all[name] = &customer{away: away[name]}
	}
	c.Server = httptest.NewServer(c)
	return c
}

func (c *customers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var e Event
	signed := hmac.Equal([]byte(r.Header.Get("Webhook-Signature")), []byte(sign(c.secret, body)))
	if !signed || json.Unmarshal(body, &e) != nil || c.all[e.Customer] == nil {
		c.forged++
		http.Error(w, "the signature is wrong", http.StatusForbidden)
		return
	}
	if !c.all[e.Customer].take(e.Number, r.Header.Get("Webhook-Id"), time.Since(c.begin)) {
		http.Error(w, "away", http.StatusServiceUnavailable)
	}
}

// take counts a request that came at a time since the beginning, and reports whether it is not refused.
func (one *customer) take(number int, id string, at time.Duration) bool {
	one.tries++
	// The nth try may start (n-1)/rate after the first one, which is after the beginning.
	if float64(one.tries-1) > at.Seconds()*rate {
		one.over++
	}
	if one.paused {
		one.hushed++
	}
	if one.refused < one.away {
		one.refused++
		return false
	}
	switch {
	case id == one.lastID: // once more, after a crash or a lost reply
	case number == one.last+1:
		one.last, one.lastID = number, id
	default:
		one.broken++
	}
	return true
}

// pause says whether nothing should come for a customer.
func (c *customers) pause(name string, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[name].paused = paused
}

// taken returns how many events of a customer have arrived.
func (c *customers) taken(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[name].last
}

// sum adds up what all have counted.
func (c *customers) sum() (r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.customers, r.forged = len(c.all), c.forged
	for _, one := range c.all {
		r.delivered += one.last
		r.refused += one.refused
		r.orderBroken += one.broken
		r.overRate += one.over
		r.whilePaused += one.hushed
	}
	return r
}
