package zklock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock"
)

// Each mistake is named with its field, and none shows a password.
func TestConfig(t *testing.T) {
	t.Parallel()
	ok := []string{"localhost"}
	for _, c := range []struct {
		servers []string
		config  Config
		says    []string
	}{
		{ok, Config{}, nil},
		{[]string{"a:2181", "10.0.0.1", "[::1]:2181"}, Config{TTL: 10 * time.Millisecond, SessionTimeout: time.Second, Root: "/a"}, nil},
		{ok, Config{AuthScheme: "digest", Auth: []byte("user:secret")}, nil},
		{nil, Config{}, []string{"at least one server"}},
		{[]string{"a", "", "zk://u:secret@b:2181/x", "c:port", ":2181", "d:0"}, Config{}, []string{"server 2 of 6", "server 3 of 6", "server 4 of 6", "server 5 of 6", "server 6 of 6"}},
		{ok, Config{TTL: time.Millisecond, SessionTimeout: time.Millisecond, Owner: "a\n", Root: "locks"}, []string{"TTL is 1ms", "SessionTimeout is 1ms", "Owner must be", `Root is "locks"`}},
		{ok, Config{TTL: 25 * time.Hour, SessionTimeout: 2 * time.Hour, Root: "/"}, []string{"TTL is 25h", "SessionTimeout is 2h", `Root is "/"`}},
		{ok, Config{Root: "/a/../b"}, []string{"Root"}},
		{ok, Config{Root: "/a/"}, []string{"Root"}},
		{ok, Config{Root: "/a b"}, []string{"Root"}},
		{ok, Config{Root: "/zookeeper/a"}, []string{"Root"}},
		{ok, Config{Auth: []byte("user:secret")}, []string{"AuthScheme and Auth"}},
		{ok, Config{AuthScheme: "digest"}, []string{"AuthScheme and Auth"}},
		{ok, Config{ACL: []zk.ACL{}}, []string{"ACL is empty"}},
	} {
		_, err := New(c.servers, c.config)
		if errors.Is(err, lock.ErrInvalid) != (c.says != nil) {
			t.Errorf("%q, %+v: %v", c.servers, c.config, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q, %+v: %v; want %q", c.servers, c.config, err, part)
			}
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("it shows a password: %v", err)
		}
	}
}

// What ZooKeeper refuses gives an error that says what to change.
func TestRefusedByZooKeeper(t *testing.T) {
	t.Parallel()
	root := "/refused-" + newKey()[5:]
	owner := locker(t, Config{Root: root, AuthScheme: "digest", Auth: []byte("owner:secret")})
	k := acquire(t, owner, "key")
	for name, c := range map[string]struct {
		config Config
		want   error
		says   string
	}{
		"no login":      {Config{Root: root}, zk.ErrNoAuth, "cdrw"},
		"another login": {Config{Root: root, AuthScheme: "digest", Auth: []byte("other:secret")}, zk.ErrNoAuth, "cdrw"},
		"wrong scheme":  {Config{Root: root + "2", AuthScheme: "nonsense", Auth: []byte("owner:secret")}, zk.ErrAuthFailed, "AuthScheme"},
		"wrong ACL":     {Config{Root: root + "3", ACL: []zk.ACL{{Perms: zk.PermAll, Scheme: "nonsense", ID: "x"}}}, zk.ErrInvalidACL, "Config.ACL"},
		"auth, no login": {
			Config{Root: root + "4", ACL: zk.AuthACL(zk.PermAll)}, zk.ErrInvalidACL, "Config.ACL",
		},
	} {
		l := locker(t, c.config)
		for _, key := range []string{"key", "new"} {
			_, err := l.TryAcquire(t.Context(), key)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, key %q: %v; want %v and %q", name, key, err, c.want, c.says)
			}
			if _, err := l.Acquire(t.Context(), key); !errors.Is(err, c.want) || errors.Is(err, lock.ErrHeld) {
				t.Errorf("%s, key %q: Acquire: %v; want %v", name, key, err, c.want)
			}
		}
		if _, err := l.Inspect(t.Context(), "key"); name != "auth, no login" && name != "wrong ACL" && !errors.Is(err, c.want) {
			t.Errorf("%s: Inspect: %v; want %v", name, err, c.want)
		}
	}
	// The same login is let in, and the lock still works.
	same := locker(t, Config{Root: root, AuthScheme: "digest", Auth: []byte("owner:secret")})
	if _, err := same.TryAcquire(t.Context(), "key"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire with the same login: %v", err)
	}
	if err := k.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, k)
	release(t, acquire(t, same, "key"))
}

// A key whose node holds something else is refused, and left as it is.
func TestForeignNodes(t *testing.T) {
	t.Parallel()
	l, key := locker(t, Config{}), newKey()
	release(t, acquire(t, l, key))
	path, _ := pathOf(l.root, key)
	for _, name := range []string{"_c_0123-lock-0000000000", "queue-x", "lease-x", "x-1"} {
		raw(t, l, func(c *zk.Conn) (string, error) { return c.Create(path+"/"+name, nil, 0, zk.WorldACL(zk.PermAll)) })
		if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("beside %s: %v", name, err)
		}
		raw(t, l, deletion(path+"/"+name))
	}
	release(t, acquire(t, l, key))
}
