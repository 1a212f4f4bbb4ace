// Package demo is the demonstration of the command items, for any table of locks: the steps, the processes, the
// requests and the summary.
//
//   - [Main] is the main function. It starts the program again as the servers.
//   - A [Lock] is a row of the table: it makes the [Guard] of each server process.
//   - [Nodes] are servers that only the lock uses. Some can be killed, to show what the lock survives.
//   - service.go is the application, and store.go has its items.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
)

// timeLimit bounds the whole run, on a slow machine.
const timeLimit = time.Minute

// A Guard runs fn when that is allowed, or returns an error.
type Guard func(ctx context.Context, fn func(context.Context) error) error

// With returns the guard that a locker makes with a key. An application needs no more.
func With(locker lock.Locker, key string) Guard {
	return func(ctx context.Context, fn func(context.Context) error) error {
		return lock.Do(ctx, locker, key, fn)
	}
}

// Settings are what a lock is made of, in each server process.
type Settings struct {
	Redis *redis.Client // the one with the items
	Key   string        // for the lock; no other run uses it
	Nodes []string      // the addresses of the lock's own nodes, or the value of NodeKind.Env
}

// A Lock is a way to guard the items.
type Lock struct {
	Name string
	// Works says that the lock keeps the limit: a run that exceeds it fails.
	Works bool
	// Prepare, which may be nil, is called once before the servers start, without Settings.Redis. undo is called at the
	// end, unless the program has killed a node.
	Prepare func(context.Context, Settings) (undo func(context.Context) error, err error)
	// New makes the guard. close, which may be nil, stops everything that New has started.
	New func(Settings) (g Guard, close func() error, err error)
	// Nodes are the lock's own servers. It is nil if it has none.
	Nodes *NodeKind
}

// A NodeKind is a kind of servers.
type NodeKind struct {
	Name     string // in the plural; also the flag with their number, if Max is larger than Min
	Default  int
	Min, Max int
	// Start starts n servers and returns when they answer. Even after an error the returned ones are closed.
	Start func(ctx context.Context, n int) (Nodes, error)
	// Env names an environment variable. If it is set, no server is started. Its value may contain a password: it is
	// passed on and never shown.
	Env string
}

// Nodes are servers that were started.
type Nodes interface {
	// Addrs returns their addresses.
	Addrs() []string
	// Kill ends the first n like a crash.
	Kill(n int)
	// Close ends all of them.
	Close()
}

// Main is the main function of the program, and of the servers that it starts.
func Main(locks []Lock) {
	if IsChild() {
		exitOn(runChild(locks))
		return
	}
	c, err := parse(locks, os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends the program at once
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done after %v", timeLimit))
	sum, err := run(ctx, c, os.Getenv(envRedis), os.Stdout)
	cancel()
	if err == nil {
		fmt.Println(sum)
		err = sum.Problem()
	}
	exitOn(err)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "items:", err)
		os.Exit(1)
	}
}

// names returns the names of locks.
func names(locks []Lock) []string {
	var all []string
	for _, l := range locks {
		all = append(all, l.Name)
	}
	return all
}

// find returns the lock with a name, or nil.
func find(locks []Lock, name string) *Lock {
	if i := slices.IndexFunc(locks, func(l Lock) bool { return l.Name == name }); i >= 0 {
		return &locks[i]
	}
	return nil
}

// startNodes starts the lock's own nodes, or takes those of the environment. The result is nil if it has started none.
func startNodes(ctx context.Context, c choices, s *settings, out io.Writer) (Nodes, error) {
	kind := c.lock.Nodes
	if kind == nil {
		return nil, nil
	}
	if value := kind.given(); value != "" {
		s.nodes = []string{value}
		fmt.Fprintf(out, "items: the %s of %s\n", kind.Name, kind.Env)
		return nil, nil
	}
	nodes, err := kind.Start(ctx, c.nodes)
	if err != nil {
		return nodes, err
	}
	s.nodes = nodes.Addrs()
	fmt.Fprintf(out, "items: %d %s, on %s\n", len(s.nodes), kind.Name, strings.Join(s.nodes, " "))
	return nodes, nil
}

// given returns the value of the environment variable that names the nodes, or "".
func (k *NodeKind) given() string {
	if k.Env == "" {
		return ""
	}
	return os.Getenv(k.Env)
}
