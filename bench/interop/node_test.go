package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// install puts both versions of redlock into node_modules, unless they are there.
var install = sync.OnceValue(func() error {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	want, err := os.ReadFile("package-lock.json")
	if err != nil {
		return err
	}
	stamp := filepath.Join("node_modules", ".installed")
	if got, err := os.ReadFile(stamp); err == nil && bytes.Equal(got, want) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts").CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return os.WriteFile(stamp, want, 0o644)
})

// A nodePeer is a process that runs driver.js.
type nodePeer struct {
	mu      sync.Mutex
	in      io.Writer
	last    int
	waiting map[int]chan nodeAnswer
	ended   error // why there will be no more answers
}

type nodeOrder struct {
	ID   int    `json:"id"`
	Op   string `json:"op"`
	Key  string `json:"key,omitempty"`
	TTL  int64  `json:"ttl,omitempty"`
	Wait int64  `json:"wait"`
	Lock int    `json:"lock,omitempty"`
}

type nodeAnswer struct {
	ID    int
	Lock  int
	Error string
}

// nodePeers returns how to start one with this version of redlock.
func nodePeers(version string) func(t *testing.T, addrs []string) peer {
	return func(t *testing.T, addrs []string) peer {
		if err := install(); err != nil {
			if os.Getenv(redistest.Env) == "required" {
				t.Fatal(err)
			}
			t.Skip("needs node and the npm package redlock:", err)
		}
		cmd := exec.Command("node", append([]string{"driver.js", version}, addrs...)...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		n := &nodePeer{in: in, waiting: map[int]chan nodeAnswer{}}
		read := make(chan struct{})
		go func() {
			defer close(read)
			n.read(json.NewDecoder(out))
		}()
		t.Cleanup(func() {
			_ = n.send(nodeOrder{Op: "quit"})
			<-read
			if err := cmd.Wait(); err != nil {
				t.Errorf("node: %v", err)
			}
		})
		return n
	}
}

func (n *nodePeer) read(dec *json.Decoder) {
	for {
		var a nodeAnswer
		err := dec.Decode(&a)
		n.mu.Lock()
		if err != nil {
			n.ended = fmt.Errorf("node has ended: %w", err)
			for _, ch := range n.waiting {
				close(ch)
			}
			n.mu.Unlock()
			return
		}
		n.waiting[a.ID] <- a
		delete(n.waiting, a.ID)
		n.mu.Unlock()
	}
}

func (n *nodePeer) send(o nodeOrder) error {
	line, err := json.Marshal(o)
	if err == nil {
		_, err = n.in.Write(append(line, '\n'))
	}
	return err
}

// ask returns the answer. One that is an error is errRefused.
func (n *nodePeer) ask(o nodeOrder) (nodeAnswer, error) {
	ch := make(chan nodeAnswer, 1)
	n.mu.Lock()
	n.last++
	o.ID = n.last
	err := n.ended
	if err == nil {
		n.waiting[o.ID] = ch
		err = n.send(o)
	}
	n.mu.Unlock()
	if err != nil {
		return nodeAnswer{}, err
	}
	a, ok := <-ch
	if !ok {
		return a, errors.New("node has ended")
	}
	if a.Error != "" {
		return a, fmt.Errorf("%w: %s", errRefused, a.Error)
	}
	return a, nil
}

type nodeHeld struct {
	n    *nodePeer
	lock int
}

func (n *nodePeer) acquire(_ context.Context, key string, ttl, wait time.Duration) (held, error) {
	a, err := n.ask(nodeOrder{Op: "acquire", Key: key, TTL: ttl.Milliseconds(), Wait: wait.Milliseconds()})
	if err != nil {
		return nil, err
	}
	return nodeHeld{n, a.Lock}, nil
}

func (h nodeHeld) extend(_ context.Context, ttl time.Duration) error {
	_, err := h.n.ask(nodeOrder{Op: "extend", Lock: h.lock, TTL: ttl.Milliseconds()})
	return err
}

func (h nodeHeld) release(context.Context) error {
	_, err := h.n.ask(nodeOrder{Op: "release", Lock: h.lock})
	return err
}
