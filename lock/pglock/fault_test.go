package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// The subtests break one server, one after the other.
func TestServerFails(t *testing.T) {
	t.Parallel()
	s := own(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *servertest.Server)
	}{
		{"KilledAndRestarted", killedAndRestarted},
		{"BrokenConnectionsCostNoFailure", brokenConnections},
		{"Stopped", serverStopped},
		{"FailureReachesAllWaiters", failureReachesAllWaiters},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

// A server that crashes and comes back has kept the locks: they still exclude others, and their holders go on.
func killedAndRestarted(t *testing.T, s *servertest.Server) {
	a := locker(t, dial(t, url(s)), pglock.Config{TTL: time.Minute})
	b := locker(t, dial(t, url(s)), pglock.Config{TTL: time.Minute})
	l := acquire(t, a, "restart")
	s.Kill()
	if _, err := b.TryAcquire(t.Context(), "restart"); err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrInvalid) {
		t.Errorf("while the server is down: %v", err)
	}
	if err := l.Extend(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
		t.Errorf("extended while the server is down: %v", err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryAcquire(t.Context(), "restart"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("after the restart: %v; want ErrHeld", err)
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extended after the restart: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("released after the restart: %v", err)
	}
	if heir := acquire(t, b, "restart"); heir.Token() <= l.Token() {
		t.Errorf("token %d after %d", heir.Token(), l.Token())
	}
}

// A pool whose connections were all broken by a restart works at once.
func brokenConnections(t *testing.T, s *servertest.Server) {
	p := locker(t, dial(t, url(s)), pglock.Config{})
	for range 3 {
		l := acquire(t, p, "broken")
		s.Kill()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("released on a broken connection: %v", err)
		}
	}
}

// A server that stands still grants nothing to others before the holder knows that its time is over.
func serverStopped(t *testing.T, s *servertest.Server) {
	a := locker(t, dial(t, url(s)), pglock.Config{TTL: 4 * time.Second})
	b := locker(t, dial(t, url(s)), pglock.Config{TTL: time.Minute})
	l := acquire(t, a, "stopped")
	err := lock.Hold(t.Context(), l, func(ctx context.Context) error {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the cause is %v; want ErrLost", cause)
		}
		if late := time.Since(l.Until()); late < 0 {
			t.Errorf("it ended %v early", -late)
		}
		return s.Cont()
	})
	if !errors.Is(err, lock.ErrLost) {
		t.Errorf("Hold = %v; want ErrLost", err)
	}
	if heir := acquire(t, b, "stopped"); heir.Token() <= l.Token() {
		t.Errorf("token %d after %d", heir.Token(), l.Token())
	}
}

// A holder that is cut off knows that it has lost the lock before another gets it, whatever it waits for.
func TestHolderCutOff(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*servertest.Link){
		"Hold": (*servertest.Link).Hold, "HoldReplies": (*servertest.Link).HoldReplies, "Cut": (*servertest.Link).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := servertest.NewLink(t, serverOf(t))
			a := locker(t, dial(t, url(link)), pglock.Config{TTL: 4 * time.Second})
			b := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute})
			key := "cut off by " + name
			l := acquire(t, a, key)
			granted := make(chan lock.Lock, 1)
			overlap := make(chan bool, 1)
			go func() {
				heir, err := b.Acquire(t.Context(), key)
				overlap <- l.Context().Err() == nil
				if err != nil {
					t.Error(err)
				}
				granted <- heir
			}()
			_ = lock.Hold(t.Context(), l, func(ctx context.Context) error {
				fault(link)
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
					t.Errorf("the cause is %v; want ErrLost", cause)
				}
				if <-overlap {
					t.Error("another got the lock while the holder believed in it")
				}
				link.Heal()
				return nil
			})
			heir := <-granted
			if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("extended after the cut: %v; want ErrLost", err)
			}
			if err := heir.Extend(t.Context()); err != nil {
				t.Errorf("the heir: %v", err)
			}
		})
	}
}

func serverOf(t testing.TB) string {
	t.Helper()
	sharedURL(t)
	return common.server.Addr()
}

// state reads a row.
func state(t testing.TB, pool *pgxpool.Pool, key string) (token int64, until time.Time, ok bool) {
	t.Helper()
	err := pool.QueryRow(context.Background(), "SELECT token, until FROM signalbox_lock WHERE key = $1", []byte(key)).Scan(&token, &until)
	return token, until, err == nil
}

// warm makes the connection of a locker prepare its statements. Otherwise the first reply that is lost is that of a
// preparation.
func warm(t testing.TB, p *pglock.Locker) {
	t.Helper()
	l := acquire(t, p, "warm up "+t.Name())
	if err := errors.Join(l.Extend(t.Context()), l.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// An acquire whose reply is lost is repeated with the same value, and has one grant. If its caller has left, the lock
// is given back.
func TestAcquireReplyLost(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, dial(t, url(link)), pglock.Config{TTL: time.Minute})
	b := locker(t, direct, pglock.Config{TTL: time.Minute})
	for _, leaves := range []bool{false, true} {
		key := "acquire's reply"
		warm(t, a)
		ctx, leave := context.WithCancel(t.Context())
		link.HoldReplies()
		type result struct {
			lock.Lock
			error
		}
		results := make(chan result, 1)
		go func() {
			l, err := a.TryAcquire(ctx, key)
			results <- result{l, err}
		}()
		var token int64
		eventually(t, "the server has granted the lock", func() bool {
			tk, until, ok := state(t, direct, key)
			token = tk
			return ok && time.Until(until) > 0
		})
		if leaves {
			leave()
			if r := <-results; r.error == nil || errors.Is(r.error, lock.ErrHeld) {
				t.Fatalf("its caller left: %v", r.error)
			}
		}
		link.Drop()
		link.Heal()
		if !leaves {
			r := <-results
			if r.error != nil {
				t.Fatal(r.error)
			}
			if r.Token() != token {
				t.Errorf("it has token %d; the row has %d", r.Token(), token)
			}
			if err := r.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := acquire(t, b, key).Release(t.Context()); err != nil { // long before the TTL is over
			t.Error(err)
		}
		leave()
	}
}

// An extension whose reply is lost is repeated, or may be tried again. The lock is not lost.
func TestExtendReplyLost(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, dial(t, url(link)), pglock.Config{TTL: time.Minute})
	const key = "extend's reply"
	l := acquire(t, a, key)
	warm(t, a)
	_, before, _ := state(t, direct, key)
	link.HoldReplies()
	extended := make(chan error, 1)
	go func() { extended <- l.Extend(t.Context()) }()
	eventually(t, "the server has extended the lock", func() bool {
		_, until, _ := state(t, direct, key)
		return until.After(before)
	})
	link.Drop()
	link.Heal()
	if err := <-extended; err != nil {
		t.Errorf("extended: %v", err)
	}

	link.HoldReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Extend(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrLost) {
		t.Errorf("extended without a reply: %v", err)
	}
	link.Heal()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("released: %v", err)
	}
}

// A release whose reply is lost is repeated, by the locker or by the caller. It says that it released the lock, though
// another has it by then. The repetition touches nobody.
func TestReleaseReplyLost(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, dial(t, url(link)), pglock.Config{TTL: time.Minute})
	b := locker(t, direct, pglock.Config{TTL: time.Minute})
	const key = "release's reply"
	for name, c := range map[string]struct{ taken, caller bool }{
		"it is free":                             {false, false},
		"another has it":                         {true, false},
		"it is free, and the caller repeats":     {false, true},
		"another has it, and the caller repeats": {true, true},
	} {
		l := acquire(t, a, key)
		warm(t, a)
		link.HoldReplies()
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		eventually(t, "the server has released the lock", func() bool {
			_, until, _ := state(t, direct, key)
			return time.Until(until) < 0
		})
		var heir lock.Lock
		if c.taken {
			heir = acquire(t, b, key)
		}
		if c.caller { // both tries of the locker fail
			link.Cut()
			if err := <-released; err == nil || errors.Is(err, lock.ErrLost) {
				t.Errorf("%s: released without a reply: %v", name, err)
			}
			link.Heal()
			released <- l.Release(t.Context())
		} else {
			link.Drop()
			link.Heal()
		}
		if err := <-released; err != nil {
			t.Errorf("%s: released: %v", name, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("%s: released once more: %v", name, err)
		}
		if c.taken {
			if err := errors.Join(heir.Extend(t.Context()), heir.Release(t.Context())); err != nil {
				t.Errorf("%s: the heir: %v", name, err)
			}
		}
	}
}

// A restart of the server breaks all idle connections of the pool, and one costs a second try. The others cost nothing more.
func TestIdleConnectionsAreBroken(t *testing.T) {
	t.Parallel()
	link := servertest.NewLink(t, serverOf(t))
	pool := dial(t, url(link))
	a := locker(t, pool, pglock.Config{TTL: time.Minute})
	broken := func() {
		var conns []*pgxpool.Conn
		for range pool.Config().MaxConns {
			c, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Release()
		}
		link.Drop()
	}
	warm(t, a)
	broken()
	l, err := a.Acquire(t.Context(), "idle")
	if err != nil {
		t.Fatalf("acquired: %v", err)
	}
	broken()
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extended: %v", err)
	}
	broken()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("released: %v", err)
	}
}

// If the TTL is over when a repeated release is answered, nobody knows whether the first one freed the lock. It says that
// another has it.
func TestReleaseReplyLostForATTL(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	a := locker(t, dial(t, url(link)), pglock.Config{TTL: time.Second})
	b := locker(t, direct, pglock.Config{TTL: time.Minute})
	const key = "release's late reply"
	warm(t, a)
	l := acquire(t, a, key)
	link.HoldReplies()
	released := make(chan error, 1)
	go func() { released <- l.Release(t.Context()) }()
	eventually(t, "the server has released the lock", func() bool {
		_, until, _ := state(t, direct, key)
		return time.Until(until) < 0
	})
	heir := acquire(t, b, key)
	<-time.After(time.Until(l.Until()))
	link.Drop()
	link.Heal()
	if err := <-released; !errors.Is(err, lock.ErrTaken) {
		t.Errorf("released: %v; want ErrTaken", err)
	}
	if err := errors.Join(heir.Extend(t.Context()), heir.Release(t.Context())); err != nil {
		t.Errorf("the heir: %v", err)
	}
}

// While no notification can come, waiters get in all the same: the connection is cut, or goes where nothing is heard,
// as through a transaction pooler.
func TestDeafWaiters(t *testing.T) {
	t.Parallel()
	base := dial(t, sharedURL(t))
	exec(t, base, "CREATE DATABASE elsewhere")
	link := servertest.NewLink(t, serverOf(t))
	through, err := pgxpool.ParseConfig(url(link))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := through.ConnConfig.Copy()
	elsewhere.Host, elsewhere.Port, elsewhere.Database = base.Config().ConnConfig.Host, base.Config().ConnConfig.Port, "elsewhere"
	a := locker(t, base, pglock.Config{TTL: time.Minute})
	cut := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute, Listen: through.ConnConfig})
	deaf := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute, Listen: elsewhere})

	for name, c := range map[string]struct {
		b     *pglock.Locker
		fault func()
	}{
		"it is cut while it listens": {cut, link.Cut},
		"it can't connect":           {cut, func() {}},
		"it connects again":          {cut, link.Heal},
		"nothing is heard":           {deaf, func() {}},
	} {
		l := acquire(t, a, "deaf "+name)
		got := make(chan error, 1)
		go func() {
			heir, err := c.b.Acquire(t.Context(), "deaf "+name)
			if err == nil {
				err = heir.Release(context.Background())
			}
			got <- err
		}()
		eventually(t, "it waits", func() bool {
			var wanted bool
			err := base.QueryRow(t.Context(), "SELECT wanted FROM signalbox_lock WHERE key = $1", []byte("deaf "+name)).Scan(&wanted)
			return err == nil && wanted
		})
		c.fault()
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the waiter isn't in after %v", name, patience)
		}
	}
}

// What a failover to an asynchronous replica breaks. The replica has not seen the last grant: it grants the lock again
// while the first holder still believes in it. The tokens then rest on the servers' clocks: they grow if the replica's
// clock isn't behind the tokens of the primary, and fall otherwise.
func TestFailoverToAnAsynchronousReplica(t *testing.T) {
	t.Parallel()
	primary := own(t)
	direct := dial(t, url(primary))
	a := locker(t, direct, pglock.Config{TTL: time.Minute})
	for _, key := range []string{"seen", "unseen", "ahead"} {
		if err := acquire(t, a, key).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := acquire(t, a, "seen")
	replica := servertest.PostgresReplica(t, primary)
	replica.Kill() // it sees nothing of what follows
	unseen := acquire(t, a, "unseen")
	exec(t, direct, "UPDATE signalbox_lock SET token = token + 3600000000 WHERE key = 'ahead'") // as after a clock that was ahead
	ahead := acquire(t, a, "ahead")
	primary.Kill()
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	c := locker(t, dial(t, url(replica)), pglock.Config{TTL: time.Minute})
	if _, err := c.TryAcquire(t.Context(), "unseen"); err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrInvalid) {
		t.Errorf("on a replica: %v; want an error that says so", err)
	}
	servertest.PromotePostgres(t, replica)

	if _, err := c.TryAcquire(t.Context(), "seen"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a lock that the replica has seen: %v; want ErrHeld", err)
	}
	if err := seen.Context().Err(); err != nil {
		t.Errorf("its holder: %v", err)
	}
	second := acquire(t, c, "unseen")
	if unseen.Context().Err() != nil {
		t.Fatal("the machine is too slow: the first holder's lease has ended")
	}
	// Two hold the lock at the same time.
	if second.Token() <= unseen.Token() {
		t.Errorf("token %d after %d, and the clock didn't go back", second.Token(), unseen.Token())
	}
	if second := acquire(t, c, "ahead"); second.Token() > ahead.Token() {
		t.Errorf("token %d is after %d: documentation says that it is not", second.Token(), ahead.Token())
	}
}

// If the server fails, all that wait in a process learn it at once, and the error isn't ErrHeld.
func failureReachesAllWaiters(t *testing.T, s *servertest.Server) {
	a := locker(t, dial(t, url(s)), pglock.Config{TTL: time.Minute})
	b := locker(t, dial(t, url(s)), pglock.Config{TTL: time.Minute})
	acquire(t, a, "failure")
	const waiters = 5
	errs := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := b.Acquire(t.Context(), "failure")
			errs <- err
		}()
	}
	eventually(t, "they wait", func() bool { return pglock.Waiting(b, "failure") == waiters })
	s.Kill()
	for range waiters {
		select {
		case err := <-errs:
			if err == nil || errors.Is(err, lock.ErrHeld) {
				t.Errorf("a waiter: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a waiter waits on")
		}
	}
}

// A release that PostgreSQL has refused, as after a failover, released nothing. If another has the lock by the next one, it was lost.
func TestReleaseRefusedAndTaken(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	pool := dial(t, sharedURL(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	a := locker(t, pool, pglock.Config{TTL: time.Minute})
	b := locker(t, direct, pglock.Config{TTL: time.Minute})
	const key = "refused release"
	run := func(p *pgxpool.Pool, query string, args ...any) {
		t.Helper()
		if _, err := p.Exec(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	l := acquire(t, a, key)
	run(pool, "SET default_transaction_read_only = on")
	if err := l.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
		t.Errorf("refused: %v", err)
	}
	run(direct, "UPDATE signalbox_lock SET until = 'epoch' WHERE key = $1", []byte(key)) // the new primary had not heard of it
	heir := acquire(t, b, key)
	run(pool, "SET default_transaction_read_only = off")
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("the repetition: %v, want %v", err, lock.ErrTaken)
	}
	if err := heir.Release(t.Context()); err != nil {
		t.Errorf("the heir: %v", err)
	}
}
