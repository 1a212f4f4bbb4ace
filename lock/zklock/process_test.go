package zklock

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// A holder that is killed keeps the lock for its TTL. The waiter gets it by its own clock, though the session lasts longer.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	key, l := newKey(), locker(t, Config{})
	c := startChild(t, server(t), key)
	c.says(t, "asks")
	token, err := strconv.ParseInt(c.says(t, "holds"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	heir := acquiring(t.Context(), l, key)
	eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, l, key).queue) == 1 })
	c.kill()
	killed := time.Now()
	r := <-heir
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.lock.Token() <= token {
		t.Errorf("token %d after %d", r.lock.Token(), token)
	}
	if took := r.at.Sub(killed); took < 500*time.Millisecond || took > 3*time.Second {
		t.Errorf("the waiter got the lock %v after the holder was killed; the TTL is 1 s", took)
	}
	release(t, r.lock)
}

// A holder that is stopped finds its lease over when it goes on, before it does anything else.
func TestHolderStopped(t *testing.T) {
	t.Parallel()
	key, l := newKey(), locker(t, Config{})
	c := startChild(t, server(t), key)
	c.says(t, "asks")
	c.says(t, "holds")
	heir := acquiring(t.Context(), l, key)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r := <-heir
	if r.err != nil {
		t.Fatal(r.err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if rest := c.says(t, "lost"); !strings.Contains(rest, lock.ErrLost.Error()) {
		t.Errorf("the lock that was stopped ended with %q", rest)
	}
	if rest := c.says(t, "extend"); !strings.Contains(rest, lock.ErrLost.Error()) {
		t.Errorf("Extend after the pause: %q", rest)
	}
	if rest := c.says(t, "release"); !strings.Contains(rest, lock.ErrTaken.Error()) {
		t.Errorf("Release after the pause: %q", rest)
	}
	if err := r.lock.Extend(t.Context()); err != nil {
		t.Errorf("Extend of the heir: %v", err)
	}
	release(t, r.lock)
}

// TryAcquire, which doesn't wait for a TTL, gets a dead holder's lock when its session has ended and its lease is old.
func TestTryAcquireTakesOrphans(t *testing.T) {
	t.Parallel()
	key, l := newKey(), locker(t, Config{})
	l.orphanAge = 3 * time.Second
	c := startChild(t, server(t), key)
	c.says(t, "asks")
	c.says(t, "holds")
	c.kill()
	killed := time.Now()
	var k lock.Lock
	eventually(t, "an orphan is taken", func() bool {
		var err error
		k, err = l.TryAcquire(t.Context(), key)
		return err == nil
	})
	if took := time.Since(killed); took < 4*time.Second {
		t.Errorf("an orphan was taken after %v; want its age of 5 s", took)
	}
	release(t, k)
	eventually(t, "nothing is left", func() bool { v := seen(t, l, key); return v.lease == "" && len(v.queue) == 0 })
}

// A waiter that is killed keeps its place until its session ends, and no longer.
func TestWaiterKilled(t *testing.T) {
	t.Parallel()
	key, l := newKey(), locker(t, Config{})
	holder := acquire(t, l, key)
	c := startChild(t, server(t), key)
	c.says(t, "asks")
	eventually(t, "the child stands in the queue", func() bool { return len(seen(t, l, key).queue) == 1 })
	behind := acquiring(t.Context(), l, key)
	eventually(t, "another stands behind it", func() bool { return len(seen(t, l, key).queue) == 2 })
	c.kill()
	release(t, holder)
	r := <-behind
	if r.err != nil {
		t.Fatal(r.err)
	}
	release(t, r.lock)
}
