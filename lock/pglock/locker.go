package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// callTimeout bounds one call, so that a server that hangs holds nobody up.
const callTimeout = 5 * time.Second

// maxKey bounds the length of a key. An entry of an index of PostgreSQL has room for some 2.7 KB.
const maxKey = 1024

// A Locker is a [lock.Locker] on one PostgreSQL. It is safe for concurrent use and has nothing to close. Use one locker
// for all keys.
type Locker struct {
	pool       *pgxpool.Pool
	sql        statements
	ttl        time.Duration
	askTimeout time.Duration // of a call that asks for a lock or extends one: after the TTL its answer is worth nothing
	owner      string
	table      string
	channel    string
	metrics    *telemetry.LockMetrics
	checked    atomic.Bool // the server was found fit
	repeats    atomic.Int32
	ear        ear

	mu    sync.Mutex
	lines map[string]*line // by key, where somebody in this process waits
}

var _ lock.Locker = (*Locker)(nil)

// New returns a locker that uses the caller's pool. The pool stays the caller's to close. New makes no call to
// PostgreSQL. The error names every mistake in the arguments, and wraps [lock.ErrInvalid].
func New(pool *pgxpool.Pool, c Config) (*Locker, error) {
	c = c.withDefaults()
	err := c.check()
	if pool == nil {
		err = errors.Join(fmt.Errorf("%w: New needs a pool of connections, not nil", lock.ErrInvalid), err)
	}
	if err != nil {
		return nil, err
	}
	p := &Locker{
		pool:    pool,
		sql:     statementsFor(c.Table),
		ttl:     c.TTL.Truncate(time.Microsecond),
		owner:   c.Owner,
		table:   c.Table,
		channel: channelOf(c.Table),
		metrics: telemetry.NewLockMetrics(c.MeterProvider),
		lines:   map[string]*line{},
	}
	p.askTimeout = min(p.ttl, callTimeout)
	p.ear.locker, p.ear.check = p, earCheck
	if c.Listen != nil {
		p.ear.config = c.Listen.Copy()
	}
	return p, nil
}

// channelOf returns the channel of a table's notifications. PostgreSQL bounds its name to 63 bytes.
func channelOf(table string) string {
	const prefix = "signalbox:"
	if len(prefix)+len(table) < 64 {
		return prefix + table
	}
	return prefix + digest(table)[:32]
}

// digest stands for a key in notifications.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Acquire waits for the lock. Waiters of one process get it in the order of their coming. Among processes there is no
// order.
//
// If ctx ends first, the error wraps its cause. It also wraps [lock.ErrHeld] if the lock was seen held. A failure of
// PostgreSQL is returned at once: nobody knows how long it lasts. That error never wraps ErrHeld.
func (p *Locker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	return p.acquire(ctx, key, p.wait)
}

// TryAcquire asks once. The error wraps [lock.ErrHeld] if somebody else holds the lock.
func (p *Locker) TryAcquire(ctx context.Context, key string) (lock.Lock, error) {
	return p.acquire(ctx, key, func(ctx context.Context, l *pgLock) error {
		_, err := p.try(ctx, l, false)
		return err
	})
}

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", lock.ErrInvalid)
	case len(key) > maxKey:
		return fmt.Errorf("%w: the key has %d bytes; at most %d are allowed", lock.ErrInvalid, len(key), maxKey)
	case !utf8.ValidString(key) || strings.Contains(key, "\x00"):
		return fmt.Errorf("%w: key %.200q is not UTF-8 without zero bytes", lock.ErrInvalid, key)
	}
	return nil
}

func (p *Locker) acquire(ctx context.Context, key string, grant func(context.Context, *pgLock) error) (lock.Lock, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, p.metrics)
	l := &pgLock{Lock: held.Lock{TTL: p.ttl}, locker: p, key: key, sending: make(chan struct{}, 1)}
	// The span covers only the asking, so the lock's context has the values of the caller's ctx.
	l.Validity = lease.NewValidity(context.WithoutCancel(ctx))
	err := p.preflight(spanCtx)
	if err == nil {
		err = grant(spanCtx, l)
	}
	if l.Asked(asking, p.metrics, err); err != nil {
		return nil, l.failed("acquire", err)
	}
	return l, nil
}

// An asked is the row of acquire.sql.
type asked struct {
	Token   int64
	Granted bool
	Left    int64 // for how long it is held, µs
}

// try asks for the lock, and fills l in if it is granted. If it is held, try returns for how long at most, and ErrHeld.
// waits says that the release must notify.
func (p *Locker) try(ctx context.Context, l *pgLock, waits bool) (left time.Duration, err error) {
	value := spec.NewValue()
	args := []any{[]byte(l.key), value, p.owner, p.ttl.Microseconds(), waits}
	undo := func(a asked, err error) { p.undo(l.key, value, a, err) }
	for {
		start := lease.Now()
		a, err := call[asked](ctx, p, p.askTimeout, p.sql.acquire, args, undo)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // its row was created at this moment
			if ctx.Err() == nil {
				continue
			}
			return 0, lease.Ended(ctx)
		case err != nil:
			return 0, err
		case !a.Granted:
			return time.Duration(a.Left) * time.Microsecond, lock.ErrHeld
		}
		return 0, l.granted(ctx, start, value, a.Token)
	}
}

// undoAgain is when undo looks once more: by then no call still runs.
const undoAgain = callTimeout + time.Second

// undo gives up what a call may have taken for nobody: its answer came too late, or never. After a broken connection
// nobody knows whether the server ran the statement, or still will. So undo looks again later.
func (p *Locker) undo(key, value string, a asked, err error) {
	if err == nil && !a.Granted || errors.Is(err, pgx.ErrNoRows) || isAnswer(err) {
		return
	}
	if err != nil {
		time.AfterFunc(undoAgain, func() { _ = p.giveBackAtLast(context.Background(), key, value) })
	}
	_ = p.giveBackAtLast(context.Background(), key, value)
}

// A freed is the row of release.sql.
type freed struct {
	Freed bool
	Same  bool
	Told  int64
}

// giveBack releases the lock of a key if it has this value. The error is a loss if it had not, even if an earlier try
// released it.
func (p *Locker) giveBack(ctx context.Context, key, value string, timeout time.Duration) answer[freed] {
	a := ask[freed](context.WithoutCancel(ctx), p, timeout, p.sql.release, []any{[]byte(key), value, p.channel, digest(key)}, nil)
	switch {
	case a.err != nil, a.row.Freed:
	case a.row.Same:
		a.err = lock.ErrExpired
	default:
		a.err = lock.ErrTaken
	}
	return a
}

// giveBackAtLast is giveBack. If it fails, it is repeated in the background.
func (p *Locker) giveBackAtLast(ctx context.Context, key, value string) error {
	again := func() error { return p.giveBack(ctx, key, value, callTimeout).err }
	err := again()
	if unfreed(err) {
		p.repeat(again)
	}
	return err
}

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// maxRepeats is how many releases are repeated at a time. The locks of others end by themselves, after their TTL.
const maxRepeats = 1024

// repeat starts a goroutine that repeats a release. It returns false, and starts none, if the locker has maxRepeats of them.
//
// The goroutine is the locker's. It outlives the call that failed, and nobody waits for it. It ends when PostgreSQL has answered the release, when the pool is closed, or at the latest when the lock
// must have ended by itself: that is the TTL and callTimeout from now, and one pause and one call more.
func (p *Locker) repeat(release func() error) bool {
	if p.repeats.Add(1) > maxRepeats {
		p.repeats.Add(-1)
		return false
	}
	go func() {
		defer p.repeats.Add(-1)
		end := time.Now().Add(p.ttl + callTimeout)
		for pause := firstPause; time.Now().Before(end); pause = min(2*pause, longestPause) {
			<-time.After(pause/2 + rand.N(pause)) // not all locks of a process at the same time
			if !unfreed(release()) {
				return
			}
		}
	}()
	return true
}

// unfreed reports whether a release failed in a way that another try may repair.
func unfreed(err error) bool {
	return err != nil && !errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrInvalid) && !errors.Is(err, puddle.ErrClosedPool)
}
