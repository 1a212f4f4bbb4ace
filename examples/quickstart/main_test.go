package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-go/signalbox/examples/quickstart/internal/demo"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if demo.IsChild() {
		main()
		return
	}
	redistest.Main(m)
}

// buffer is output that can be read meanwhile.
type buffer struct {
	mu  sync.Mutex
	b   bytes.Buffer
	hit func(line string)
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hit != nil {
		b.hit(string(p))
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "", "REDIS_URL": "redis://" + redistest.Start(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out buffer
			sum, err := demo.Run(t.Context(), app, &out, url)
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if err := sum.Problem(); err != nil {
				t.Errorf("%v\n%s\n%s", err, &out, sum)
			}
			if jobs := inBulk + oneByOne + later + 1; sum.Delivered() != jobs {
				t.Errorf("%d delivered, want %d", sum.Delivered(), jobs)
			}
			if !strings.Contains(out.String(), "s  delivered ") {
				t.Errorf("no live progress:\n%s", &out)
			}
			noKeys(t, url, out.String())
		})
	}
}

// A run ends soon after its context, and leaves no process and no key.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	url := "redis://" + redistest.Start(t).Addr()
	interrupted := errors.New("interrupted by the test")
	out := buffer{hit: func(line string) {
		if strings.Contains(line, "jobs enqueued") {
			cancel(interrupted)
		}
	}}
	if _, err := demo.Run(ctx, app, &out, url); !errors.Is(err, interrupted) {
		t.Errorf("run = %v, want %v", err, interrupted)
	}
	noKeys(t, url, out.String())
}

// noKeys fails the test if the run with this output left a key in a real server.
func noKeys(t *testing.T, url, output string) {
	t.Helper()
	if url == "" {
		return
	}
	queue := regexp.MustCompile(`queue (\S+)`).FindStringSubmatch(output)
	if queue == nil {
		t.Fatalf("the queue is not named:\n%s", output)
	}
	keys, err := redistest.Start(t).Client().Keys(context.Background(), "*"+queue[1]+"*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left in Redis: %q, %v", keys, err)
	}
}
