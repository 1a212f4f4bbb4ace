package etcdlock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// What breaks both the lock and its tokens: an etcd that comes back with an old copy of its data, or without any. A
// second holder gets in, with a smaller token.
func TestDataIsLost(t *testing.T) {
	t.Parallel()
	server, key := servertest.Etcd(t, 1)[0], newKey()
	data, saved := filepath.Join(server.Dir(), "data"), filepath.Join(t.TempDir(), "saved")
	restart := func(change func() error) {
		t.Helper()
		server.Kill()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	busy := lockerOn(t, 5*time.Minute, server.Addr())
	release(t, acquire(t, busy, key))
	restart(func() error { return os.CopyFS(saved, os.DirFS(data)) })
	for range 10 { // more revisions than those of the clients that come later
		release(t, acquire(t, busy, key))
	}
	for _, c := range []struct {
		name    string
		restore func() error
	}{
		{"an old copy", func() error {
			if err := os.CopyFS(data, os.DirFS(saved)); err != nil {
				return err
			}
			return chmodAll(data)
		}},
		{"no data", func() error { return nil }},
	} {
		first := acquire(t, lockerOn(t, 5*time.Minute, server.Addr()), key)
		restart(func() error {
			if err := os.RemoveAll(data); err != nil {
				return err
			}
			return c.restore()
		})
		second := acquire(t, lockerOn(t, 5*time.Minute, server.Addr()), key)
		if err := first.Context().Err(); err != nil {
			t.Fatalf("%s: the first holder's lease has ended: %v; is the machine too slow?", c.name, err)
		}
		if second.Token() >= first.Token() {
			t.Errorf("%s: token %d after %d: the documentation says that tokens go back", c.name, second.Token(), first.Token())
		}
		release(t, second)
	}
}
