package worker_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// childEnv is the environment variable in which a test passes values to a process that it starts from its own binary.
const childEnv = "SIGNALBOX_TEST_CHILD"

// childConfig configures a child process, which is a worker or a producer.
type childConfig struct {
	Addr, Queue string
	Slots       int
	TTL         time.Duration
	Ledger      string   // a file to append to; "": standard output
	Enqueue     []string // the IDs of orders to enqueue: the child enqueues them and ends
	Do          string   // what these orders say
	Proof       *proofConfig
	Binary      string `json:"-"` // another build of these tests; "": this one
}

// An order is a job that tells its handler in a child process what to do.
type order struct {
	Do  string `json:"do"` // see obey
	MS  int    `json:"ms,omitempty"`
	N   int    `json:"n,omitempty"`
	Dir string `json:"dir,omitempty"`
}

func (order) Kind() string { return "order" }

// beChild is the main function of a child process: a worker that runs orders until SIGTERM. It writes each line of its ledger, "what
// job token crashes time", in one write. So lines of several processes don't mix.
func beChild() int {
	var cfg childConfig
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { // the test holds the other end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if cfg.Proof != nil {
		if err := cfg.Proof.main(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	ledger := os.Stdout
	if cfg.Ledger != "" {
		f, err := os.OpenFile(cfg.Ledger, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		ledger = f
	}
	rdb := redis.NewClient(&redis.Options{Addr: cfg.Addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if cfg.Enqueue != nil {
		return produce(rdb, cfg, ledger)
	}
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{cfg.Queue: {Concurrency: cfg.Slots}}, SessionTTL: cfg.TTL,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, o order) error {
		say := func(what string, at time.Time) {
			fmt.Fprintf(ledger, "%s %d %s %d %d %d\n", what, os.Getpid(), job.ID, job.Token, job.Crashes, at.UnixNano())
		}
		if o.Do == "until" {
			say("claimed", job.ClaimedAt)
		}
		say("start", time.Now())
		err := o.obey(ctx, job.ID, say)
		say("end", time.Now())
		return err
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// produce enqueues orders that do nothing. For each it writes to the ledger: "taken", or "outdated" if this build is too old.
func produce(rdb *redis.Client, cfg childConfig, ledger io.Writer) int {
	s, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, id := range cfg.Enqueue {
		what := "taken"
		if _, err := s.Enqueue(context.Background(), order{Do: cfg.Do}, scheduler.Queue(cfg.Queue), scheduler.ID(id)); errors.Is(err, signalbox.ErrOutdated) {
			what = "outdated"
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprintf(ledger, "%s %d %s 0 0 0\n", what, os.Getpid(), id)
	}
	return 0
}

func (o order) obey(ctx context.Context, id string, say func(what string, at time.Time)) error {
	switch o.Do {
	case "sleep":
		select {
		case <-time.After(time.Duration(o.MS) * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case "wait":
		<-ctx.Done()
		return context.Cause(ctx)
	case "until": // there is a file of the job's name
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(filepath.Join(o.Dir, id)); err == nil {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	case "steps":
		return o.steps(ctx)
	case "then": // has an order that does nothing follow
		return scheduler.Then(ctx, order{Do: "nothing"})
	case "grow": // adds an order that does nothing to its batch
		b, _ := scheduler.BatchOf(ctx)
		_, err := b.Add(ctx, order{Do: "nothing"})
		return err
	case "nothing":
		return nil
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "work": // does one operation after another, and asks before each whether it still may
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			at := time.Now()
			if ctx.Err() != nil {
				break
			}
			say("operation", at)
			<-tick.C
		}
		say("cause="+strings.ReplaceAll(context.Cause(ctx).Error(), " ", "_"), time.Now())
		return []error{nil, errBoom, signalbox.Cancel(errBoom), signalbox.Snooze(time.Hour)}[o.N%4]
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

// A line is a line of a child's ledger.
type line struct {
	what    string
	pid     int
	job     string
	token   int64
	crashes int
	at      time.Time // when the event of the line began
}

func parseLine(s string) (l line, err error) {
	var at int64
	_, err = fmt.Sscanf(s, "%s %d %s %d %d %d", &l.what, &l.pid, &l.job, &l.token, &l.crashes, &at)
	l.at = time.Unix(0, at)
	return l, err
}

// A child is a process with a worker.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan line // lines of its ledger, if the ledger is its standard output
	done  chan struct{}

	mu  sync.Mutex
	log strings.Builder
}

// startChild starts a worker process. It is killed when the test ends.
func startChild(t *testing.T, cfg childConfig) *child {
	t.Helper()
	c := &child{t: t, lines: make(chan line, 100_000), done: make(chan struct{})}
	c.cmd = exec.Command(cmp.Or(cfg.Binary, os.Args[0]))
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(payload(cfg)))
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.cmd.StdinPipe(); err != nil { // closed when either of us ends
		t.Fatal(err)
	}
	c.cmd.Stderr = c
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			if l, err := parseLine(s.Text()); err == nil {
				c.lines <- l
			}
		}
		_ = c.cmd.Wait() // most are killed
		close(c.lines)
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("log of child %d:\n%s", c.cmd.Process.Pid, c.text())
		}
	})
	return c
}

// Write receives the child's log.
func (c *child) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

func (c *child) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.log.String()
	return s[max(0, len(s)-8192):]
}

// logged returns how many lines of the child's log contain part.
func (c *child) logged(part string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Count(c.log.String(), part)
}

// kill ends the process by SIGKILL and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended
	<-c.done
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// freeze stops the process by SIGSTOP and returns when each of its threads has stopped.
func (c *child) freeze() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	pattern := "/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/task/*/stat"
	if threads, _ := filepath.Glob(pattern); len(threads) == 0 {
		c.t.Skip("needs /proc to see that a process has stopped")
	}
	end := time.Now().Add(patience)
	for time.Now().Before(end) {
		threads, _ := filepath.Glob(pattern)
		if !slices.ContainsFunc(threads, func(stat string) bool {
			b, err := os.ReadFile(stat)
			_, rest, _ := strings.Cut(string(b), ") ")
			return err == nil && !strings.HasPrefix(rest, "T")
		}) {
			return
		}
		<-time.After(time.Millisecond)
	}
	c.t.Fatal("the process does not stop")
}

// await returns the next line of the given kind.
func (c *child) await(what string) line {
	c.t.Helper()
	end := time.After(patience)
	for {
		select {
		case l, ok := <-c.lines:
			if !ok {
				c.t.Fatalf("the child has ended before it said %q", what)
			}
			if l.what == what {
				return l
			}
		case <-end:
			c.t.Fatalf("the child does not say %q", what)
		}
	}
}
