package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A tree of a library, a module that uses an internal package of it, and a command. Nothing is fetched for it.
var small = map[string]string{
	"go.mod":                    "module example.com/box\n\ngo 1.26.0\n",
	"box.go":                    "package box\n\nimport \"example.com/box/internal/shared\"\n\nfunc Open() int { return shared.One() }\n",
	"internal/shared/shared.go": "package shared\n\nfunc One() int { return 1 }\n",
	"LICENSE":                   "licence\n",
	"README.md":                 "# Box\n\n<!-- until a version exists -->\nClone it.\n<!-- end -->\n\n<!-- until a version exists -->\nBuild it.\n<!-- from then on\nInstall it.\n-->\n<!-- end -->\nUse it.\n",
	"CHANGELOG.md":              "# Changelog\n\n## [Unreleased]\n\n- **Boxes.**\n",
	"guide_test.go":             "package box\n\nimport \"testing\"\n\nfunc TestGuide(*testing.T) {}\n",
	"docs/page.md":              "# Page\n",
	"tools/release/modules.txt": ".\nlock/part\ncmd/box\n",
	"lock/part/go.mod":          "module example.com/box/lock/part\n\ngo 1.26.0\n\nrequire example.com/box v0.1.0\n\nreplace example.com/box => ../..\n",
	"lock/part/part.go":         "package part\n\nimport \"example.com/box/internal/shared\"\n\nfunc Two() int { return shared.One() + 1 }\n",
	"lock/part/LICENSE":         "licence\n",
	"cmd/box/go.mod":            "module example.com/box/cmd/box\n\ngo 1.26.0\n\nrequire example.com/box v0.1.0\n\nreplace example.com/box => ../..\n",
	"cmd/box/main.go":           "package main\n\nimport \"example.com/box\"\n\nfunc main() { println(box.Open()) }\n",
	"cmd/box/LICENSE":           "licence\n",
	"examples/go.mod":           "module example.com/box/examples\n\ngo 1.26.0\n\nrequire example.com/box/lock/part v0.1.0\n\nrequire example.com/box v0.1.0 // indirect\n\nreplace (\n\texample.com/box => ../\n\texample.com/box/lock/part => ../lock/part\n)\n",
	"examples/example.go":       "package examples\n\nimport _ \"example.com/box/lock/part\"\n",
}

// newTree returns the small tree as a repository.
func newTree(t *testing.T) tree {
	t.Helper()
	for name, value := range map[string]string{"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull, "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com"} {
		t.Setenv(name, value)
	}
	work := tree{t.TempDir()}
	for name, text := range small {
		work.write(t, name, text)
	}
	work.git(t, "init", "--quiet", "--initial-branch=main")
	work.commit(t)
	return work
}

func (t tree) write(tt *testing.T, name, text string) {
	tt.Helper()
	if err := os.MkdirAll(filepath.Dir(t.in(name)), 0o755); err != nil {
		tt.Fatal(err)
	}
	if err := os.WriteFile(t.in(name), []byte(text), 0o644); err != nil {
		tt.Fatal(err)
	}
}

func (t tree) git(tt *testing.T, args ...string) string {
	tt.Helper()
	out, err := command(tt.Context(), t.root, nil, "git", args...)
	if err != nil {
		tt.Fatal(err)
	}
	return out
}

func (t tree) commit(tt *testing.T) {
	tt.Helper()
	if _, err := commit(tt.Context(), t, "a change"); err != nil {
		tt.Fatal(err)
	}
}

// state returns all that a release may change.
func (t tree) state(tt *testing.T) string {
	tt.Helper()
	return t.git(tt, "for-each-ref") + "\n" + t.git(tt, "status", "--porcelain", "--branch") + "\n" + t.git(tt, "worktree", "list")
}

func TestRelease(t *testing.T) {
	work := newTree(t)
	if err := release(t.Context(), work, "v0.1.0", []string{"true"}); err != nil {
		t.Fatal(err)
	}
	if got := work.git(t, "tag", "-l"); got != "cmd/box/v0.1.0\nlock/part/v0.1.0\nv0.1.0" {
		t.Errorf("the tags are %q", got)
	}
	for _, tag := range strings.Fields(work.git(t, "tag", "-l")) {
		if work.git(t, "rev-parse", tag+"^{commit}") != work.git(t, "rev-parse", "main~1") {
			t.Errorf("%s is not on the first of the two commits", tag)
		}
	}
	if notes := work.git(t, "tag", "-l", "--format=%(contents)", "v0.1.0"); !strings.Contains(notes, "- **Boxes.**") {
		t.Errorf("the notes are %q", notes)
	}
	if got := work.git(t, "show", "v0.1.0:cmd/box/go.mod"); strings.Contains(got, "replace") || !strings.Contains(got, "example.com/box v0.1.0") {
		t.Errorf("the command's go.mod, as released:\n%s", got)
	}
	if got := work.git(t, "show", "main:cmd/box/go.mod"); got != strings.TrimSpace(small["cmd/box/go.mod"]) {
		t.Errorf("the command's go.mod, afterwards:\n%s", got)
	}
	if got := work.git(t, "show", "v0.1.0:CHANGELOG.md"); !strings.Contains(got, "## [Unreleased]\n\n## [0.1.0] - 20") || !strings.HasSuffix(got, "\n\n- **Boxes.**") {
		t.Errorf("the changelog:\n%s", got)
	}
	if got := work.git(t, "show", "v0.1.0:README.md"); got != "# Box\n\n\nInstall it.\nUse it." {
		t.Errorf("README.md: %q", got)
	}
	if got := work.git(t, "status", "--porcelain") + work.git(t, "branch", "--show-current"); got != "main" {
		t.Errorf("the tree is not clean, or another branch: %q", got)
	}
	if got := work.git(t, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("a worktree is left:\n%s", got)
	}

	// The next one: all modules of the tree go along, also those that nobody fetches.
	work.write(t, "CHANGELOG.md", strings.Replace(work.git(t, "show", "main:CHANGELOG.md"), "## [Unreleased]\n", "## [Unreleased]\n\n- More.\n", 1))
	work.commit(t)
	if err := release(t.Context(), work, "v0.2.0-rc.1", []string{"true"}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"v0.2.0-rc.1", "main"} {
		for _, mod := range []string{"examples", "lock/part", "cmd/box"} {
			if got := work.git(t, "show", at+":"+mod+"/go.mod"); strings.Contains(got, "v0.1.0") || !strings.Contains(got, "v0.2.0-rc.1") {
				t.Errorf("%s/go.mod at %s:\n%s", mod, at, got)
			}
		}
	}
	if notes := work.git(t, "tag", "-l", "--format=%(contents)", "v0.2.0-rc.1"); strings.Contains(notes, "Boxes") || !strings.Contains(notes, "- More.") {
		t.Errorf("the notes of the second one are %q", notes)
	}
}

// What can't be released is refused, with what to do, and nothing is left of the try.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, version, want string
		ci                  string
		before              func(work tree)
	}{
		{name: "no v", version: "0.2.0", want: "want v and three numbers"},
		{name: "short", version: "v1.2", want: "want v and three numbers"},
		{name: "a build", version: "v1.2.3+build", want: "want v and three numbers"},
		{name: "empty", version: "", want: "want v and three numbers"},
		{name: "another major version", version: "v2.0.0", want: "ends in its major version"},
		{name: "lower", version: "v0.1.9", want: "v0.1.9 is lower than v0.2.0", before: func(w tree) { w.git(t, "tag", "lock/part/v0.2.0") }},
		{name: "a release candidate of what is out", version: "v0.2.0-rc.1", want: "is lower than v0.2.0", before: func(w tree) { w.git(t, "tag", "v0.2.0") }},
		{name: "a tag", version: "v0.2.0", want: "the tag v0.2.0 exists", before: func(w tree) { w.git(t, "tag", "v0.2.0") }},
		{name: "a tag of one module", version: "v0.2.0", want: "the tag cmd/box/v0.2.0 exists", before: func(w tree) { w.git(t, "tag", "cmd/box/v0.2.0") }},
		{name: "a changed file", version: "v0.2.0", want: "the tree is dirty", before: func(w tree) { w.write(t, "box.go", "package box\n") }},
		{name: "a new file", version: "v0.2.0", want: "new.go", before: func(w tree) { w.write(t, "new.go", "package box\n") }},
		{name: "a staged file", version: "v0.2.0", want: "the tree is dirty", before: func(w tree) { w.write(t, "new.go", "package box\n"); w.git(t, "add", "new.go") }},
		{name: "red", version: "v0.2.0", want: "the tree is red: false", ci: "false"},
		{name: "tests that write", version: "v0.2.0", want: "left.txt", ci: "touch left.txt"},
		{name: "a commit meanwhile", version: "v0.2.0", want: "HEAD has moved", ci: "git commit --quiet --allow-empty -m meanwhile"},
		{name: "a tag meanwhile", version: "v0.2.0", want: "refs/tags/lock/part/v0.2.0", ci: "git tag lock/part/v0.2.0"},
		{name: "no changelog", version: "v0.2.0", want: "CHANGELOG.md", before: func(w tree) { w.git(t, "rm", "--quiet", "CHANGELOG.md"); w.commit(t) }},
		{name: "no section", version: "v0.2.0", want: "has no section", before: func(w tree) { w.write(t, "CHANGELOG.md", "# Changelog\n"); w.commit(t) }},
		{name: "an empty section", version: "v0.2.0", want: "says nothing under", before: func(w tree) {
			w.write(t, "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2020-01-01\n\n- Old.\n")
			w.commit(t)
		}},
		{name: "a section of the version", version: "v0.2.0", want: "a section for 0.2.0 already", before: func(w tree) {
			w.write(t, "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.2.0] - 2020-01-01\n")
			w.commit(t)
		}},
		{name: "a block without an end", version: "v0.2.0", want: "has no", before: func(w tree) { w.write(t, "docs/guide/page.md", "<!-- until a version exists -->\nx\n"); w.commit(t) }},
		{name: "no branch", version: "v0.2.0", want: "no branch is checked out", before: func(w tree) { w.git(t, "checkout", "--quiet", "--detach") }},
		{name: "no such module", version: "v0.2.0", want: "lock/gone/go.mod", before: func(w tree) { w.write(t, "tools/release/modules.txt", ".\nlock/gone\n"); w.commit(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := newTree(t)
			if c.before != nil {
				c.before(work)
			}
			before := work.state(t)
			ci := []string{"true"}
			if c.ci != "" {
				ci = strings.Fields(c.ci)
			}
			err := release(t.Context(), work, c.version, ci)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if len(ci) > 1 {
				return // the tests have changed something
			}
			if after := work.state(t); after != before {
				t.Errorf("before:\n%s\nafterwards:\n%s", before, after)
			}
		})
	}
}

// A release that is broken off in its last step takes its tags back.
func TestBrokenOff(t *testing.T) {
	for _, c := range []struct{ name, hook, mine string }{
		{"the branch can't move", "grep -q refs/heads/main && exit 1\nexit 0\n", ""},
		{"somebody edits a file", "[ \"$1\" = committed ] && grep -q ' refs/heads/main' && echo mine >>README.md\nexit 0\n", "\n M README.md"},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := newTree(t)
			before := work.state(t)
			work.write(t, ".git/hooks/reference-transaction", "#!/bin/sh\n"+c.hook)
			if err := os.Chmod(work.in(".git/hooks/reference-transaction"), 0o755); err != nil {
				t.Fatal(err)
			}
			err := release(t.Context(), work, "v0.2.0", []string{"true"})
			if err == nil {
				t.Fatal("it should have failed")
			}
			t.Log(err)
			work.git(t, "config", "core.hooksPath", os.DevNull)
			after := work.state(t)
			if c.mine != "" && !strings.Contains(after, c.mine) {
				t.Errorf("the edit is gone:\n%s", after)
			}
			if after := strings.Replace(after, c.mine, "", 1); after != before {
				t.Errorf("before:\n%s\nafterwards:\n%s", before, after)
			}
		})
	}
}

// A renamed function of what modules share is found: modules of the version before don't build any more.
func TestSkew(t *testing.T) {
	work := newTree(t)
	if err := release(t.Context(), work, "v0.1.0", []string{"true"}); err != nil {
		t.Fatal(err)
	}
	skewed := func() int {
		dir := t.TempDir()
		proxy := filepath.Join(dir, "proxy")
		now, old := tree{filepath.Join(dir, "now")}, tree{filepath.Join(dir, "before")}
		if err := work.copyTo(t.Context(), now.root); err != nil {
			t.Fatal(err)
		}
		if err := now.setVersion("v0.999.0", true); err != nil {
			t.Fatal(err)
		}
		if err := now.publish(".", "v0.999.0", proxy); err != nil {
			t.Fatal(err)
		}
		if err := work.extract(t.Context(), "v0.1.0", old.root); err != nil {
			t.Fatal(err)
		}
		s := newTestStranger(t.Context(), t, dir, proxy)
		n, err := s.skew(t.Context(), old, proxy, "v0.1.0")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := skewed(); n != 0 {
		t.Errorf("%d modules don't build with a root that is the same", n)
	}
	work.write(t, "internal/shared/shared.go", "package shared\n\nfunc Uno() int { return 1 }\n")
	work.write(t, "box.go", "package box\n\nimport \"example.com/box/internal/shared\"\n\nfunc Open() int { return shared.Uno() }\n")
	work.write(t, "lock/part/part.go", "package part\n\nimport \"example.com/box/internal/shared\"\n\nfunc Two() int { return shared.Uno() + 1 }\n")
	if n := skewed(); n != 1 {
		t.Errorf("%d modules don't build with a root whose internal package has changed, want 1", n)
	}
}

// The whole check of the small tree, on which nothing has to be fetched.
func TestCheck(t *testing.T) {
	const program = `package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"

	"example.com/box"
)

func main() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGTERM)
	log.Println("opened", box.Open(), "welcome, user 42")
	<-caught
}
`
	command := strings.Replace(small["cmd/box/main.go"], "import \"example.com/box\"\n\nfunc main() { println(box.Open()) }", `import (
	"fmt"
	"runtime/debug"

	"example.com/box"
)

func main() {
	info, _ := debug.ReadBuildInfo()
	fmt.Printf("box %s, %d\n", info.Main.Version, box.Open())
}`, 1)
	work := newTree(t)
	t.Setenv("GOPROXY", "off")
	checked := func(want string, edits ...string) {
		t.Helper()
		for i := 0; i < len(edits); i += 2 {
			work.write(t, edits[i], edits[i+1])
		}
		err := check(t.Context(), work)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	checked("the program of README.md: there is none")
	readme := func(program string) string { return "# Box\n\n```go\n" + program + "```\n" }
	checked("does not contain package example.com/box/gone", "README.md", readme(program), "cmd/box/main.go", command, "docs/page.md", readme("package main\n\nimport _ \"example.com/box/gone\"\n\nfunc main() {}\n"))
	checked("its --version says", "docs/page.md", readme(program), "cmd/box/main.go", strings.Replace(command, "info.Main.Version", `info.Main.Path`, 1))
	checked("", "cmd/box/main.go", command)
	checked("has version 0.1.0, and git no tag", "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2020-01-01\n\n- Old.\n")
	checked("docs/guide: no test has followed them", "CHANGELOG.md", small["CHANGELOG.md"], "guide_test.go", "package box\n")
	checked("it should say", "guide_test.go", small["guide_test.go"], "README.md", readme(strings.Replace(program, "<-caught", "os.Exit(1)", 1)))
}

// newTestStranger returns a stranger who finds the small tree alone.
func newTestStranger(ctx context.Context, t *testing.T, dir, proxy string) *stranger {
	t.Helper()
	s, err := newStranger(ctx, dir, proxy, "example.com/box", "v0.999.0")
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "GOPROXY=file://"+proxy)
	return s
}

func TestLastVersion(t *testing.T) {
	tags := "v0.9.0\nv0.10.0\nother/v3.0.0\nlock/part/v0.10.1\ncmd/box/v0.2.0\nnightly\nv"
	if got := lastVersion(tags, []string{".", "lock/part", "cmd/box"}); got != "v0.10.1" {
		t.Errorf("got %q", got)
	}
	if got := lastVersion("", []string{"."}); got != "" {
		t.Errorf("got %q", got)
	}
}

// An archive without the licence is refused.
func TestLicence(t *testing.T) {
	work := newTree(t)
	if err := os.Remove(work.in("lock/part/LICENSE")); err != nil {
		t.Fatal(err)
	}
	if err := work.publish("lock/part", "v0.2.0", t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no LICENSE") {
		t.Errorf("got %v", err)
	}
}

// The modules of this tree that are released are there, and each requires the others at one version, which is not v0.0.0.
func TestTree(t *testing.T) {
	work := tree{"../.."}
	dirs, err := work.released()
	if err != nil {
		t.Fatal(err)
	}
	root, err := work.path()
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	all := strings.Fields(work.git(t, "ls-files", "go.mod", "*/go.mod"))
	for _, name := range all {
		f, err := work.mod(filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Require {
			if ours(root, r.Mod.Path) && !slices.Contains(versions, r.Mod.Version) {
				versions = append(versions, r.Mod.Version)
			}
		}
	}
	if len(dirs) < 6 || len(all) < len(dirs) || len(versions) != 1 || strings.HasPrefix(versions[0], "v0.0.0") {
		t.Errorf("%d modules are released of %d, and required at %v: want one version, other than v0.0.0", len(dirs), len(all), versions)
	}
}
