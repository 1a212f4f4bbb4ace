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

	"github.com/signalbox-go/signalbox/worker"
)

// The environment tells a process its role. The URL of Redis is not in a command line, where all users of the
// machine could read its password.
const (
	envRole  = "TRACING_ROLE"
	envName  = "TRACING_NAME"
	envQueue = "TRACING_QUEUE"
	envRedis = "REDIS_URL"
)

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 8 * time.Second

func isChild() bool { return os.Getenv(envRole) != "" }

// runChild is the main function of a process that this program started: a worker or a scheduler. It ends when
// its standard input has a byte. With a second byte a worker doesn't wait for its handlers.
func runChild() error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent handles it
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	hurry, hurryUp := context.WithCancel(context.Background())
	defer hurryUp()
	go func() {
		obey(os.Stdin, stop, hurryUp)
		os.Exit(1)
	}()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // failures and recoveries are intended here

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
	defer func() { _ = stopTracing() }() // if the spans can't be sent, the parent reports it
	switch role {
	case "worker":
		w, err := newWorker(rdb, queue)
		if err != nil {
			return err
		}
		w.Use(tell(os.Stdout, name))
		return runWorker(ctx, hurry, w)
	case "scheduler":
		s, err := newScheduler(rdb, queue)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
	return fmt.Errorf("%s=%q: want worker or scheduler", envRole, role)
}

// runWorker runs a worker until ctx ends. When hurry ends as well, it interrupts the running handlers.
func runWorker(ctx, hurry context.Context, w *worker.Worker) error {
	defer context.AfterFunc(hurry, w.Abort)()
	return w.Run(ctx)
}

// obey reads a process's standard input. The first byte asks the process to end, the second to end at once.
// obey returns at the end of the input, when the parent has ended.
func obey(stdin io.Reader, stop, hurryUp func()) {
	for _, do := range []func(){stop, hurryUp} {
		if _, err := io.ReadFull(stdin, make([]byte, 1)); err != nil {
			return
		}
		do()
	}
	_, _ = io.Copy(io.Discard, stdin)
}

// A crew has the processes that this one started.
type crew struct {
	ctx    context.Context // ends when one of them ends by itself
	hurry  context.Context // ends when they must end at once
	fail   context.CancelCauseFunc
	env    []string
	ledger *ledger
	all    []*process
}

func newCrew(ctx, hurry context.Context, redisURL, queue string, l *ledger) *crew {
	ctx, fail := context.WithCancelCause(ctx)
	return &crew{ctx: ctx, hurry: hurry, fail: fail, ledger: l, env: append(os.Environ(), envQueue+"="+queue, envRedis+"="+redisURL)}
}

// A process is one member of the crew.
type process struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc // asks it to end
	killed atomic.Bool        // by this program
	done   chan struct{}      // closed when it has ended
}

// start starts this program again. If that fails, the crew's context ends.
func (c *crew) start(role, name string) *process {
	p := &process{done: make(chan struct{})}
	c.all = append(c.all, p)
	ctx, cancel := context.WithCancel(c.ctx)
	p.cancel = cancel
	stdout, err := p.start(ctx, c.hurry, append(c.env, envRole+"="+role, envName+"="+name))
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
		_ = p.cmd.Wait() // its state says how it ended
		if state := p.cmd.ProcessState; !p.killed.Load() && (ctx.Err() == nil || !state.Success()) {
			c.fail(fmt.Errorf("%s ended: %v", name, state))
		}
	}()
	return p
}

func (p *process) start(ctx, hurry context.Context, env []string) (io.Reader, error) {
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
	p.cmd.Cancel = func() error { // called when ctx ends
		_, err := stdin.Write([]byte{'.'})
		return err
	}
	p.cmd.WaitDelay = stopTimeout // then it is killed
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	context.AfterFunc(hurry, func() { _, _ = stdin.Write([]byte{'.'}) }) // an error means that it has ended
	return stdout, nil
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

// stop asks the process to end and waits until it has ended.
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
