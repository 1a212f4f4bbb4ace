package worker

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// Others' sessions are left alone for a renewal interval after a call has failed. However often calls fail, it is not longer while this worker's
// own lease is renewed in time: so others can renew, too. While it isn't, they are left alone, and for an interval after that.
func TestCalm(t *testing.T) {
	t.Parallel()
	const ttl, interval = 30 * time.Second, 10 * time.Second
	cut := func(call string) func(q *queue) {
		return func(q *queue) {
			q.contact.failed(call, time.Now(), errors.New("connection reset"))
			q.contact.answered(time.Now())
		}
	}
	nothing := func(*queue) {}
	served := func(q *queue) { q.contact.answered(time.Now()) }
	for name, c := range map[string]struct {
		each     func(q *queue) // happens each second
		unserved time.Duration  // from the beginning on, no renewal is answered
		lost     bool           // the lease ends meanwhile
		want     time.Duration  // when they may be taken over
	}{
		"nothing happens":              {each: nothing},
		"replies are lost":             {each: cut("claim"), want: interval},
		"replies to renewals are lost": {each: cut("renew"), want: interval},
		"calls take long":              {each: func(q *queue) { q.contact.slow(time.Now().Add(-interval), time.Now()) }, want: interval},
		"the lease is late":            {each: cut("claim"), unserved: 4 * interval, want: 5 * interval},
		"the lease is lost":            {each: served, unserved: 4 * ttl, lost: true, want: 4*ttl + interval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &Worker{cfg: Config{SessionTTL: ttl}, log: slog.New(slog.DiscardHandler)}
				w.link = newLink(w, &server.Findings{})
				q := newQueue(w, store.New(nil, "", "queue"), nil, 1, nil)
				s := &session{queue: q, renewedUntil: time.Now().Add(ttl)}
				q.keeper.claimUnder(s)
				if c.unserved > 0 {
					time.Sleep(interval) // of the bubble's clock: a renewal is due
					q.contact.failed("renew", time.Now(), errors.New("connection reset"))
				}
				begin, done := time.Now(), make(chan time.Duration, 1)
				c.each(q)
				go func() {
					q.reclaimer.calm(t.Context())
					done <- time.Since(begin)
				}()
				for time.Since(begin) < time.Hour {
					synctest.Wait()
					select {
					case got := <-done:
						if got < c.want || got > c.want+interval {
							t.Errorf("after %v, want %v to %v", got, c.want, c.want+interval)
						}
						return
					default:
					}
					time.Sleep(time.Second)
					c.each(q)
					since := time.Since(begin)
					q.mu.Lock()
					switch {
					case c.lost && since < c.unserved:
						q.keeper.claimUnder(nil)
					case since >= c.unserved && since%interval == 0:
						s.prolong(time.Now())
						q.keeper.claimUnder(s)
					}
					q.mu.Unlock()
					if since == c.unserved {
						q.contact.answered(time.Now())
					}
				}
				t.Error("they are left alone for an hour")
			})
		})
	}
}
