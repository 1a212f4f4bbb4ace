package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The environment tells a process what it is. The URL of Redis is in none of the command lines,
// where all users of the machine could read its password.
const (
	envRole  = "TRACING_ROLE"
	envName  = "TRACING_NAME"
	envQueue = "TRACING_QUEUE"
	envRedis = "REDIS_URL"
)

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 8 * time.Second

func isChild() bool { return os.Getenv(envRole) != "" }

// runChild is what a process does that this program started: a worker or a scheduler, until its
// standard input has a byte.
func runChild() error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent sees to it
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go obey(os.Stdin, cancel)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // failures and recoveries are the story here

	role, name, queue := os.Getenv(envRole), os.Getenv(envName), os.Getenv(envQueue)
	opt, err := parseURL(os.Getenv(envRedis))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	stopTracing, err := startTracing(ctx, "shop-"+role, name)
	if err != nil {
		return err
	}
	defer func() { _ = stopTracing() }() // the parent says it if nobody takes the spans
	switch role {
	case "worker":
		w, err := newWorker(rdb, queue)
		if err != nil {
			return err
		}
		w.Use(tell(os.Stdout, name))
		return w.Run(ctx)
	case "scheduler":
		s, err := newScheduler(rdb, queue)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
	return fmt.Errorf("%s=%q: want worker or scheduler", envRole, role)
}

// obey reads a process's standard input: a byte asks it to end, and the end of the input means that
// its parent is gone, for whatever reason.
func obey(stdin io.Reader, end func()) {
	for {
		if _, err := io.ReadFull(stdin, make([]byte, 1)); err != nil {
			os.Exit(1)
		}
		end()
	}
}

// A crew is the processes that this one started.
type crew struct {
	ctx    context.Context // ends when one of them does by itself
	fail   context.CancelCauseFunc
	env    []string
	ledger *ledger
	all    []*process
}

func newCrew(ctx context.Context, redisURL, queue string, l *ledger) *crew {
	ctx, fail := context.WithCancelCause(ctx)
	return &crew{ctx: ctx, fail: fail, ledger: l, env: append(os.Environ(), envQueue+"="+queue, envRedis+"="+redisURL)}
}

// A process is one of them.
type process struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc // asks it to end
	killed atomic.Bool        // by us
	done   chan struct{}      // closed when it has ended
}

// start starts this program once more. If that fails the crew's context ends.
func (c *crew) start(role, name string) *process {
	p := &process{done: make(chan struct{})}
	c.all = append(c.all, p)
	ctx, cancel := context.WithCancel(c.ctx)
	p.cancel = cancel
	stdout, err := p.start(ctx, append(c.env, envRole+"="+role, envName+"="+name))
	if err != nil {
		c.fail(fmt.Errorf("start %s: %w", name, err))
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		if err := c.ledger.read(stdout); err != nil && !p.killed.Load() { // a killed one may leave half a line
			c.fail(fmt.Errorf("%s: %w", name, err))
		}
		_ = p.cmd.Wait() // the state says it
		if state := p.cmd.ProcessState; !p.killed.Load() && (ctx.Err() == nil || !state.Success()) {
			c.fail(fmt.Errorf("%s ended: %v", name, state))
		}
	}()
	return p
}

func (p *process) start(ctx context.Context, env []string) (io.Reader, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, path)
	p.cmd.Env, p.cmd.Stderr = env, os.Stderr
	stdin, err1 := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.cmd.Cancel = func() error { // when ctx ends
		_, err := stdin.Write([]byte{'.'})
		return err
	}
	p.cmd.WaitDelay = stopTimeout // then it is killed
	return stdout, p.cmd.Start()
}

// kill ends the process by SIGKILL and waits for its end.
func (p *process) kill() error {
	p.killed.Store(true)
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.done
	return nil
}

// stop asks the process to end and waits until it has.
func (p *process) stop() {
	p.cancel()
	<-p.done
}

func (c *crew) stopAll() {
	c.fail(context.Canceled)
	for _, p := range c.all {
		p.cancel()
		<-p.done
	}
}
