package fence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/signalbox-go/signalbox/lock"
)

// Readers get what the highest token has written, in whatever order the writes come.
func TestFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "report.json")
	if _, _, err := ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the first write: %v", err)
	}
	for i, c := range []struct {
		token int64
		want  error
		reads int64
	}{{9, nil, 9}, {9, fs.ErrExist, 9}, {10, nil, 10}, {9, ErrStale, 10}, {100, nil, 100}, {11, ErrStale, 100}} {
		err := WriteFile(under(t, "r", c.token), name, fmt.Append(nil, c.token), 0o640)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("case %d: %v, want %v", i, err, c.want)
		}
		if data, token, err := ReadFile(name); err != nil || token != c.reads || string(data) != fmt.Sprint(c.reads) {
			t.Errorf("case %d: %q, %d, %v", i, data, token, err)
		}
	}
	if err := WriteFile(lock.NewContext(t.Context(), testLease{"r", "etcd", "a", 200}), name, nil, 0o600); !errors.Is(err, ErrForeign) {
		t.Errorf("another issuer: %v", err)
	}
	if err := WriteFile(lock.NewContext(t.Context(), testLease{"r", "../x", "a", 200}), name, nil, 0o600); !errors.Is(err, ErrInvalid) {
		t.Errorf("an issuer that is a path: %v", err)
	}
	// A late one that was past all checks when it was stopped.
	if err := os.WriteFile(name+".99.redis", []byte("late"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{".0100.redis", ".101", ".101.redis.tmp", ".x.redis"} { // not ours
		if err := os.WriteFile(name+other, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, token, err := ReadFile(name); err != nil || token != 100 {
		t.Errorf("beside a late write: %d, %v", token, err)
	}
	info, err := os.Stat(name + ".100.redis")
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Readers find whole contents, whoever writes meanwhile, and never go back.
func TestFileRaces(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	const writers = 30
	if err := WriteFile(under(t, "r", 1), name, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for token := int64(2); token <= writers; token++ {
		all.Go(func() {
			if err := WriteFile(under(t, "r", token), name, fmt.Append(nil, token), 0o600); err != nil && !errors.Is(err, ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		for last := int64(0); last < writers; {
			data, token, err := ReadFile(name)
			if err != nil || token < last || string(data) != fmt.Sprint(token) {
				t.Errorf("%q of token %d after %d: %v", data, token, last, err)
				return
			}
			last = token
		}
	})
	all.Wait()
}
