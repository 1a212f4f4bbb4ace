package stage

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type line string

func (l line) String() string { return string(l) }
func (l line) Problem() error { return nil }

// TestRun: an example gets a Redis and a namespace of its own, of which nothing is left.
func TestRun(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for name, url := range map[string]string{"embedded": "", "REDIS_URL": "redis://" + srv.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), io.Discard, url, "some", func(ctx context.Context, _ io.Writer, db *Redis) (line, error) {
				if !strings.HasPrefix(db.Namespace, "some-") {
					t.Errorf("the namespace is %q", db.Namespace)
				}
				return "done", db.Client.Set(ctx, "signalbox:{"+db.Namespace+":q}:stats", 1, 0).Err()
			})
			if err != nil || r != "done" {
				t.Errorf("got %q, %v", r, err)
			}
		})
	}
	t.Cleanup(func() {
		if keys := srv.Client().Keys(context.Background(), "signalbox:{some-*").Val(); len(keys) > 0 {
			t.Errorf("keys are left: %q", keys)
		}
	})
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), io.Discard, "http://user:secret@host", "some", func(context.Context, io.Writer, *Redis) (line, error) { return "", nil })
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "REDIS_URL can't be read") {
		t.Errorf("got %v", err)
	}
}

// Until ends with its condition, with an error of that, and with its context.
func TestUntil(t *testing.T) {
	t.Parallel()
	looks := 0
	if err := Until(t.Context(), func() (bool, error) { looks++; return looks == 2, nil }); err != nil || looks != 2 {
		t.Errorf("%v after %d looks", err, looks)
	}
	failed := errors.New("failed")
	if err := Until(t.Context(), func() (bool, error) { return false, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failed)
	if err := Until(ctx, func() (bool, error) { return false, nil }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	end := Beside(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return failed
	})
	if err := end(); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	readme := "It prints\n\n```text\n12 jobs\nnone left\n```\n\n```sh\ngo run .\n```\n\n```text\nsome: ok=1\n```\n"
	if got := Missing(readme, "7 jobs\nsome: ok=23\n"); !slices.Equal(got, []string{"none left\n"}) {
		t.Errorf("got %q", got)
	}
}
