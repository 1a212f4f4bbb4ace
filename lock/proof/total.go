package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signalbox-go/signalbox/lock/proof/scenarios"
)

// A total is what came of all parts.
type total struct {
	scenarios                  string
	acquisitions, faults       int
	duplicates, order, unknown int
	errs                       []error
}

// line is the last line of the output.
func (t *total) line() string {
	failed := ""
	if len(t.errs) > 0 {
		failed = "FAILED "
	}
	return fmt.Sprintf("lock-proof: %sscenarios=%s acquisitions=%d faults=%d duplicates=%d order=%d unknown=%d",
		failed, t.scenarios, t.acquisitions, t.faults, t.duplicates, t.order, t.unknown)
}

func (t *total) fail(out io.Writer, err error) {
	fmt.Fprintf(out, "FAILED: %v\n", err)
	t.errs = append(t.errs, err)
}

// The long form asks it of each setup, the quick one of all together.
const needAcquisitions, needWindows = 20_000, 100

// prove runs all parts, also when one fails.
func (t *total) prove(ctx context.Context, f flags, out io.Writer) {
	t.scenarios = "skipped"
	if !f.histories {
		t.runScenarios(ctx, out)
	}
	b := bound{2 * time.Minute, needAcquisitions, needWindows}
	if f.quick {
		b = bound{25 * time.Second, needAcquisitions / len(setups), needWindows / len(setups)}
	}
	for _, s := range setups {
		fmt.Fprintln(out)
		acquisitions, windows, v, err := s.prove(ctx, b, f.seed, out)
		t.acquisitions += acquisitions
		t.faults += windows
		t.duplicates += v.duplicates
		t.order += v.order
		t.unknown += v.unknown
		if err != nil {
			t.fail(out, err)
		}
	}
}

func (t *total) runScenarios(ctx context.Context, out io.Writer) {
	fmt.Fprintln(out, "\nThe scenarios")
	passed, all, err := scenarios.Run(ctx, out)
	t.scenarios = fmt.Sprintf("%d/%d", passed, all)
	if err == nil && passed < all {
		err = errors.New("not all of them passed")
	}
	if err != nil {
		t.fail(out, fmt.Errorf("the scenarios: %w", err))
	}
}

// header says where and how the proof was run.
func header(ctx context.Context, out io.Writer, f flags) error {
	version, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return fmt.Errorf("the proof needs redis-server on the PATH: %w", err)
	}
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return err
	}
	form := "long"
	if f.quick {
		form = "quick"
	}
	redis, _, _ := strings.Cut(strings.TrimPrefix(string(version), "Redis server "), " sha")
	fmt.Fprintf(out, "lock-proof, %s form, seed %d, %s\n%s, %s, Redis %s, %d cores\n", form, f.seed, time.Now().UTC().Format(time.DateOnly),
		unix.ByteSliceToString(host.Release[:]), runtime.Version(), redis, runtime.NumCPU())
	return nil
}
