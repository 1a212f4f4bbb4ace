package scenarios

import (
	"context"
	_ "embed" // the shim
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

//go:embed shim/clock.c
var shimSource string

const envClock = "SCENARIO_CLOCK"

// buildShim compiles the library that moves clocks.
func buildShim(ctx context.Context, path string) error {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		cc, err = exec.LookPath("cc")
	}
	if err != nil {
		return fmt.Errorf("%w: a C compiler: %w", ErrMissing, err)
	}
	cmd := exec.CommandContext(ctx, cc, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(shimSource)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scenarios: building the shim: %w\n%s", err, output)
	}
	return nil
}

// setClock sets a clock ahead of the machine's by d.
func setClock(path string, d time.Duration) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0)
	return err
}
