package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stranger is one whose machine has Go and nothing of ours.
type stranger struct {
	work, path, version string
	env                 []string
	programs            int
}

// newStranger has Go look for modules in our proxy, and then where this machine's Go does.
func newStranger(ctx context.Context, work, proxy, path, version string) (*stranger, error) {
	behind, err := command(ctx, work, nil, "go", "env", "GOPROXY")
	if err != nil {
		return nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOPRIVATE", "GONOPROXY", "GOWORK", "GOMODCACHE", "GOBIN"}, name)
	})
	env = append(env, "GOENV=off", "GOPROXY=file://"+proxy+","+behind, "GONOSUMDB="+path, "GOMODCACHE="+filepath.Join(work, "modcache"),
		"GOBIN="+filepath.Join(work, "bin"),
		// The cache of modules can be removed again, and what is built of them is found again by the next check.
		"GOFLAGS=-modcacherw -trimpath")
	return &stranger{work: work, path: path, version: version, env: env}, nil
}

// module makes a module in a folder of its own, as a reader of README.md does.
func (s *stranger) module(ctx context.Context) (dir string, err error) {
	s.programs++
	dir = filepath.Join(s.work, fmt.Sprintf("program%d", s.programs))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, s.goes(ctx, dir, "mod", "init", "example.com/program")
}

func (s *stranger) goes(ctx context.Context, dir string, args ...string) error {
	_, err := command(ctx, dir, s.env, "go", args...)
	return err
}

// build fetches what the program in a folder imports, and builds it.
func (s *stranger) build(ctx context.Context, dir string) error {
	if err := s.goes(ctx, dir, "mod", "tidy"); err != nil {
		return err
	}
	return s.goes(ctx, dir, "build", "-o", os.DevNull, "./...")
}

// library fetches a module, as go get does, beside the root of this tree, and builds all that a program may import of it.
func (s *stranger) library(ctx context.Context, t tree, module, version string) error {
	f, err := t.mod(module)
	if err != nil {
		return err
	}
	dir, err := s.module(ctx)
	if err != nil {
		return err
	}
	gets := []string{"get", f.Module.Mod.Path + "@" + version}
	if version != s.version { // skew: the root is the newer one
		gets = append(gets, s.path+"@"+s.version)
	}
	if err := s.goes(ctx, dir, gets...); err != nil {
		return err
	}
	if isCommand(module) {
		return s.goes(ctx, dir, "build", "-mod=mod", "-o", os.DevNull, f.Module.Mod.Path)
	}
	imports, err := t.packages(ctx, module)
	if err != nil {
		return err
	}
	text := "package program\n\nimport (\n\t_ \"" + strings.Join(imports, "\"\n\t_ \"") + "\"\n)\n"
	if err := os.WriteFile(filepath.Join(dir, "program.go"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := s.build(ctx, dir); err != nil {
		return err
	}
	got, err := command(ctx, dir, s.env, "go", "list", "-m", "all")
	for line := range strings.Lines(got) {
		m := strings.Fields(line)
		if ours(s.path, m[0]) && m[1] != s.version && m[1] != version {
			return fmt.Errorf("it brings in %s at %s", m[0], m[1])
		}
	}
	return err
}

// install installs a command, and asks it for its version.
func (s *stranger) install(ctx context.Context, t tree, module, version string) error {
	f, err := t.mod(module)
	if err != nil {
		return err
	}
	if err := s.goes(ctx, s.work, "install", f.Module.Mod.Path+"@"+version); err != nil {
		return err
	}
	said, err := command(ctx, s.work, s.env, filepath.Join(s.work, "bin", filepath.Base(module)), "--version")
	if err == nil && !strings.Contains(said, " "+version+",") {
		err = fmt.Errorf("its --version says %q, and not %s", said, version)
	}
	return err
}

// docs builds the Go programs of docs/, but for those of the guide, whose steps are followed.
func (s *stranger) docs(ctx context.Context, t tree) error {
	dir, err := s.module(ctx)
	if err != nil {
		return err
	}
	var pages []string
	err = filepath.WalkDir(t.in("docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "guide" {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	count := 0
	for _, page := range pages {
		all, err := programs(page)
		if err != nil {
			return err
		}
		for _, text := range all {
			count++
			name := filepath.Join(dir, fmt.Sprintf("p%d", count), "main.go")
			if err := errors.Join(os.Mkdir(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
				return err
			}
		}
	}
	if count > 0 {
		err = s.build(ctx, dir)
	}
	fmt.Println("release: programs of docs/ built:", count)
	return err
}

// readme builds the program of README.md and runs it on a Redis, until its job has run and SIGTERM has ended it.
func (s *stranger) readme(ctx context.Context, t tree) error {
	all, err := programs(t.in("README.md"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("there is none")
	}
	dir, err := s.module(ctx)
	if err != nil {
		return err
	}
	addr, stop, err := redisServer(ctx, s.work)
	if err != nil {
		return err
	}
	defer stop()
	text := strings.ReplaceAll(all[0], "localhost:6379", addr)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := errors.Join(s.goes(ctx, dir, "mod", "tidy"), s.goes(ctx, dir, "build", "-o", "program", ".")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "program"))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.HasSuffix(lines.Text(), "welcome, user 42") {
			_ = cmd.Process.Signal(syscall.SIGTERM) // if it has ended, Wait says how
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "welcome, user 42") {
		return fmt.Errorf("it should say \"welcome, user 42\", and end well at SIGTERM: %v\n%s", err, log.String())
	}
	fmt.Println("release: the program of README.md runs its job")
	return nil
}

// guide has the test of the guide follow it, as it reads in a release: nothing of the tree is used but the text.
func (s *stranger) guide(ctx context.Context, t tree) error {
	said, err := command(ctx, t.root, s.env, "go", "test", "-count=1", "-v", "-run", "^TestGuide$", ".")
	if err == nil && !strings.Contains(said, "--- PASS: TestGuide ") {
		err = errors.New("no test has followed them: " + said)
	}
	if err == nil {
		fmt.Println("release: the steps of docs/guide can be followed")
	}
	return err
}

// redisServer starts a Redis on a free port.
func redisServer(ctx context.Context, dir string) (addr string, stop func(), err error) {
	for range 5 { // another process may take the port first
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		addr = l.Addr().String()
		_ = l.Close()
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return "", nil, err
		}
		if err := cmd.Start(); err != nil {
			return "", nil, err
		}
		stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				return addr, stop, nil
			}
		}
		stop()
	}
	return "", nil, errors.New("redis-server didn't start")
}
