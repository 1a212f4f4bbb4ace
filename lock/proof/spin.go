package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// modelScript checks the Promela model. The program is run in its own folder.
const modelScript = "../model/run.sh"

// runModel runs the script, whose output is part of the report, and fails unless its last line says that
// all is well. What it says of its failure is in the error.
//
// It is the script's short form, also in the long one of the proof: the larger bounds take two cores and
// 6 GB of memory for minutes more, twice as many on a machine that does something else, and
// nothing in them depends on when or where they are searched. "make model LONG=1" keeps what came of them.
func runModel(ctx context.Context, script string, out io.Writer) error {
	var printed, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", script)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &printed), &problems
	// The script ends its searches when it is ended, and takes a moment for that.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	said := strings.TrimSpace(problems.String())
	if err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, said)
	}
	if last := lastLine(printed.String()); !strings.HasPrefix(last, "model: ok ") {
		return fmt.Errorf("%s: its last line is %q, not \"model: ok ...\": %s", script, last, said)
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
