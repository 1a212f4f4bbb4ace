package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
)

// processEnv makes this program one that measures process-c100 alone, so that two builds of it can
// be compared. It has the server's address, the number of jobs, and who listens.
const processEnv = "SIGNALBOX_BENCH_PROCESS"

// listeners are by the names that processEnv has for them.
var listeners = map[string]func() *telemetry{"nobody": noProviders, "sdk": sdkProviders}

// processAlone is what such a program does. task is the value of the environment variable.
func processAlone(ctx context.Context, task string, out io.Writer) error {
	var addr, who string
	var n int
	if _, err := fmt.Sscan(task, &addr, &n, &who); err != nil {
		return fmt.Errorf("%s: %w", processEnv, err)
	}
	listener, ok := listeners[who]
	if !ok {
		return fmt.Errorf("%s: there is no listener %q", processEnv, who)
	}
	srv := &server{addr: addr, rdb: redis.NewClient(&redis.Options{Addr: addr})}
	defer srv.rdb.Close()
	samples, err := tracedProcess(listener)(ctx, srv, n)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(samples)
}

// removed takes traces and metrics out of the path of a job.
//
//go:embed testdata/removed.patch
var removed string

// signalboxModule is what the patch is of.
const signalboxModule = "github.com/signalbox-go/signalbox"

// A pair is this program, built from its sources as they are and with the patch: both the same way, so
// that nothing else differs.
type pair struct {
	patch string
	dir   string // of the programs, while there are any
}

const (
	asItIs  = "as-it-is"
	patched = "patched"
)

// build fails if the patch doesn't apply, or if what comes out doesn't compile. remove is to be called
// in any case.
func (p *pair) build(ctx context.Context) (err error) {
	if p.dir, err = os.MkdirTemp("", "signalbox-bench-"); err != nil {
		return err
	}
	root, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", signalboxModule))
	if err != nil {
		return fmt.Errorf("bench builds itself, and is to run in its own folder: %w", err)
	}
	overlay, err := p.overlay(ctx, strings.TrimSpace(string(root)))
	if err != nil {
		return err
	}
	for _, name := range []string{asItIs, patched} {
		args := []string{"build", "-buildvcs=false", "-o", p.program(name)}
		if name == patched {
			args = append(args, "-overlay", overlay)
		}
		if _, err := output(exec.CommandContext(ctx, "go", append(args, signalboxModule+"/bench")...)); err != nil {
			return fmt.Errorf("the program %s: %w", name, err)
		}
	}
	return nil
}

func (p *pair) remove() error { return os.RemoveAll(p.dir) }

func (p *pair) program(name string) string { return filepath.Join(p.dir, name) }

// overlay writes a file that has the go command take patched files for those of the tree in root. Go's
// cache knows them by what is in them, not by where they are.
func (p *pair) overlay(ctx context.Context, root string) (file string, err error) {
	tree, replace := filepath.Join(p.dir, "tree"), make(map[string]string)
	for _, name := range p.named("+++ b/") {
		original, copied := filepath.Join(root, name), filepath.Join(tree, name)
		text, err := os.ReadFile(original)
		if err != nil {
			return "", fmt.Errorf("%s: %w", stale, err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(copied), 0o755), os.WriteFile(copied, text, 0o644)); err != nil {
			return "", err
		}
		replace[original] = copied
	}
	for _, name := range p.named("# without: ") {
		original := filepath.Join(root, name)
		if _, err := os.Stat(original); err != nil {
			return "", fmt.Errorf("%s: %w", stale, err)
		}
		replace[original] = ""
	}
	apply := exec.CommandContext(ctx, "git", "apply", "-p1", "-")
	apply.Dir, apply.Stdin = tree, strings.NewReader(p.patch)
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+p.dir) // it is no repository, whatever is above it
	if _, err := output(apply); err != nil {
		return "", fmt.Errorf("%s: %w", stale, err)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = p.program("overlay.json")
	return file, os.WriteFile(file, text, 0o644)
}

// named are the files in the patch's lines that begin so.
func (p *pair) named(prefix string) (names []string) {
	for line := range strings.Lines(p.patch) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			names = append(names, name)
		}
	}
	return names
}

const stale = "bench/testdata/removed.patch is to be brought up to date"

// process runs process-c100 in one of the programs.
func (p *pair) process(name, listener string) measure {
	return func(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
		cmd := exec.CommandContext(ctx, p.program(name))
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", processEnv, srv.addr, n, listener))
		out, err := output(cmd)
		if err != nil {
			return nil, err
		}
		err = json.Unmarshal(out, &samples)
		return samples, err
	}
}

// output runs a command. The error has what it said.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w\n%s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(cmd.Args[:min(len(cmd.Args), 2)], " "), err)
	}
	return out, err
}
