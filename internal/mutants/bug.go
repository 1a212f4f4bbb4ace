package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A bug is a file of testdata/mutants.
type bug struct {
	name   string // of its file, without folder and extension
	file   string
	pkg    string // of the test, as ./worker
	run    string // as for go test -run
	flag   string // of the test, or empty
	why    string
	places []place
}

// A place is where a file is changed.
type place struct {
	path  string
	lines []line
}

// A line is one of a place: what is there is replaced by what is not.
type line struct {
	kind byte // ' ', '-' or '+'
	text string
}

var testLine = regexp.MustCompile(`^(\./[a-z/]+) -run '([^']+)'(?: (-[a-z.]+=[0-9]+))?$`)

// parse reads the file of a bug. The error says in which line it is no bug, and what is expected there.
func parse(file string, text []byte) (*bug, error) {
	b := &bug{name: strings.TrimSuffix(filepath.Base(file), ".bug"), file: file}
	for n, l := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		wrong := func(want string) error { return fmt.Errorf("%s:%d: want %s", file, n+1, want) }
		field, value, _ := strings.Cut(l, ": ")
		switch {
		case field == "# test" && b.pkg == "":
			m := testLine.FindStringSubmatch(value)
			if m == nil {
				return nil, wrong(`"# test: ./package -run 'TestName$'", and perhaps a flag as -walk.steps=15000`)
			}
			b.pkg, b.run, b.flag = m[1], m[2], m[3]
			if name := comparing(b.run); name != "" {
				return nil, wrong("a test that runs the code: " + name + " compares its text, and so fails with any change")
			}
		case field == "# why" && b.why == "" && value != "":
			b.why = value
		case strings.HasPrefix(l, "@ ") && fs.ValidPath(l[2:]):
			b.places = append(b.places, place{path: l[2:]})
		case b.places != nil && l != "" && strings.ContainsRune(" -+", rune(l[0])):
			p := &b.places[len(b.places)-1]
			p.lines = append(p.lines, line{l[0], l[1:]})
		default:
			return nil, wrong(`"# test: ", "# why: ", "@ file", or a line of a place, which begins with " ", "-" or "+"`)
		}
	}
	if b.pkg == "" || b.why == "" || b.places == nil {
		return nil, fmt.Errorf(`%s: want a line "# test: ", a line "# why: " and a place`, file)
	}
	for _, p := range b.places {
		if slices.Equal(p.side('-'), p.side('+')) || len(p.side('-')) == 0 {
			return nil, fmt.Errorf("%s: the place in %s changes nothing, or has no line that is there", file, p.path)
		}
	}
	return b, nil
}

// comparisons are tests that compare the text of the code with another one. One that fails with a bug says nothing about the bug.
var comparisons = []string{"TestWireDocHasTheScript", "TestContract"}

// comparing returns the first of the comparisons that go test -run of this would run, or "".
func comparing(run string) string {
	first, _, _ := strings.Cut(run, "/")
	re, err := regexp.Compile(first)
	if err != nil {
		return ""
	}
	for _, name := range comparisons {
		if re.MatchString(name) {
			return name
		}
	}
	return ""
}

// side has the lines that are there before (-) or after (+).
func (p place) side(kind byte) []string {
	var lines []string
	for _, l := range p.lines {
		if l.kind == ' ' || l.kind == kind {
			lines = append(lines, l.text)
		}
	}
	return lines
}

// find returns at which line of a file the place is. White space at the margins counts for nothing, so that code can be indented in another way.
func (p place) find(file []string) (int, error) {
	old := p.side('-')
	at, n := 0, 0
	for i := 0; i+len(old) <= len(file); i++ {
		same := true
		for j := range old {
			if strings.TrimSpace(file[i+j]) != strings.TrimSpace(old[j]) {
				same = false
				break
			}
		}
		if same {
			at = i
			n++
		}
	}
	switch n {
	case 0:
		return 0, errGone
	case 1:
		return at, nil
	}
	return 0, fmt.Errorf("its lines are there %d times: add some that stand before or after them", n)
}

var errGone = errors.New("its lines aren't there")

func split(text []byte) []string { return strings.Split(string(text), "\n") }

// seeded returns what the files of tree have with the bug, by their paths.
func (b *bug) seeded(tree string) (map[string][]byte, error) {
	type change struct {
		from  int
		place place
	}
	changes := map[string][]change{}
	files := map[string][]string{}
	for _, p := range b.places {
		path, at, err := p.where(tree)
		if err != nil {
			return nil, fmt.Errorf("%s: the place in %s: %w", b.name, p.path, err)
		}
		if files[path] == nil {
			if files[path], err = read(tree, path); err != nil {
				return nil, err
			}
		}
		changes[path] = append(changes[path], change{at, p})
	}
	out := map[string][]byte{}
	for path, all := range changes {
		slices.SortFunc(all, func(a, b change) int { return a.from - b.from })
		var lines []string
		next := 0
		for _, c := range all {
			if c.from < next {
				return nil, fmt.Errorf("%s: two places in %s overlap", b.name, path)
			}
			lines = append(lines, files[path][next:c.from]...)
			at := c.from
			for _, l := range c.place.lines {
				switch l.kind {
				case '+':
					lines = append(lines, l.text)
				case ' ':
					lines = append(lines, files[path][at])
					at++
				case '-':
					at++
				}
			}
			next = at
		}
		lines = append(lines, files[path][next:]...)
		out[path] = []byte(strings.Join(lines, "\n"))
	}
	return out, nil
}

// where returns in which file of a tree the place is, and at which line. Code that has moved is found if it is in one other file only.
func (p place) where(tree string) (path string, at int, err error) {
	lines, err := read(tree, p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	if at, err = p.find(lines); !errors.Is(err, errGone) {
		return p.path, at, err
	}
	first := []byte(strings.TrimSpace(p.side('-')[0]))
	found := 0
	err = filepath.WalkDir(tree, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "docs" { // docs has copies of code
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != filepath.Ext(p.path) || strings.HasSuffix(file, "_test.go") != strings.HasSuffix(p.path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, first) {
			return err
		}
		i, err := p.find(split(text))
		if errors.Is(err, errGone) {
			return nil
		}
		if err != nil {
			found++
		}
		found++
		rel, err := filepath.Rel(tree, file)
		path, at = filepath.ToSlash(rel), i
		return err
	})
	switch {
	case err != nil:
		return "", 0, err
	case found == 0:
		return "", 0, fmt.Errorf("%w, nor in any other file: bring it up to date", errGone)
	case found > 1:
		return "", 0, fmt.Errorf("%w, and in other files at more than one place: bring it up to date", errGone)
	}
	return path, at, nil
}

func read(tree, path string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(tree, path))
	if err != nil {
		return nil, err
	}
	return split(text), nil
}
