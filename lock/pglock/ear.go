package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// earLinger is how long the ear goes on listening after the last waiter has left.
	earLinger = time.Second
	// earCheck is how often the ear checks a connection on which nothing comes.
	earCheck = 10 * time.Second
	// earTest bounds how long the ear's own notification may take.
	earTest = 3 * time.Second
	// earRetry is the pause after a failure. It doubles with each failure, up to earRest.
	earRetry = 200 * time.Millisecond
	earRest  = 10 * time.Second
)

// An ear receives the notifications that locks were released. It has one connection of its own, and only while somebody
// waits. Its goroutine ends soon after the last waiter has left.
type ear struct {
	locker *Locker
	config *pgx.ConnConfig // nil: as the pool
	check  time.Duration   // earCheck

	mu     sync.Mutex
	users  int
	idle   *time.Timer
	stop   context.CancelFunc // ends the goroutine; nil: there is none
	opened bool               // notifications come
}

// enter counts a waiter, and begins to listen with the first.
func (e *ear) enter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users++
	if e.idle != nil {
		e.idle.Stop()
	}
	if e.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		e.stop = stop
		go e.listen(ctx)
	}
}

// leave counts a waiter off. The connection ends a moment after the last one has left, since the next often comes soon.
func (e *ear) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	if e.users > 0 {
		return
	}
	if e.idle == nil {
		e.idle = time.AfterFunc(earLinger, e.close)
	} else {
		e.idle.Reset(earLinger)
	}
}

func (e *ear) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users == 0 && e.stop != nil {
		e.stop()
		e.stop, e.opened = nil, false
	}
}

// listens reports whether notifications come.
func (e *ear) listens() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened
}

// set does nothing once ctx has ended: another goroutine may be listening by then.
func (e *ear) set(ctx context.Context, opened bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() == nil {
		e.opened = opened
	}
}

// listen runs until ctx ends. While it can't listen, waiters look now and then.
func (e *ear) listen(ctx context.Context) {
	pause := earRetry
	for ctx.Err() == nil {
		if e.session(ctx) {
			pause = earRetry
		}
		e.set(ctx, false)
		e.locker.lookAll() // notifications may have been missed
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, earRest)
	}
}

// session listens on one connection until that breaks. It reports whether notifications came.
func (e *ear) session(ctx context.Context) (worked bool) {
	p := e.locker
	pool := p.pool.Config()
	config := e.config
	if config == nil {
		config = pool.ConnConfig
	}
	config = config.Copy()
	if e.config == nil && pool.BeforeConnect != nil && pool.BeforeConnect(ctx, config) != nil {
		return false
	}
	config.OnNotification = nil // the pool's would get them instead of the ear
	dial, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(dial, config)
	if err != nil {
		return false
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(dial, "LISTEN "+pgx.Identifier{p.channel}.Sanitize()); err != nil {
		return false
	}
	// Through a transaction pooler LISTEN succeeds, and nothing comes. So the ear notifies itself.
	test := "test " + rand.Text()
	if _, err := p.pool.Exec(dial, "SELECT pg_notify($1::text, $2::text)", p.channel, test); err != nil {
		return false
	}
	wait := earTest
	for {
		heard, cancel := context.WithTimeout(ctx, wait)
		n, err := conn.WaitForNotification(heard)
		cancel()
		switch {
		case err == nil && n.Payload == test:
			worked, wait = true, e.check
			e.set(ctx, true)
			p.lookAll() // they find what a missed notification would have said, and ask to be notified
		case err == nil:
			p.heard(n.Payload)
		case worked && ctx.Err() == nil && (pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded)) && e.alive(ctx, conn):
		default:
			return worked
		}
	}
}

// alive reports whether the connection still answers.
func (e *ear) alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return conn.Ping(ctx) == nil
}
