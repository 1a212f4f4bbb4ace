package zklock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// What breaks both the lock and its tokens: a ZooKeeper that comes back with an old copy of its data, or without any. A
// second holder gets in, with a smaller token.
func TestDataIsLost(t *testing.T) {
	t.Parallel()
	s := servertest.ZooKeeper(t, 1)[0]
	config := Config{TTL: 5 * time.Minute, SessionTimeout: 30 * time.Second}
	data, saved, key := filepath.Join(s.Dir(), "data", "version-2"), filepath.Join(t.TempDir(), "saved"), newKey()
	release(t, acquire(t, lockerOn(t, config, s.Addr()), key))
	restart := func(change func() error) {
		t.Helper()
		s.Kill()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	restart(func() error { return os.CopyFS(saved, os.DirFS(data)) })
	busy := lockerOn(t, config, s.Addr())
	for range 20 { // more transactions than those of the clients that come later
		release(t, acquire(t, busy, key))
	}
	for _, c := range []struct {
		name    string
		restore func() error
	}{
		{"an old copy", func() error { return os.CopyFS(data, os.DirFS(saved)) }},
		{"no data", func() error { return nil }},
	} {
		first := acquire(t, lockerOn(t, config, s.Addr()), key)
		restart(func() error {
			if err := os.RemoveAll(data); err != nil {
				return err
			}
			return c.restore()
		})
		second := acquire(t, lockerOn(t, config, s.Addr()), key)
		if err := first.Context().Err(); err != nil {
			t.Fatalf("%s: the first holder's lease has ended: %v; is the machine too slow?", c.name, err)
		}
		if second.Token() >= first.Token() {
			t.Errorf("%s: token %d after %d: the documentation says that tokens go back", c.name, second.Token(), first.Token())
		}
		release(t, second)
	}
}
