// Command release makes a release of all public modules in step, or proves that one could be made.
//
//	cd tools && go run ./release v0.2.0   # commits and tags; pushes nothing
//	cd tools && go run ./release -check   # what make release-check runs
//
// The public modules are the folders in modules.txt. A release is two commits. In the first each module requires its siblings at the version,
// CHANGELOG.md has a section for it, and what README.md and docs/ say between "<!-- until a version exists -->" and "<!-- end -->" is gone; what a comment
// "<!-- from then on" has there is text. The modules of commands have no replace lines, or go install would refuse them. So they can't be built in the
// tree, and the second commit has those lines again. The tags are on the first one: VERSION, cmd/signalbox/VERSION and so on.
//
// Nothing is left half-done. The commits are made in a worktree aside, and one transaction of git makes all tags and moves the branch.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	checks := flag.Bool("check", false, "prove that a release of this tree works, and make none")
	root := flag.String("C", "..", "the `folder` of the tree")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := tree{*root}
	var err error
	switch {
	case *checks && flag.NArg() == 0:
		err = check(ctx, t)
	case !*checks && flag.NArg() == 1:
		err = release(ctx, t, flag.Arg(0), []string{".ci/run"})
	default:
		err = fmt.Errorf("want a version, such as v0.2.0, or -check: got %q", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// command runs a program in a folder and returns what it prints. An error has that, too.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}
