// Command proof tests the locks. It checks the model (lock/model). It runs the scenarios that are said
// to break Redlock (scenarios). It records histories of clients under faults, and checks them. It runs
// on Linux, in its own folder, and needs redis-server, spin and gcc on the PATH.
//
// A history has the operations of ten client processes on 5 masters or on one server, with times of
// the host's monotonic clock. Meanwhile network, servers and clients are made to fail. The checks are:
//
//   - For each key, the history must be one of a mutex whose grants have growing tokens. porcupine searches for such an
//     order.
//   - No two leases of a key may be promised at the same time.
//   - The checks must find violations that are planted in a copy of the history.
//
// In one more history the nodes of a Redlock are restarted one after the other, as docs/locks/redlock.md says, under holders that extend. None of these
// locks may be lost.
//
// The last line is the result:
//
//	lock-proof: model=ok scenarios=4/4 acquisitions=N faults=N duplicates=0 order=0 unknown=0
//
// The exit status is 0 only if all parts ran and passed, with enough acquisitions and fault windows.
// Otherwise "FAILED" stands before the rest of that line.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/signalbox-go/signalbox/tests/proof/scenarios"
)

// patience bounds the time that porcupine may take for one key.
const patience = time.Minute

type flags struct {
	quick     bool
	histories bool
	seed      uint64
	out       string
}

func main() {
	if scenarios.ChildMain() {
		return
	}
	if text, ok := os.LookupEnv(envClient); ok {
		if err := runClient(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f flags
	flag.BoolVar(&f.quick, "quick", false, "25 s of faults for each of the two setups instead of 4.5 minutes (longer on a busy machine), 8 rolling restarts instead of 30, and at least 20,000 acquisitions and 100 fault windows in all instead of 300,000 acquisitions")
	flag.BoolVar(&f.histories, "histories", false, "only the histories, not the model and the scenarios; can't be kept")
	flag.Uint64Var(&f.seed, "seed", uint64(time.Now().UnixNano()), "of what clients do and which faults happen; the timing differs all the same")
	flag.StringVar(&f.out, "out", "", "keep the output in this file, if all is well")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "proof: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if f.histories && f.out != "" {
		fmt.Fprintln(os.Stderr, "proof: -out keeps a whole run, not one of -histories")
		os.Exit(2)
	}
	if err := run(ctx, f); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	var kept bytes.Buffer
	out := io.MultiWriter(os.Stdout, &kept)
	began := time.Now()
	if err := header(ctx, out, f); err != nil {
		return err
	}
	var t total
	t.prove(ctx, f, out)
	fmt.Fprintf(out, "\n%.0f s\n%s\n", time.Since(began).Seconds(), t.line())
	if f.out == "" || len(t.errs) > 0 {
		return errors.Join(t.errs...)
	}
	if err := os.MkdirAll(filepath.Dir(f.out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(f.out, kept.Bytes(), 0o644)
}
