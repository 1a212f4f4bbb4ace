package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// tree is a folder with the source of all modules.
type tree struct{ root string }

func (t tree) in(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

// released returns the folders of the public modules. The root is the first.
func (t tree) released() ([]string, error) {
	text, err := os.ReadFile(t.in("tools/release/modules.txt"))
	dirs := strings.Fields(string(text))
	if err == nil && (len(dirs) == 0 || dirs[0] != ".") {
		err = errors.New("tools/release/modules.txt: want the folders of the public modules, and . as the first")
	}
	return dirs, err
}

// isCommand reports whether the module in a folder is one that go install builds.
func isCommand(dir string) bool { return strings.HasPrefix(dir, "cmd/") }

// tagOf returns the tag by which go finds a version of the module in a folder.
func tagOf(dir, version string) string {
	if dir == "." {
		return version
	}
	return dir + "/" + version
}

// mod reads the go.mod of the module in a folder.
func (t tree) mod(dir string) (*modfile.File, error) {
	name := t.in(dir + "/go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// path returns the module path of the root.
func (t tree) path() (string, error) {
	f, err := t.mod(".")
	if err != nil {
		return "", err
	}
	return f.Module.Mod.Path, nil
}

// ours reports whether a module is the root's, or below it.
func ours(root, path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// setVersion has each go.mod of the tree require our modules at a version. With standalone the modules of commands lose the lines that
// replace these.
func (t tree) setVersion(version string, standalone bool) error {
	root, err := t.path()
	if err != nil {
		return err
	}
	return filepath.WalkDir(t.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		dir, err := filepath.Rel(t.root, filepath.Dir(name))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		f, err := t.mod(dir)
		if err != nil {
			return err
		}
		for _, r := range f.Require {
			if ours(root, r.Mod.Path) {
				if err := f.AddRequire(r.Mod.Path, version); err != nil {
					return err
				}
			}
		}
		for _, r := range f.Replace {
			if standalone && isCommand(dir) && ours(root, r.Old.Path) {
				if err := f.DropReplace(r.Old.Path, r.Old.Version); err != nil {
					return err
				}
			}
		}
		f.Cleanup()
		text, err := f.Format()
		if err != nil {
			return err
		}
		return os.WriteFile(name, text, 0o644)
	})
}

const unreleased = "\n## [Unreleased]\n"

// cutChangelog returns what CHANGELOG.md says of the next version, and its text with a section for that.
func cutChangelog(text, version, date string) (notes, after string, err error) {
	number := strings.TrimPrefix(version, "v")
	before, rest, ok := strings.Cut(text, unreleased)
	if !ok {
		return "", "", errors.New("CHANGELOG.md has no section \"## [Unreleased]\": write one that says what changed for users")
	}
	if strings.Contains(text, "\n## ["+number+"]") {
		return "", "", fmt.Errorf("CHANGELOG.md has a section for %s already: take another version", number)
	}
	notes, _, _ = strings.Cut(rest, "\n## [")
	notes = strings.TrimSpace(notes)
	if notes == "" {
		return "", "", errors.New("CHANGELOG.md says nothing under \"## [Unreleased]\": write what changed for users")
	}
	return notes, before + unreleased + "\n## [" + number + "] - " + date + "\n" + rest, nil
}

const (
	untilBegin = "<!-- until a version exists -->\n"
	untilEnd   = "<!-- end -->\n"
)

// until is what holds only until a version exists. There may be a comment in it, with what holds from then on.
var (
	until      = regexp.MustCompile("(?s)" + untilBegin + ".*?" + untilEnd)
	fromThenOn = regexp.MustCompile("(?s)<!-- from then on\n(.*?)-->\n")
)

// dropUntil removes from README.md, docs/ and the folders in it what holds only until a version exists, and shows what holds from then on.
func (t tree) dropUntil() error {
	pages, err1 := filepath.Glob(t.in("docs/*.md"))
	below, err2 := filepath.Glob(t.in("docs/*/*.md"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, page := range append(slices.Concat(pages, below), t.in("README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		after := until.ReplaceAllStringFunc(string(text), func(block string) string {
			if m := fromThenOn.FindStringSubmatch(block); m != nil {
				return m[1]
			}
			return ""
		})
		if strings.Contains(after, untilBegin) {
			return fmt.Errorf("%s: a line %q has no %q behind it", page, strings.TrimSpace(untilBegin), strings.TrimSpace(untilEnd))
		}
		if after != string(text) {
			if err := os.WriteFile(page, []byte(after), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
