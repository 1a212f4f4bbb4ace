package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// processes is the number of client processes at a time.
const processes = 10

// stopTimeout is how long a client may take to end, in addition to its current operations.
const stopTimeout = 15 * time.Second

// A crew has the client processes of a run, and their operations.
type crew struct {
	path string
	task task // of each client, but for its ID and seed

	mu       sync.Mutex
	members  []*member
	started  int64
	history  []operation
	acquired int
	err      error // failures of the clients themselves
}

// A member is one client process.
type member struct {
	id     int64
	proc   *process
	stdin  io.Closer
	stderr *bytes.Buffer
}

// newCrew starts all clients, with this task and different seeds. Even after an error the crew must be killed.
func newCrew(t task) (*crew, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crew{path: path, task: t, members: make([]*member, processes)}
	for i := range c.members {
		if c.members[i], err = c.start(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *crew) start() (*member, error) {
	c.mu.Lock()
	c.started++
	m := &member{id: c.started, stderr: &bytes.Buffer{}}
	c.mu.Unlock()
	t := c.task
	t.Seed, t.ID, t.Once = t.Seed<<16+uint64(m.id), m.id, m.id%2 == 0
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.path)
	cmd.Env, cmd.Stderr = append(os.Environ(), envClient+"="+string(text)), m.stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	m.stdin = stdin
	m.proc, err = startProcess(cmd, func() { c.read(m.id, stdout) })
	return m, err
}

// read reads the events of a process until it has ended.
func (c *crew) read(id int64, from io.Reader) {
	var events []event
	lines := bufio.NewScanner(from)
	var err error
	for lines.Scan() {
		var e event
		if err = json.Unmarshal(lines.Bytes(), &e); err != nil {
			break
		}
		events = append(events, e)
		if e.Do == acquire && e.Result == done {
			c.mu.Lock()
			c.acquired++
			c.mu.Unlock()
		}
	}
	ops, err2 := assemble(id, events)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, ops...)
	if err = errors.Join(err, lines.Err(), err2); err != nil {
		c.err = errors.Join(c.err, fmt.Errorf("events of client %d: %w", id, err))
	}
}

// acquisitions returns their number so far.
func (c *crew) acquisitions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acquired
}

// replace kills a client and starts another in its place. For each i there must be one caller
// at a time.
func (c *crew) replace(i int) error {
	c.members[i].proc.kill()
	m, err := c.start()
	if err != nil {
		return err
	}
	c.members[i] = m
	return nil
}

// pause stops clients, like a paused process, for d or until ctx ends.
func (c *crew) pause(ctx context.Context, which []int, d time.Duration) {
	for _, i := range which {
		c.members[i].proc.signal(syscall.SIGSTOP)
	}
	wait(ctx, d)
	for _, i := range which {
		c.members[i].proc.signal(syscall.SIGCONT)
	}
}

// stop asks all clients to end. It returns the operations of all clients, including replaced
// ones.
func (c *crew) stop() ([]operation, error) {
	for _, m := range c.members {
		_ = m.stdin.Close()
	}
	var errs []error
	for _, m := range c.members {
		select {
		case <-m.proc.done:
		case <-time.After(stopTimeout):
			m.proc.kill()
			errs = append(errs, fmt.Errorf("client %d didn't end", m.id))
		}
		if m.proc.err != nil && !m.proc.wasKilled() {
			errs = append(errs, fmt.Errorf("client %d ended: %w\n%s", m.id, m.proc.err, m.stderr))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history, errors.Join(append(errs, c.err)...)
}

// broken returns an error if a client ended by itself.
func (c *crew) broken() error {
	for _, m := range c.members {
		select {
		case <-m.proc.done:
			return fmt.Errorf("client %d ended: %w\n%s", m.id, m.proc.err, m.stderr)
		default:
		}
	}
	return nil
}

// kill kills all clients.
func (c *crew) kill() {
	for _, m := range c.members {
		if m != nil {
			m.proc.kill()
		}
	}
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
