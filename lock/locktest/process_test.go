package locktest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// If TestMain doesn't call Child, the failure says so.
func TestProcessesNeedChild(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	tm, err := plan(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // Fatal ends this goroutine
		defer close(done)
		s := &suite{TB: r, times: tm, spawn: spawner("")}
		s.hears(s.start(s.short, newKey()), "asking")
	}()
	<-done
	if len(r.said) != 1 || !strings.Contains(r.said[0], "locktest.Child") {
		t.Errorf("it says %q", r.said)
	}
}

// The TTLs are those that the locker takes.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ least, most, short, held, long time.Duration }{
		{0, 0, time.Second, 5 * time.Second, time.Minute},
		{10 * time.Millisecond, 24 * time.Hour, time.Second, 5 * time.Second, time.Minute},
		{4 * time.Second, 40 * time.Second, 4 * time.Second, 5 * time.Second, 40 * time.Second},
		{10 * time.Second, 0, 10 * time.Second, 10 * time.Second, time.Minute},
		{0, 5 * time.Second, time.Second, 5 * time.Second, 5 * time.Second},
	} {
		tm, err := plan(c.least, c.most)
		if err != nil || tm.short != c.short || tm.extended != c.held || tm.long != c.long || tm.slack > tm.long/4 {
			t.Errorf("from %v to %v: %+v, %v", c.least, c.most, tm, err)
		}
	}
	for _, c := range []struct{ least, most time.Duration }{{0, 4 * time.Second}, {20 * time.Second, 0}, {-1, 0}, {0, -1}} {
		if tm, err := plan(c.least, c.most); err == nil {
			t.Errorf("from %v to %v: %+v", c.least, c.most, tm)
		}
	}
}

// A gate is what a fake process passes at each step. It stands still there while it is stopped.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil: it is open
	dead bool
}

func (g *gate) pass() error {
	if g == nil {
		return nil
	}
	for {
		g.mu.Lock()
		dead, shut := g.dead, g.shut
		g.mu.Unlock()
		switch {
		case dead:
			return errors.New("killed")
		case shut == nil:
			return nil
		}
		<-shut
	}
}

func (g *gate) set(shut, dead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
	if shut {
		g.shut = make(chan struct{})
	}
	g.dead = g.dead || dead
}

// A fake is a process in a bubble, where there are no real ones.
type fake struct {
	*child
	gate   *gate
	in     *io.PipeWriter
	cancel context.CancelFunc
	looks  bool
}

// spawn starts a fake whose locker is on the service.
func (s *service) spawn(_ *suite, o order) process {
	ctx, cancel := context.WithCancel(context.Background())
	in, tell := io.Pipe()
	out, say := io.Pipe()
	f := &fake{
		child: &child{said: make(chan report, 8), ended: make(chan struct{})},
		gate:  &gate{}, in: tell, cancel: cancel,
	}
	go f.read(out)
	go func() {
		defer close(f.ended)
		obey(ctx, &memory{s, o.TTL, f.gate}, o.Key, in, say)
		say.Close()
	}()
	return f
}

func (f *fake) look() error {
	f.looks = true
	return nil
}

func (f *fake) stop() error {
	f.gate.set(true, false)
	return nil
}

func (f *fake) cont() error {
	f.gate.set(false, false)
	if !f.looks {
		return nil
	}
	_, err := io.WriteString(f.in, "look\n")
	return err
}

func (f *fake) kill() {
	f.gate.set(false, true)
	f.cancel()
	f.in.Close()
	<-f.ended
}
