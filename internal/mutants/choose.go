package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// choose returns the bugs to try where there is no time for all. They were all found at a commit. What has changed since may hide a bug that is new,
// whose function has changed, or whose test has. A script in Lua, a file of SQL, and what stands outside of any function count as one function.
// Of the others it takes one in share, drawn by the name of head, so that each commit tries others: they are found
// by what else a test uses, which may have changed as well.
func choose(commit string, share int, head string, files []string) ([]string, error) {
	h, err := newHistory(commit)
	if err != nil {
		return nil, err
	}
	var chosen []string
	for _, file := range files {
		b, err := load(file)
		if err != nil {
			return nil, err
		}
		concerned, err := h.concerns(b)
		if err != nil {
			return nil, err
		}
		draw := fnv.New32a()
		fmt.Fprint(draw, head, b.name)
		if concerned || draw.Sum32()%uint32(share) == 0 {
			chosen = append(chosen, file)
		}
	}
	return chosen, nil
}

// A history says what has changed in a tree since a commit.
type history struct {
	commit  string
	changed map[string]bool     // paths
	old     map[string][]string // lines, of what was looked at
	tests   map[string][]string // by folder: its test files
}

func newHistory(commit string) (*history, error) {
	h := &history{commit: commit, changed: map[string]bool{}, old: map[string][]string{}, tests: map[string][]string{}}
	for _, args := range [][]string{{"diff", "--name-only", "--no-renames", commit, "--"}, {"ls-files", "--others", "--exclude-standard"}} {
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
		}
		for path := range strings.Lines(string(out)) {
			h.changed[strings.TrimSpace(path)] = true
		}
	}
	return h, nil
}

// concerns says whether a bug is new, or what it changes or its test has changed.
func (h *history) concerns(b *bug) (bool, error) {
	if file := "testdata/mutants/" + b.name; h.changed[file+".bug"] && !h.changed[file+".patch"] { // what was a patch at the commit has been made a bug as it was
		return true, nil
	}
	for _, p := range b.places {
		path, at, err := p.where(".")
		if err != nil {
			return false, fmt.Errorf("%s: the place in %s: %w", b.name, p.path, err)
		}
		if !h.changed[path] {
			continue
		}
		now, err := read(".", path)
		if err != nil {
			return false, err
		}
		before := h.before(path)
		was, err := p.find(before)
		if err != nil || !slices.Equal(unit(path, now, at), unit(path, before, was)) {
			return true, nil
		}
	}
	return h.testChanged(strings.TrimPrefix(b.pkg, "./"), b.run)
}

// before has the lines of a file at the commit; none if it wasn't there.
func (h *history) before(path string) []string {
	lines, ok := h.old[path]
	if !ok {
		if text, err := exec.Command("git", "show", h.commit+":"+path).Output(); err == nil {
			lines = split(text)
		}
		h.old[path] = lines
	}
	return lines
}

var word = regexp.MustCompile(`\w+`)

// testChanged says whether a function has changed that runs a test of a folder: TestName, or the one beside the name of a subtest in a table.
func (h *history) testChanged(folder, run string) (bool, error) {
	files, ok := h.tests[folder]
	if !ok {
		var err error
		if files, err = filepath.Glob(filepath.Join(folder, "*_test.go")); err != nil {
			return false, err
		}
		h.tests[folder] = files
	}
	if !slices.ContainsFunc(files, func(f string) bool { return h.changed[filepath.ToSlash(f)] }) {
		return false, nil
	}
	found := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		lines := split(text)
		for _, name := range word.FindAllString(run, -1) {
			functions := []string{name}
			if m := regexp.MustCompile(`\{"` + name + `", (\w+)\}`).FindSubmatch(text); m != nil {
				functions = append(functions, string(m[1]))
			}
			for _, function := range functions {
				at := starts(lines, function)
				if at < 0 {
					continue
				}
				found = true
				path := filepath.ToSlash(file)
				before := h.before(path)
				if was := starts(before, function); h.changed[path] && (was < 0 || !slices.Equal(unit(path, lines, at), unit(path, before, was))) {
					return true, nil
				}
			}
		}
	}
	return !found, nil // a test that we don't know is tried
}

// starts returns the line at which a function begins, or -1.
func starts(lines []string, function string) int {
	return slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "func "+function+"(") })
}

// unit returns the lines of the function or declaration of Go that a line stands in, and what stands above it. Other files are one unit.
func unit(path string, lines []string, at int) []string {
	if filepath.Ext(path) != ".go" {
		return lines
	}
	from, to := at, at
	for from > 0 && !ends(lines[from-1]) {
		from--
	}
	for to < len(lines)-1 && !ends(lines[to]) {
		to++
	}
	return lines[from : to+1]
}

// ends says whether a line ends what stands at the margin of a file of Go.
func ends(l string) bool {
	return l == "}" || l == ")" || strings.HasPrefix(l, "func ") && strings.HasSuffix(l, "}")
}
