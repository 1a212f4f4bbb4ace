package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// axeVersion is the version of axe-core.
const axeVersion = "4.14.1"

// fetchAxe has npm fetch axe-core into a folder, and returns its script.
func fetchAxe(ctx context.Context, dir string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", servertest.ErrMissing{Program: "npm", Package: "npm"}
	}
	for try := 0; ; try++ {
		cmd := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "axe-core@"+axeVersion)
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if try == 2 || ctx.Err() != nil {
			return "", fmt.Errorf("npm install axe-core@%s: %w\n%s", axeVersion, errors.Join(err, ctx.Err()), out)
		}
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(script), err
}
