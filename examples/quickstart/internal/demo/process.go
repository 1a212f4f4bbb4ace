package demo

import (
	"context"
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

// The environment tells a process its role. The URL of Redis is not in a command line, where all users of the
// machine could read its password.
const (
	envRole     = "QUICKSTART_ROLE"
	envName     = "QUICKSTART_NAME"
	envQueue    = "QUICKSTART_QUEUE"
	envEndpoint = "QUICKSTART_ENDPOINT"
	envVerbose  = "QUICKSTART_VERBOSE"
	envRedis    = "REDIS_URL"
)

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 8 * time.Second

// settings are shared by all processes.
type settings struct {
	redisURL string
	queue    string
	endpoint string
	verbose  bool
}

func (s settings) environ(role, name string) []string {
	env := append(os.Environ(),
		envRole+"="+role, envName+"="+name, envQueue+"="+s.queue, envEndpoint+"="+s.endpoint, envRedis+"="+s.redisURL)
	if s.verbose {
		env = append(env, envVerbose+"=1")
	}
	return env
}

// IsChild reports whether this process was started by Run.
func IsChild() bool { return os.Getenv(envRole) != "" }

// runChild is the main function of a process that this program started.
func runChild(app App) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent handles it
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	hurry, hurryUp := context.WithCancel(context.Background())
	defer hurryUp()
	go func() {
		obey(os.Stdin, stop, hurryUp)
		os.Exit(1)
	}()

	level := slog.LevelError
	if os.Getenv(envVerbose) != "" {
		level = slog.LevelInfo
	}
	name := os.Getenv(envName)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("process", name))

	opt, err := parseURL(os.Getenv(envRedis))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	p := Process{Name: name, Redis: rdb, Queue: os.Getenv(envQueue), Endpoint: os.Getenv(envEndpoint), Hurry: hurry}
	switch role := os.Getenv(envRole); role {
	case "worker":
		return app.Work(ctx, p)
	case "scheduler":
		return app.Schedule(ctx, p)
	default:
		return fmt.Errorf("%s=%q: want worker or scheduler", envRole, role)
	}
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
	ctx       context.Context // ends when one of them ends by itself
	hurry     context.Context // ends when they must end at once
	fail      context.CancelCauseFunc
	settings  settings
	processes map[string]*process
}

func newCrew(ctx, hurry context.Context, s settings) *crew {
	ctx, fail := context.WithCancelCause(ctx)
	return &crew{ctx: ctx, hurry: hurry, fail: fail, settings: s, processes: make(map[string]*process)}
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
	c.processes[name] = p
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(c.ctx)
	err := p.start(ctx, c.hurry, c.settings.environ(role, name))
	if err != nil {
		c.fail(fmt.Errorf("start %s: %w", name, err))
		p.cancel()
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its state says how it ended
		if state := p.cmd.ProcessState; !p.killed.Load() && (ctx.Err() == nil || !state.Success()) {
			c.fail(fmt.Errorf("%s ended: %v", name, state))
		}
	}()
	return p
}

func (p *process) start(ctx, hurry context.Context, env []string) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.CommandContext(ctx, path)
	p.cmd.Env, p.cmd.Stderr = env, os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.cmd.Cancel = func() error { // called when ctx ends
		_, err := stdin.Write([]byte{'.'})
		return err
	}
	p.cmd.WaitDelay = stopTimeout // then it is killed
	if err := p.cmd.Start(); err != nil {
		return err
	}
	context.AfterFunc(hurry, func() { _, _ = stdin.Write([]byte{'.'}) }) // an error means that it has ended
	return nil
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

// stop asks processes to end and waits until they have ended.
func (c *crew) stop(names ...string) {
	for _, name := range names {
		c.processes[name].cancel()
	}
	for _, name := range names {
		<-c.processes[name].done
	}
}

func (c *crew) stopAll() {
	c.fail(context.Canceled)
	for _, p := range c.processes {
		<-p.done
	}
}
