package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// check publishes the tree at a made-up version in a module proxy made of files, and uses that as a stranger would whose machine has nothing of ours.
func check(ctx context.Context, t tree) (err error) {
	work, err := os.MkdirTemp("", "release-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	dirs, err := t.released()
	if err != nil {
		return err
	}
	path, err := t.path()
	if err != nil {
		return err
	}
	tags, err := command(ctx, t.root, nil, "git", "tag", "-l")
	if err != nil {
		return err
	}
	before := lastVersion(tags, dirs)
	log, err := os.ReadFile(t.in("CHANGELOG.md"))
	if err != nil {
		return err
	}
	if m := section.FindSubmatch(log); m != nil && before == "" {
		return fmt.Errorf("CHANGELOG.md has version %s, and git no tag of any: git fetch --tags, or what has become of its modules is not seen", m[1])
	}
	version := "v0.999.0"
	if before != "" {
		version = semver.Major(before) + ".999.0"
	}

	proxy := filepath.Join(work, "proxy")
	now := tree{filepath.Join(work, "now")}
	if err := t.copyTo(ctx, now.root); err != nil {
		return err
	}
	if err := errors.Join(now.dropUntil(), now.setVersion(version, true)); err != nil {
		return err
	}
	replaced := 0
	for _, dir := range dirs {
		f, err := now.mod(dir)
		if err != nil {
			return err
		}
		if isCommand(dir) {
			replaced += len(f.Replace)
		}
		for _, r := range f.Require {
			if ours(path, r.Mod.Path) && r.Mod.Version != version {
				return fmt.Errorf("%s/go.mod requires %s", dir, r.Mod)
			}
		}
		if err := now.publish(dir, version, proxy); err != nil {
			return err
		}
	}
	s, err := newStranger(ctx, work, proxy, path, version)
	if err != nil {
		return err
	}
	if err := s.readme(ctx, now); err != nil {
		return fmt.Errorf("the program of README.md: %w", err)
	}
	if err := s.docs(ctx, now); err != nil {
		return fmt.Errorf("the programs of docs/: %w", err)
	}
	for _, dir := range dirs {
		use := s.library
		if isCommand(dir) {
			use = s.install
		}
		if err := use(ctx, now, dir, version); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		fmt.Println("release:", dir, "can be fetched and built")
	}

	if err := s.guide(ctx, now); err != nil {
		return fmt.Errorf("the steps of docs/guide: %w", err)
	}

	skewed := 0
	if before == "" {
		fmt.Println("release: there is no version before this one that could be skewed")
	} else {
		old := tree{filepath.Join(work, "before")}
		if err := t.extract(ctx, before, old.root); err != nil {
			return err
		}
		if skewed, err = s.skew(ctx, old, proxy, before); err != nil {
			return err
		}
	}
	result := fmt.Sprintf("modules=%d skew=%d replace=%d", len(dirs), skewed, replaced)
	if skewed > 0 || replaced > 0 {
		return errors.New("FAILED " + result)
	}
	fmt.Println("release: ok " + result)
	return nil
}

// section is the head of a version in CHANGELOG.md.
var section = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+[^\]]*)\]`)

// extract writes the tree of a version that was released into a folder.
func (t tree) extract(ctx context.Context, version, to string) error {
	archive := to + ".tar"
	if _, err := command(ctx, t.root, nil, "git", "archive", "--output="+archive, version); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	_, err := command(ctx, to, nil, "tar", "-xf", archive)
	return err
}

// skew builds the modules of an older version against the root of this one, as a program gets them that has upgraded the root alone.
// It returns how many don't build.
func (s *stranger) skew(ctx context.Context, old tree, proxy, before string) (failed int, err error) {
	dirs, err := old.released()
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		if err := old.publish(dir, before, proxy); err != nil {
			return 0, err
		}
	}
	for _, dir := range dirs[1:] {
		if err := s.library(ctx, old, dir, before); err != nil {
			fmt.Printf("release: %s %s with the root of this tree: %v\n", dir, before, err)
			failed++
			continue
		}
		fmt.Printf("release: %s %s builds with the root of this tree\n", dir, before)
	}
	return failed, nil
}

var program = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// programs returns the Go programs of a page.
func programs(page string) (all []string, err error) {
	text, err := os.ReadFile(page)
	for _, m := range program.FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all, err
}

// packages returns the import paths of what a program may import from the module in a folder.
func (t tree) packages(ctx context.Context, dir string) (paths []string, err error) {
	out, err := command(ctx, t.in(dir), nil, "go", "list", "-e", "-mod=mod", "-f", "{{.Name}} {{len .GoFiles}} {{.ImportPath}}", "./...")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("go list says %q", line)
		}
		hidden := strings.Contains(f[2]+"/", "/internal/") || strings.Contains(f[2], "/examples/") || strings.Contains(f[2], "/testdata/")
		if !hidden && f[1] != "0" && f[0] != "main" {
			paths = append(paths, f[2])
		}
	}
	if paths == nil {
		err = errors.New("it has no packages")
	}
	return paths, err
}
