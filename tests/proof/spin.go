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

// modelScript checks the Promela model. The path is relative to this program's folder.
const modelScript = "../../lock/model/run.sh"

// runModel runs the script, whose output is part of the report. It returns an error unless the last line
// of the output is a success. The error has the script's message.
//
// It always runs the short form of the script, also in the long form of the proof. The larger bounds take
// two cores and 6 GB of memory for some minutes more, and twice as long on a busy machine. Their result
// doesn't depend on when or where they are run. "make model LONG=1" keeps that result.
func runModel(ctx context.Context, script string, out io.Writer) error {
	var printed, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", script)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &printed), &problems
	// The script stops its searches on SIGTERM, which takes a moment.
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
