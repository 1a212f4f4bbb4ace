package pglock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// withSetting makes each session of a pool begin with a setting.
func withSetting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// block locks a row until the function that it returns is called.
func block(t testing.TB, pool *pgxpool.Pool, key string) (unblock func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT FROM signalbox_lock WHERE key = $1 FOR UPDATE", []byte(key))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
	}
}

// longTTL is longer than any test runs: what is free earlier was given back.
const longTTL = time.Hour

// A release that failed is repeated in the background: the lock is free soon after the fault, not at the end of its TTL.
func TestReleaseIsRepeated(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	b := locker(t, direct, pglock.Config{TTL: longTTL})
	link := servertest.NewLink(t, serverOf(t))
	for name, c := range map[string]struct {
		pool  *pgxpool.Pool
		fault func(key string) (heal func())
	}{
		"the network is away": {dial(t, url(link)), func(string) func() { link.Cut(); return link.Heal }},
		"lock_timeout": {dial(t, sharedURL(t), withSetting("lock_timeout", "50")), func(key string) func() {
			return block(t, direct, key)
		}},
		"statement_timeout": {dial(t, sharedURL(t), withSetting("statement_timeout", "50")), func(key string) func() {
			return block(t, direct, key)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			key := "repeated " + name
			for _, again := range []bool{false, true} {
				a := locker(t, c.pool, pglock.Config{TTL: longTTL})
				l := acquire(t, a, key)
				heal := c.fault(key)
				began := time.Now()
				if err := l.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
					t.Errorf("released during the fault: %v", err)
				}
				if took := time.Since(began); took > patience/2 {
					t.Errorf("it took %v", took)
				}
				if again { // it fails, too, and makes no second goroutine
					if err := l.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
						t.Errorf("released once more during the fault: %v", err)
					}
					if n := pglock.Repeats(a); n != 1 {
						t.Errorf("%d goroutines repeat the release, want 1", n)
					}
				}
				heal()
				heir := acquire(t, b, key)
				// Whoever asks again learns that it was freed, though another has it.
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("released after it was freed in the background: %v", err)
				}
				if err := errors.Join(heir.Extend(t.Context()), heir.Release(t.Context())); err != nil {
					t.Errorf("the heir: %v", err)
				}
			}
		})
	}
}

// What repeats a release ends when its lock must have ended by itself, and soon after the pool is closed, though PostgreSQL stays away.
func TestRepeatsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl   time.Duration
		close bool
	}{"the lock has ended": {100 * time.Millisecond, false}, "the pool is closed": {longTTL, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := servertest.NewLink(t, serverOf(t))
			pool := dial(t, url(link))
			a := locker(t, pool, pglock.Config{TTL: c.ttl})
			l := acquire(t, a, "repeats end: "+name)
			link.Cut()
			if err := l.Release(t.Context()); err == nil {
				t.Error("released without PostgreSQL")
			}
			if n := pglock.Repeats(a); n != 1 {
				t.Fatalf("%d goroutines repeat the release, want 1", n)
			}
			if c.close {
				pool.Close()
			}
			eventually(t, "none repeats the release", func() bool { return pglock.Repeats(a) == 0 })
		})
	}
}

// A lock that was granted to a caller who had left is given back, also if that fails at first.
func TestUndoIsRepeated(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, dial(t, url(link), withSetting("lock_timeout", "50")), pglock.Config{TTL: longTTL})
	warm(t, a)
	const key = "undone at last"
	link.HoldReplies()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() {
		_, err := a.TryAcquire(ctx, key)
		left <- err
	}()
	eventually(t, "the server has granted the lock", func() bool {
		_, until, ok := state(t, direct, key)
		return ok && time.Until(until) > 0
	})
	unblock := block(t, direct, key)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("TryAcquire: %v", err)
	}
	link.Heal() // the grant is heard of, and can't be given back yet
	refused := func() (n int64) {
		_ = direct.QueryRow(t.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
		return n
	}
	before := refused()
	eventually(t, "giving it back was refused", func() bool { return refused() > before })
	unblock()
	if err := acquire(t, locker(t, direct, pglock.Config{}), key).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// An acquire whose replies are all lost fails, and what it may have taken is given back.
func TestAcquireFailsUnsure(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, dial(t, url(link)), pglock.Config{TTL: longTTL})
	warm(t, a)
	const key = "unsure"
	link.HoldReplies()
	failed := make(chan error, 1)
	go func() {
		_, err := a.TryAcquire(t.Context(), key)
		failed <- err
	}()
	eventually(t, "the server has granted the lock", func() bool {
		_, until, ok := state(t, direct, key)
		return ok && time.Until(until) > 0
	})
	link.Cut() // the reply is lost, and the second try can't be sent
	if err := <-failed; err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrLost) {
		t.Errorf("TryAcquire: %v", err)
	}
	link.Heal()
	if err := acquire(t, locker(t, direct, pglock.Config{}), key).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A releases counts the releases that were answered.
type releases struct{ answered atomic.Int64 }

type isRelease struct{}

func (*releases) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	_, _, sql := pglock.Statements()
	return context.WithValue(ctx, isRelease{}, d.SQL == sql)
}

func (r *releases) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if d.Err == nil && ctx.Value(isRelease{}) == true {
		r.answered.Add(1)
	}
}

// A server may run an acquire long after its connection broke: it had waited for a row. Nobody wants that lock any more,
// and it is given back.
func TestLateAcquireIsUndone(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	var looks releases
	a := locker(t, dial(t, url(link), func(c *pgxpool.Config) { c.ConnConfig.Tracer = &looks }), pglock.Config{TTL: longTTL})
	b := locker(t, direct, pglock.Config{TTL: time.Minute})
	warm(t, a)
	looked := looks.answered.Load()
	const key = "late"
	if err := acquire(t, b, key).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	unblock := block(t, direct, key)
	failed := make(chan error, 1)
	go func() {
		_, err := a.TryAcquire(t.Context(), key)
		failed <- err
	}()
	eventually(t, "the acquire waits for the row", func() bool {
		var n int
		err := direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO \"signalbox_lock\" %' AND pid <> pg_backend_pid()").Scan(&n)
		return err == nil && n > 0
	})
	link.Cut()
	if err := <-failed; err == nil || errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire: %v", err)
	}
	link.Heal()
	eventually(t, "the undo has looked, too early", func() bool { return looks.answered.Load() > looked })
	sees := dial(t, sharedURL(t))
	token, _, _ := state(t, sees, key)
	unblock()
	eventually(t, "the late acquire took the lock", func() bool {
		now, _, _ := state(t, sees, key)
		return now > token
	})
	if err := acquire(t, b, key).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A waiter that leaves while PostgreSQL is silent says nothing about PostgreSQL: the others wait on.
func TestLeaverFailsNobody(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, direct, pglock.Config{TTL: longTTL})
	b := locker(t, dial(t, url(link)), pglock.Config{TTL: longTTL})
	warm(t, b)
	const key = "leaver"
	l := acquire(t, a, key)
	link.HoldReplies()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left, stays := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, key)
		left <- err
	}()
	eventually(t, "the first waits", func() bool { return pglock.Waiting(b, key) == 1 })
	go func() {
		heir, err := b.Acquire(t.Context(), key)
		if err == nil {
			err = heir.Release(context.Background())
		}
		stays <- err
	}()
	eventually(t, "the second waits", func() bool { return pglock.Waiting(b, key) == 2 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that left: %v", err)
	}
	link.Heal()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-stays; err != nil {
		t.Errorf("the one that stays: %v", err)
	}
}
