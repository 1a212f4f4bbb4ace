package pglock

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

// Waiting returns how many wait for a key in this process.
func Waiting(p *Locker, key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[key]; l != nil {
		return len(l.waiters)
	}
	return 0
}

// Statements returns the statements that acquire, extend and release a lock of the default table.
func Statements() (acquire, extend, release string) {
	s := statementsFor(DefaultTable)
	return s.acquire, s.extend, s.release
}

// Send sends one release of a lock. asked says that an earlier one may have freed it. Send also returns whether a later one has to know that.
func Send(ctx context.Context, l lock.Lock, asked bool) (again bool, err error) {
	pg := l.(*pgLock)
	pg.asked = asked
	err = pg.send(ctx)
	return pg.asked, err
}

// With returns l as another locker would have it.
func With(l lock.Lock, p *Locker) lock.Lock {
	pg := l.(*pgLock)
	return &pgLock{Lock: held.Lock{TTL: p.ttl, Validity: pg.Validity}, locker: p, key: pg.key, value: pg.value, sending: make(chan struct{}, 1)}
}

// GrantedTooLate notes a grant of l's lock that comes when its TTL is over.
func GrantedTooLate(ctx context.Context, l lock.Lock) error {
	pg := l.(*pgLock)
	pg.Validity.End(errors.New("the TTL is over"))
	return pg.granted(ctx, lease.Now(), pg.value, pg.Token())
}

// Repeats returns how many releases are repeated in the background.
func Repeats(p *Locker) int { return int(p.repeats.Load()) }

// CheckEach makes the connection that listens be checked when nothing has come for d.
func CheckEach(p *Locker, d time.Duration) { p.ear.check = d }

// Listens reports whether notifications come.
func Listens(p *Locker) bool { return p.ear.listens() }
