// Command bench measures Signalbox against its peers on this machine: both run in turn, on
// the same Redis, and what counts is the ratio. README.md says what each case does.
//
// It starts a redis-server of its own on a free loopback port and ends it. The table,
// or with -json one object alone, goes to standard output, progress to standard error. The exit
// status says whether everything was measured, not whether the targets were met.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

type flags struct {
	quick    bool
	json     bool
	runs     int
	contests []contest
	redis    string
	soak     int    // jobs; 0: no soak
	scale    int    // jobs; 0: no scale
	against  string // a commit; "": the peers
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if ok, err := part(ctx); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	f, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2) // the message is out
	}
	if err := run(ctx, f, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part does what a process of a measurement does, if this is one.
func part(ctx context.Context) (ok bool, err error) {
	if task, ok := os.LookupEnv(contenderEnv); ok {
		return true, contend(ctx, task, os.Stdin, os.Stdout)
	}
	if task, ok := os.LookupEnv(queuesEnv); ok {
		return true, workQueues(ctx, task, os.Stdout)
	}
	if task, ok := os.LookupEnv(processEnv); ok {
		return true, processAlone(ctx, task, os.Stdout)
	}
	return false, nil
}

func parse(args []string, stderr io.Writer) (flags, error) {
	var f flags
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&f.quick, "quick", false, "fewer runs of fewer jobs: rough figures within three minutes")
	fs.BoolVar(&f.json, "json", false, "print one JSON object instead of the table")
	fs.IntVar(&f.runs, "runs", 0, "how often each side runs; the median counts (default 5, with -quick 3, with -against 9)")
	only := fs.String("case", "", "run only these cases, separated by commas: "+strings.Join(names(contests()), ","))
	fs.StringVar(&f.redis, "redis", "", "use the Redis at this address, which must be on loopback and empty: it is flushed; default: start one")
	fs.StringVar(&f.against, "against", "", "compare this tree with the commit of this name instead of the peers, each with its own bench")
	fs.IntVar(&f.soak, "soak", 0, "put so many jobs through one queue with retention and statistics instead, and write to the working directory how much memory that takes: soak.csv and soak.svg")
	fs.IntVar(&f.scale, "scale", 0, "put so many jobs into one line of a group, and into as many lines, work with them in all ways, and print the processor time of each script instead; needs Linux")
	err := fs.Parse(args)
	if err != nil {
		return f, err
	}
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case f.soak < 0:
		err = fmt.Errorf("-soak %d; want 1 or more", f.soak)
	case f.scale < 0:
		err = fmt.Errorf("-scale %d; want 1 or more", f.scale)
	case f.runs < 0:
		err = fmt.Errorf("-runs %d; want 1 or more", f.runs)
	default:
		f.contests, err = choose(contests(), *only)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return f, err
	}
	if f.runs == 0 {
		switch f.runs = 5; {
		case f.quick:
			f.runs = 3
		case f.against != "":
			f.runs = 9
		}
	}
	return f, nil
}

func run(ctx context.Context, f flags, stdout, stderr io.Writer) (err error) {
	srv, err := open(ctx, f.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()

	if f.soak > 0 {
		return soak(ctx, srv, f.soak, ".", stderr)
	}
	if f.scale > 0 {
		return scale(ctx, srv, f.scale, stdout, stderr)
	}
	m, err := describe(ctx, srv, f)
	if err != nil {
		return err
	}
	r := report{Machine: m}
	if f.against != "" {
		r.Results, err = against(ctx, srv, f, stderr)
	} else {
		r.Results, err = versusPeers(ctx, srv, f, stderr)
	}
	if err != nil {
		return err
	}
	if f.json {
		return r.json(stdout)
	}
	return r.table(stdout)
}

// versusPeers runs each contest between this program and its peer.
func versusPeers(ctx context.Context, srv *server, f flags, progress io.Writer) (results []result, err error) {
	deadline := time.Now().Add(quickBudget)
	for _, c := range f.contests {
		of, err := c.run(ctx, srv, f, deadline, progress)
		if err != nil {
			return nil, err
		}
		results = append(results, of...)
	}
	return results, nil
}
