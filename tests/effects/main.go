// Command effects proves the guards of package lock/fence on every locker. It runs on Linux, and needs redis-server,
// etcd, ZooKeeper and PostgreSQL.
//
//	go run . [-quick] [-lock name] [-database postgres|mariadb|sqlite] [-seed n]
//
// Ten processes share a lock. Under it they increment two counters in a database. Meanwhile they are stopped by SIGSTOP
// for longer than the lock's TTL, and killed by SIGKILL. Each fault waits for a certain increment to reach a certain
// step, such as the moment between the read and the write.
//
//   - A guarded increment enters the fence before it reads, and is recorded by Once under its own ID. Who is killed
//     before the acknowledgement arrives leaves the increment to another process, which tries it again.
//   - An unguarded increment asks its context whether the lock is still held, reads, works for a moment and writes.
//
// Neither stops its database calls when the lock is lost: nothing but the guard stands between a late write and the
// counter.
//
// A counter is a number and the IDs of its increments. The ledger is outside of the database: the parent keeps which
// increments it asked for and which were acknowledged. An acknowledged increment that the counter doesn't have is lost.
// One that it has twice is doubled. No guarded one may be either.
//
// On every locker the faults must make the unguarded counter lose some. Somewhere the guard must have refused a stale
// holder, and an increment must have been tried again after it was had. Otherwise the faults were too weak, and the run
// is invalid. The last line is the result:
//
//	effects: lockers=5 increments=N lost=0 doubled=0 unguarded_lost=N
//
// The exit status is 0 only if the run was valid and nothing was lost or doubled. Otherwise "FAILED" stands before the
// rest of that line.
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

	"github.com/redis/go-redis/v9/logging"
)

// timeLimit bounds the whole run, on a slow machine.
const timeLimit = 10 * time.Minute

func main() {
	if text, ok := os.LookupEnv(envTask); ok {
		if err := runWorker(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	logging.Disable() // go-redis logs each call to a server that is starting
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
	total, err := run(ctx, c, os.Stdout)
	cancel()
	err = errors.Join(err, total.problem())
	fmt.Println(total.line(err != nil))
	if err != nil {
		fmt.Fprintln(os.Stderr, "effects:", err)
		os.Exit(1)
	}
}

// choices are the values of the flags.
type choices struct {
	lockers  []string
	database string
	seed     uint64
	size     size
}

// A size is how much is done on each locker.
type size struct {
	increments int           // of each of the two counters
	faults     int           // a multiple of the number of kinds of faults spreads them evenly
	members    int           // servers of etcd and of ZooKeeper
	kinds      []fault       // of faults; nil is all of them
	ttl        time.Duration // of Redis' and PostgreSQL's locks; 0 is a second
}

var (
	long  = size{increments: 1000, faults: 60, members: 3}
	quick = size{increments: 100, faults: 12, members: 1}
)

// parse parses the flags. It reports a mistake to out.
func parse(args []string, out io.Writer) (choices, error) {
	var c choices
	var only string
	var short bool
	flags := flag.NewFlagSet("effects", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&only, "lock", "", "only this `locker`: "+strings.Join(lockers, ", "))
	flags.StringVar(&c.database, "database", "postgres", "the `database` of the counters: "+strings.Join(databases, ", "))
	flags.BoolVar(&short, "quick", false, fmt.Sprintf("%d increments and %d faults on each locker instead of %d and %d, and one server of etcd and ZooKeeper instead of three",
		quick.increments, quick.faults, long.increments, long.faults))
	flags.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "of the plan of faults; the timing differs all the same")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	c.lockers, c.size = lockers, long
	if only != "" {
		c.lockers = []string{only}
	}
	if short {
		c.size = quick
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("what is %q?", flags.Args()))
	}
	if !slices.Contains(lockers, c.lockers[0]) {
		errs = append(errs, fmt.Errorf("-lock=%s: want one of %s", only, strings.Join(lockers, ", ")))
	}
	if !slices.Contains(databases, c.database) {
		errs = append(errs, fmt.Errorf("-database=%s: want one of %s", c.database, strings.Join(databases, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(out, err)
		flags.Usage()
		return c, err
	}
	return c, nil
}
