package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/fence"
)

const (
	// processes is the number of processes at a time.
	processes = 10
	// overtaken is how many increments of the same counter others make before a stopped process continues. Some of
	// them may have been under way before the stop.
	overtaken = 4
	// longestStop bounds a stop if others don't get on.
	longestStop = 15 * time.Second
	// ending bounds the time in which a process ends when it has nothing to do.
	ending = 30 * time.Second
)

// A crew has the processes of the run on one locker.
type crew struct {
	task   string        // as JSON
	ttl    time.Duration // of the lock
	sqlite bool
	ledger *ledger
	work   sync.WaitGroup // one for each place
	fail   func(error)

	mu      sync.Mutex
	over    bool // no process is started any more
	members map[*member]struct{}
	stopped []stopped
	tally   result // stops, kills, refused, repeated, retries
}

// A member is one process.
type member struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	tasks  *json.Encoder
	stdout *os.File
	stderr bytes.Buffer // may be read when it has ended
	ended  <-chan struct{}
	killed bool   // by a fault; what it says doesn't count any more. Used by its reader only
	doing  string // the ID of its increment; used by its reader only
}

// A stopped process continues when the lock's TTL is over and others have overtaken it.
type stopped struct {
	member   *member
	fault    fault
	acked    int // then
	earliest time.Time
	latest   time.Time
}

func newCrew(t task, l *ledger, fail func(error)) (*crew, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return &crew{
		task: string(text), ttl: t.Service.TTL, sqlite: t.Database.Dialect == fence.SQLite, ledger: l, fail: fail, members: map[*member]struct{}{},
		tally: result{locker: t.Service.Locker, retries: map[string]int{}},
	}, nil
}

// run fills one place of the crew: with a process, and with another whenever a fault killed it.
func (c *crew) run() {
	for {
		m, err := c.start()
		if err != nil {
			c.fail(err)
			return
		}
		if m == nil {
			return
		}
		err = c.read(m)
		_ = m.stdin.Close()
		<-m.ended
		c.forget(m)
		if !m.killed {
			if err != nil {
				c.fail(fmt.Errorf("a process of %s: %w\n%s", c.tally.locker, err, &m.stderr))
			}
			return
		}
		c.ledger.lose(m.doing)
	}
}

// start starts a process, unless the crew is over.
func (c *crew) start() (*member, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &member{cmd: exec.Command(path)}
	m.cmd.Env, m.cmd.Stderr = append(os.Environ(), envTask+"="+c.task), &m.stderr
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of cmd's would be closed when the process ends, with what is in it.
	var write *os.File
	if m.stdout, write, err = os.Pipe(); err != nil {
		return nil, err
	}
	m.cmd.Stdout = write
	m.stdin, m.tasks = stdin, json.NewEncoder(stdin)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer write.Close()
	if c.over {
		return nil, errors.Join(m.stdout.Close(), stdin.Close())
	}
	if m.ended, err = servertest.Start(m.cmd); err != nil {
		return nil, errors.Join(err, m.stdout.Close())
	}
	c.members[m] = struct{}{}
	return m, nil
}

func (c *crew) forget(m *member) {
	_ = m.stdout.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, m)
}

// read gives a process increments, reads its reports and makes its faults happen, until it has ended.
func (c *crew) read(m *member) error {
	if err := c.give(m); err != nil {
		return err
	}
	for lines := bufio.NewScanner(m.stdout); lines.Scan(); {
		if m.killed {
			continue // its reports are lost on the way
		}
		at, rest, _ := strings.Cut(lines.Text(), " ")
		id, note, _ := strings.Cut(rest, " ")
		if f, ok := c.ledger.fault(id, phase(at)); ok {
			c.strike(m, f)
			continue
		}
		if err := c.hear(m, phase(at), id, note); err != nil {
			return err
		}
	}
	if m.killed || m.doing == "" {
		return nil
	}
	return fmt.Errorf("it ended at increment %s", m.doing)
}

// hear notes a report.
func (c *crew) hear(m *member, at phase, id, note string) error {
	switch at {
	case held: // only guarded increments have this phase
		c.race()
	case done:
		if note == repeated {
			c.mu.Lock()
			c.tally.repeated++
			c.mu.Unlock()
		}
		if err := c.ledger.ack(id); err != nil {
			return err
		}
		return c.give(m)
	case retry:
		c.mu.Lock()
		if note == stale {
			c.tally.refused++
		}
		kind, text, other := strings.Cut(note, ": ")
		c.tally.retries[kind]++
		if other && !slices.Contains(c.tally.errs, text) {
			c.tally.errs = append(c.tally.errs, text)
		}
		c.mu.Unlock()
	}
	return nil
}

// give gives a process its next increment. If there is none, it lets the process end.
func (c *crew) give(m *member) error {
	inc, ok := c.ledger.take()
	if !ok {
		m.doing = ""
		return m.stdin.Close()
	}
	m.doing = inc.ID
	return m.tasks.Encode(inc)
}

// strike makes a fault happen.
func (c *crew) strike(m *member, f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.kill {
		c.tally.kills++
		m.killed = true
		_ = m.cmd.Process.Kill()
		return
	}
	c.tally.stops++
	_ = m.cmd.Process.Signal(syscall.SIGSTOP)
	longest := longestStop
	if c.sqlite && f.guarded && f.at == read {
		longest = 3 * c.ttl // nobody ends the transaction of a stopped process, for which all others wait
	}
	now := time.Now()
	c.stopped = append(c.stopped, stopped{m, f, c.ledger.count(f.guarded), now.Add(c.ttl), now.Add(longest)})
}

// wake lets stopped processes continue whose stop is over.
func (c *crew) wake(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	alone := c.ledger.waitingFor() == len(c.stopped) // nobody is left who could overtake them
	var still []stopped
	for _, s := range c.stopped {
		passed := c.ledger.count(s.fault.guarded) >= s.acked+overtaken && now.After(s.earliest)
		if alone || passed || now.After(s.latest) {
			_ = s.member.cmd.Process.Signal(syscall.SIGCONT)
			continue
		}
		still = append(still, s)
	}
	c.stopped = still
}

// race lets those continue whose stop ends when another process has the lock for a guarded increment.
func (c *crew) race() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = slices.DeleteFunc(c.stopped, func(s stopped) bool {
		if s.fault.race {
			_ = s.member.cmd.Process.Signal(syscall.SIGCONT)
		}
		return s.fault.race
	})
}

// end ends all processes, at once if the run failed.
func (c *crew) end(failed bool) {
	c.mu.Lock()
	c.over = true
	if failed {
		for m := range c.members {
			_ = m.cmd.Process.Kill()
		}
	}
	c.mu.Unlock()
	late := time.AfterFunc(ending, func() {
		c.fail(fmt.Errorf("processes of %s didn't end within %v", c.tally.locker, ending))
		c.mu.Lock()
		defer c.mu.Unlock()
		for m := range c.members {
			_ = m.cmd.Process.Kill()
		}
	})
	c.work.Wait()
	late.Stop()
}
