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

	"github.com/signalbox-go/signalbox/tests/proof/scenarios"
)

// A total has the results of all parts.
type total struct {
	model, scenarios           string
	acquisitions, faults       int
	duplicates, order, unknown int
	errs                       []error
}

// line returns the last line of the output.
func (t *total) line() string {
	failed := ""
	if len(t.errs) > 0 {
		failed = "FAILED "
	}
	return fmt.Sprintf("lock-proof: %smodel=%s scenarios=%s acquisitions=%d faults=%d duplicates=%d order=%d unknown=%d",
		failed, t.model, t.scenarios, t.acquisitions, t.faults, t.duplicates, t.order, t.unknown)
}

func (t *total) fail(out io.Writer, err error) {
	fmt.Fprintf(out, "FAILED: %v\n", err)
	t.errs = append(t.errs, err)
}

// A run with less than this in total is invalid.
const needAcquisitions, needWindows = 20_000, 100

// bound returns the bound for the history of a setup. The long form asks each setup for as many fault
// windows as the quick form asks all of them together.
func (f flags) bound(s setup) bound {
	if f.quick {
		all := 0
		for _, s := range setups {
			all += s.long
		}
		return bound{25 * time.Second, (needAcquisitions*s.long + all - 1) / all, needWindows / len(setups)}
	}
	return bound{4*time.Minute + 30*time.Second, s.long, needWindows}
}

// prove runs all parts, even if one fails.
func (t *total) prove(ctx context.Context, f flags, out io.Writer) {
	t.model, t.scenarios = "skipped", "skipped"
	if !f.histories {
		t.runModel(ctx, modelScript, out)
		t.runScenarios(ctx, out)
	}
	for _, s := range setups {
		fmt.Fprintln(out)
		acquisitions, windows, v, err := s.prove(ctx, f.bound(s), f.seed, out)
		t.acquisitions += acquisitions
		t.faults += windows
		t.duplicates += v.duplicates
		t.order += v.order
		t.unknown += v.unknown
		if err != nil {
			t.fail(out, err)
		}
	}
	fmt.Fprintln(out)
	v, err := proveRolling(ctx, f.rolling(), f.seed, out)
	t.duplicates += v.duplicates
	t.order += v.order
	t.unknown += v.unknown
	if err != nil {
		t.fail(out, err)
	}
	if err := enough(t.acquisitions, t.faults, needAcquisitions, needWindows); err != nil {
		t.fail(out, fmt.Errorf("in all: %w", err))
	}
}

// enough returns an error if a run is too short to prove anything.
func enough(acquisitions, windows, needAcquisitions, needWindows int) error {
	if acquisitions >= needAcquisitions && windows >= needWindows {
		return nil
	}
	return fmt.Errorf("%d acquisitions and %d fault windows; with less than %d and %d the run is invalid",
		acquisitions, windows, needAcquisitions, needWindows)
}

func (t *total) runModel(ctx context.Context, script string, out io.Writer) {
	fmt.Fprintln(out, "\nThe model")
	t.model = "ok"
	if err := runModel(ctx, script, out); err != nil {
		t.model = "FAILED"
		t.fail(out, fmt.Errorf("the model: %w", err))
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

// header prints where and how the proof was run.
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
