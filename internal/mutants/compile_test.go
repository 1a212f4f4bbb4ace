package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The code with a bug compiles, for each bug of the root module: a name that a bug writes may have moved, or have another meaning now. It is seen with
// every test here, and not only when a run tries that bug. Of the package only the files that a bug changes are looked at in whole, and of the others
// the declarations: what a bug makes of a signature is not seen where that is called. Bugs of other modules are compiled only when they are tried.
func TestBugsCompile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: it compiles what the tree imports")
	}
	const tree = "../.."
	files, err := filepath.Glob(tree + "/testdata/mutants/*.bug")
	if err != nil {
		t.Fatal(err)
	}
	packages := listed(t, tree)
	seen := 0
	for _, file := range files {
		b, err := load(file)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := b.seeded(tree)
		if err != nil {
			t.Error(err)
			continue
		}
		changed := map[string]map[string][]byte{} // by folder, by file
		for path, text := range texts {
			dir := filepath.Dir(path)
			if packages[dir] == nil || filepath.Ext(path) != ".go" {
				continue
			}
			if changed[dir] == nil {
				changed[dir] = map[string][]byte{}
			}
			changed[dir][filepath.Base(path)] = text
		}
		for dir, texts := range changed {
			seen++
			if err := packages[dir].compiles(texts); err != nil {
				t.Errorf("%s: %s doesn't compile with it: %v", b.name, dir, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no bug of Go code: the test looks for the wrong folders")
	}
}

func TestCompiles(t *testing.T) {
	t.Parallel()
	tree := write(t, map[string]string{
		"go.mod": "module example.com/a\n\ngo 1.24\n",
		"a.go":   "package a\n\nimport \"strings\"\n\nfunc a(s string) string { return strings.ToUpper(s) }\n",
		"b.go":   "package a\n\nfunc b() string { return a(\"b\") }\n",
	})
	p := listed(t, tree)["."]
	if p == nil {
		t.Fatal("the package isn't listed")
	}
	for _, tt := range []struct{ text, want string }{
		{"package a\n\nimport \"strings\"\n\nfunc a(s string) string { return strings.ToLower(s) }\n", ""},
		{"package a\n\nimport \"strings\"\n\nfunc a(s string) string { return s }\n", "imported and not used"},
		{"package a\n\nimport \"strings\"\n\nfunc a(s string) string { return strings.Lower(s) }\n", "undefined: strings.Lower"},
		{"package a\n\nfunc a(s string) string { return c(s) }\n", "undefined: c"},
		{"package a\n\nfunc a(s string) string { return b() }\n", ""},
		{"package a\n\nfunc a(s string) string {\n", "expected '}'"},
	} {
		err := p.compiles(map[string][]byte{"a.go": []byte(tt.text)})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// A compiled is a package of a tree, and what it imports.
type compiled struct {
	dir     string
	files   []string // without tests
	imports types.Importer
	set     *token.FileSet
	shells  map[string]*ast.File // by file, without what functions do
}

// listed has the packages of the module in a folder, by their folders in it.
func listed(t *testing.T, tree string) map[string]*compiled {
	t.Helper()
	tree, err := filepath.Abs(tree)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}", "./...")
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	packages := map[string]*compiled{}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("package %s is not compiled", path)
		}
		return os.Open(exports[path])
	})
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[fields[0]] = fields[1]
		dir, err := filepath.Rel(tree, fields[2])
		if err != nil || !filepath.IsLocal(dir) {
			continue
		}
		packages[dir] = &compiled{dir: fields[2], files: strings.Fields(fields[3]), imports: imports, set: set, shells: map[string]*ast.File{}}
	}
	return packages
}

// compiles says why the package doesn't compile with other texts of some of its files.
func (p *compiled) compiles(texts map[string][]byte) error {
	var files []*ast.File
	for name := range texts {
		if !slices.Contains(p.files, name) {
			return fmt.Errorf("%s is a test, or isn't built here", name)
		}
	}
	for _, name := range p.files {
		file, err := p.shell(name)
		if text, ok := texts[name]; ok {
			file, err = parser.ParseFile(p.set, name, text, parser.SkipObjectResolution)
		}
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var all []error
	config := types.Config{Importer: p.imports, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) && texts[filepath.Base(p.set.Position(e.Pos).Filename)] == nil && e.Soft {
			return // a shell uses few of its imports
		}
		all = append(all, err)
	}}
	_, _ = config.Check(p.dir, p.set, files, nil) // Error gets all errors
	return errors.Join(all...)
}

// shell returns a file whose functions have no bodies.
func (p *compiled) shell(name string) (*ast.File, error) {
	if file := p.shells[name]; file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(p.set, filepath.Join(p.dir, name), nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	p.shells[name] = file
	return file, nil
}
