// Command items shows why a service with several processes needs a lock, and which locks work.
//
//	go run ./examples/items -lock none
//	go run ./examples/items -lock naive
//	go run ./examples/items -lock single
//	go run ./examples/items -lock redlock -masters 5 -kill 2
//
// POST /items creates an item. At most three items are allowed. Five processes on loopback serve
// it, with one store. Five requests come at the same time, one to each process. A request counts
// the items, works for a moment and then adds its own item. If two requests do so at the same time,
// both count the items before either adds one. The work takes 100 ms and each call to Redis 5 ms,
// as in a network. On loopback "naive" would succeed too often by luck.
//
// It needs only Go: the store, and the lock of "naive" and "single", are in a Redis inside its own
// process. With REDIS_URL it uses a real Redis, with keys of its own, which it deletes at the end.
// For "redlock" it starts the masters itself. So redis-server must be on the PATH.
//
// service.go is the application, with its locks in locks.go and the items in store.go. The other
// files are the demonstration: run.go has its steps, process.go starts this program again as the
// servers, masters.go starts the masters, client.go makes the requests.
//
// The last line of the output counts the replies:
//
//	items: lock=single created=3 rejected=2 limit=3
//
// The exit status is 1 if a lock failed: "single" and "redlock" must create three items. If most
// masters are killed, all requests must get a 503. The exit status is 2 for a mistake in the flags.
package main

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
)

// timeLimit bounds the whole run, on a slow machine.
const timeLimit = time.Minute

func main() {
	if isChild() {
		exitOn(runChild())
		return
	}
	c, err := parse(os.Args[1:], os.Stderr)
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
		err = sum.problem()
	}
	exitOn(err)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "items:", err)
		os.Exit(1)
	}
}

// choices are the values of the flags.
type choices struct {
	lock    string
	masters int
	kill    int
}

var locks = []string{"none", "naive", "single", "redlock"}

// parse parses the flags. It reports a mistake to out.
func parse(args []string, out io.Writer) (choices, error) {
	var c choices
	flags := flag.NewFlagSet("items", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&c.lock, "lock", "single", "`which` lock: "+strings.Join(locks, ", "))
	flags.IntVar(&c.masters, "masters", 5, "redlock: start this `number` of masters, at least 3")
	flags.IntVar(&c.kill, "kill", 0, "redlock: kill this `number` of them before the requests")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(flags.NArg() == 0, "what is %q?", flags.Args())
	check(slices.Contains(locks, c.lock), "-lock=%s: want one of %s", c.lock, strings.Join(locks, ", "))
	if c.lock == "redlock" {
		check(c.masters >= 3 && c.masters <= 15, "-masters=%d: want 3 to 15", c.masters)
		check(c.kill >= 0 && c.kill <= c.masters, "-kill=%d: want 0 to %d", c.kill, c.masters)
	} else {
		flags.Visit(func(f *flag.Flag) {
			check(f.Name == "lock", "-%s is for -lock=redlock only", f.Name)
		})
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(out, err)
		flags.Usage()
		return c, err
	}
	return c, nil
}
