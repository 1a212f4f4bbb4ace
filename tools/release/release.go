package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// release commits and tags a version, if ci passes. It leaves everything as it was otherwise.
func release(ctx context.Context, t tree, version string, ci []string) (err error) {
	git := func(args ...string) (string, error) { return command(ctx, t.root, nil, "git", args...) }
	dirs, err := t.released()
	if err != nil {
		return err
	}
	if err := checkVersion(ctx, t, dirs, version); err != nil {
		return err
	}
	branch, err := git("symbolic-ref", "--short", "HEAD")
	if err != nil {
		return errors.New("no branch is checked out: check out the one to release from")
	}
	begin, err := git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	log, err := os.ReadFile(t.in("CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, log2, err := cutChangelog(string(log), version, time.Now().UTC().Format(time.DateOnly))
	if err != nil {
		return err
	}
	if err := clean(ctx, t); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, ci[0], ci[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.root, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the tree is red: %s: %w", strings.Join(ci, " "), err)
	}
	if err := clean(ctx, t); err != nil {
		return err
	}
	if now, err := git("rev-parse", "HEAD"); err != nil || now != begin {
		return cmp.Or(err, errors.New("HEAD has moved since the tests began: run this again"))
	}

	// The commits, in a worktree aside.
	aside, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	work := tree{filepath.Join(aside, "tree")}
	defer func() {
		c := context.WithoutCancel(ctx)
		_, gone := command(c, t.root, nil, "git", "worktree", "remove", "--force", work.root)
		err = errors.Join(err, gone, os.RemoveAll(aside))
	}()
	if _, err := git("worktree", "add", "--quiet", "--detach", work.root, begin); err != nil {
		return err
	}
	if err := os.WriteFile(work.in("CHANGELOG.md"), []byte(log2), 0o644); err != nil {
		return err
	}
	if err := errors.Join(work.dropUntil(), work.setVersion(version, true)); err != nil {
		return err
	}
	tagged, err := commit(ctx, work, "release: "+version)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if isCommand(dir) {
			if _, err := command(ctx, work.root, nil, "git", "checkout", "--quiet", begin, "--", dir+"/go.mod"); err != nil {
				return err
			}
		}
	}
	if err := work.setVersion(version, false); err != nil {
		return err
	}
	last, err := commit(ctx, work, "release: commands take the modules of the tree again")
	if err != nil {
		return err
	}

	// All tags and the branch in one transaction, then the files.
	who, err := git("var", "GIT_COMMITTER_IDENT")
	if err != nil {
		return err
	}
	head := "refs/heads/" + branch
	there, back := fmt.Sprintf("update %s %s %s\n", head, last, begin), fmt.Sprintf("update %s %s %s\n", head, begin, last)
	push := []string{"git push --atomic origin", branch}
	for _, dir := range dirs {
		tag := tagOf(dir, version)
		object, err := gitIn(ctx, t, fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger %s\n\n%s\n\n%s\n", tagged, tag, who, tag, notes), "mktag")
		if err != nil {
			return err
		}
		there += fmt.Sprintf("create refs/tags/%s %s\n", tag, object)
		back += fmt.Sprintf("delete refs/tags/%s %s\n", tag, object)
		push = append(push, tag)
	}
	if _, err := gitIn(ctx, t, there, "update-ref", "--stdin"); err != nil {
		return err
	}
	if _, err := git("read-tree", "-m", "-u", begin, last); err != nil {
		_, refs := gitIn(context.WithoutCancel(ctx), t, back, "update-ref", "--stdin")
		return errors.Join(err, refs) // no reset: somebody has changed a file meanwhile
	}
	fmt.Printf("release: %s is committed and tagged. Publish it, with these notes (git tag -l --format='%%(contents)' %s):\n  %s\n", version, version, strings.Join(push, " "))
	return nil
}

// checkVersion reports what is wrong with a version for a release of the tree.
func checkVersion(ctx context.Context, t tree, dirs []string, version string) error {
	if semver.Canonical(version) != version || version == "" {
		return fmt.Errorf("%q is no version: want v and three numbers, such as v0.2.0", version)
	}
	for _, dir := range dirs {
		f, err := t.mod(dir)
		if err != nil {
			return err
		}
		if err := module.Check(f.Module.Mod.Path, version); err != nil {
			return fmt.Errorf("%s/go.mod: %w: from v2 on the path of a module ends in its major version", dir, err)
		}
	}
	tags, err := command(ctx, t.root, nil, "git", "tag", "-l")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if tag := tagOf(dir, version); slices.Contains(strings.Fields(tags), tag) {
			return fmt.Errorf("the tag %s exists: take a higher version, or if nobody has fetched it, delete it", tag)
		}
	}
	if last := lastVersion(tags, dirs); last != "" && semver.Compare(version, last) < 0 {
		return fmt.Errorf("%s is lower than %s, which is tagged: take a higher version", version, last)
	}
	return nil
}

// lastVersion returns the highest version of any released module that is tagged, or "".
func lastVersion(tags string, dirs []string) (last string) {
	for tag := range strings.FieldsSeq(tags) {
		for _, dir := range dirs {
			version := strings.TrimPrefix(tag, tagOf(dir, ""))
			if tagOf(dir, version) == tag && semver.IsValid(version) && (last == "" || semver.Compare(version, last) > 0) {
				last = version
			}
		}
	}
	return last
}

// clean reports what is in the tree and isn't committed.
func clean(ctx context.Context, t tree) error {
	status, err := command(ctx, t.root, nil, "git", "status", "--porcelain")
	if err == nil && status != "" {
		err = fmt.Errorf("the tree is dirty: commit this, or take it away:\n%s", status)
	}
	return err
}

// commit commits all that has changed, and returns the commit.
func commit(ctx context.Context, t tree, message string) (string, error) {
	for _, args := range [][]string{{"add", "--all"}, {"commit", "--quiet", "--allow-empty", "-m", message}} {
		if _, err := command(ctx, t.root, nil, "git", args...); err != nil {
			return "", err
		}
	}
	return command(ctx, t.root, nil, "git", "rev-parse", "HEAD")
}

// gitIn runs git with an input.
func gitIn(ctx context.Context, t tree, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stdin = t.root, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
