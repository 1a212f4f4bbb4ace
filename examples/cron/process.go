package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"

	"github.com/redis/go-redis/v9"
)

// The environment tells a process its namespace and its Redis. The URL is not in a command line, where all users of the
// machine could read its password.
const (
	envNamespace = "CRON_EXAMPLE_NAMESPACE" // only of a scheduler process
	envVerbose   = "CRON_EXAMPLE_VERBOSE"
	envRedis     = "REDIS_URL"
)

// isChild reports whether this process is a scheduler that another one started.
func isChild() bool { return os.Getenv(envNamespace) != "" }

// child is the main function of a scheduler process. It ends when its standard input does, as when its parent has ended.
func child() error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent handles it
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	level := slog.LevelError
	if os.Getenv(envVerbose) != "" {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("pid", os.Getpid()))
	opt, err := parseURL(os.Getenv(envRedis))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	return schedule(ctx, rdb, os.Getenv(envNamespace))
}

// A crew has the scheduler processes.
type crew struct {
	env     []string
	running []*process
	failed  chan error // one that ended by itself
}

// A process is one of them.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	asked chan struct{} // closed: it is to end
	done  chan struct{} // closed: it has ended
}

func newCrew(url, namespace string, verbose bool) *crew {
	c := &crew{env: append(os.Environ(), envNamespace+"="+namespace, envRedis+"="+url), failed: make(chan error, 1)}
	if verbose {
		c.env = append(c.env, envVerbose+"=1")
	}
	return c
}

// start starts this program again, as a scheduler.
func (c *crew) start() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	p := &process{cmd: exec.Command(path), asked: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = c.env, os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	c.running = append(c.running, p)
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		select {
		case <-p.asked:
		default:
			select {
			case c.failed <- fmt.Errorf("a scheduler ended: %v", p.cmd.ProcessState):
			default: // another one did before
			}
		}
	}()
	return nil
}

// kill ends the first process by SIGKILL, and waits for its end.
func (c *crew) kill() error {
	p := c.running[0]
	c.running = c.running[1:]
	close(p.asked)
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// stop asks all processes to end, and waits until they have.
func (c *crew) stop() {
	for _, p := range c.running {
		close(p.asked)
		_ = p.stdin.Close()
	}
	for _, p := range c.running {
		<-p.done
	}
}
