package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func TestImports(t *testing.T) {
	t.Parallel()
	report(t, checkImports(rules, tree(t, root)))
}

func TestEveryRuleNamesAPackage(t *testing.T) {
	t.Parallel()
	report(t, checkUnused(rules, tree(t, root)))
}

func TestPackageDocs(t *testing.T) {
	t.Parallel()
	report(t, checkDocs(tree(t, root)))
}

func TestModules(t *testing.T) {
	t.Parallel()
	if _, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil { // see TestLua
		t.Fatal(err)
	}
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal(run(t, root, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Require) == 0 {
		t.Fatal("go.mod requires nothing: the test looks at the wrong file")
	}
	for _, r := range mod.Require {
		report(t, checkModules([]string{r.Path}))
	}
}

// TestBench: bench is a module of its own, so that only bench requires the libraries that we
// compare with. Of this module it may import what users may, and internal/store, to measure the
// ceiling, and internal/servertest, to start databases. Its tests may also start a Redis.
func TestBench(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "bench", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in bench: %v", err)
	}
	below, err := filepath.Glob(filepath.Join(root, "bench", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, below...)
	for _, file := range files {
		report(t, checkBench(file, importsOf(t, file)))
	}
	if len(checkBench("planted", []string{module + "/internal/wire"})) != 1 || len(checkBench("planted", []string{module + "/lock", module + "/internal/store", module + "/internal/servertest"})) != 0 ||
		len(checkBench("planted.go", []string{module + "/internal/redistest"})) != 1 || len(checkBench("planted_test.go", []string{module + "/internal/redistest"})) != 0 {
		t.Error("a planted import of internal/wire or internal/redistest is not found, or an allowed one is")
	}
}

// TestCommand: cmd/signalbox is a module of its own, so that what it needs for a terminal lives only there. It stands on what
// users have: package inspect to look and act, package scheduler to enqueue, package web for its pages.
func TestCommand(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "cmd", "signalbox", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in cmd/signalbox: %v", err)
	}
	for _, file := range files {
		report(t, checkCommand(file, importsOf(t, file)))
	}
	if len(checkCommand("planted.go", []string{module + "/internal/store"})) != 1 || len(checkCommand("planted.go", []string{module + "/worker"})) != 1 ||
		len(checkCommand("planted.go", []string{module, module + "/inspect"})) != 0 || len(checkCommand("planted_test.go", []string{module + "/worker"})) != 0 {
		t.Error("a planted import of internal/store or worker is not found, or an allowed one is")
	}
}

func TestLua(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && (skipped(d.Name()) || ownModule(path)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			report(t, checkLua(filepath.ToSlash(rel), nil))
			return nil
		}
		// Tests are read too, and the result is dropped: go test repeats a cached result unless a
		// file changed that the test itself opened. go list opens them in another process.
		src, err := os.ReadFile(path)
		if err != nil || strings.HasSuffix(rel, "_test.go") {
			return err
		}
		seen++
		report(t, checkLua(filepath.ToSlash(rel), selectors(t, rel, src)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Fatal("no Go file was looked at")
	}
}

// TestLuaNumbers: a reply of a script never contains a number with a fraction.
func TestLuaNumbers(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"internal/store/scripts", "internal/store/scripts/chapters", "lock/scripts", "lock/redlock/scripts", "lock/internal/lua"} {
		files, err := filepath.Glob(filepath.Join(root, home, "*.lua"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no scripts in %s: %v", home, err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rel := home + "/" + filepath.Base(file)
			report(t, checkLuaNumbers(rel, string(src)))
			for _, allowed := range fractions[rel] {
				if !strings.Contains(string(src), allowed) {
					t.Errorf("%s has no line %q any more: delete the exception", rel, allowed)
				}
			}
		}
	}
}

// tree returns all packages of the module in dir, as the go command sees them.
func tree(t *testing.T, dir string) []pkg {
	t.Helper()
	const fields = "ImportPath,Name,Dir,Doc,Imports,TestImports,XTestImports,IgnoredGoFiles"
	dec := json.NewDecoder(bytes.NewReader(run(t, dir, "list", "-e", "-json="+fields, "./...")))
	var pkgs []pkg
	for {
		var p struct {
			ImportPath, Name, Dir, Doc         string
			Imports, TestImports, XTestImports []string
			IgnoredGoFiles                     []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		path, ok := within(p.ImportPath)
		if !ok {
			t.Fatalf("%s is not in module %s", p.ImportPath, module)
		}
		out := pkg{path: path, name: p.Name, doc: p.Doc, imports: p.Imports, testImports: append(p.TestImports, p.XTestImports...)}
		for _, file := range p.IgnoredGoFiles { // for another system, or with a build tag
			imports := importsOf(t, filepath.Join(p.Dir, file))
			if strings.HasSuffix(file, "_test.go") {
				out.testImports = append(out.testImports, imports...)
			} else {
				out.imports = append(out.imports, imports...)
			}
		}
		pkgs = append(pkgs, out)
	}
	if len(pkgs) == 0 {
		t.Fatal("the module has no package")
	}
	return pkgs
}

// run runs the go command in dir and returns its output.
func run(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, path)
	}
	return list
}

// selectors returns every name that follows a dot in a Go file.
func selectors(t *testing.T, name string, src []byte) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			list = append(list, s.Sel.Name)
		}
		return true
	})
	return list
}

// skipped reports whether the go command ignores folders of that name.
func skipped(name string) bool {
	return name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func ownModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func report(t *testing.T, wrong []string) {
	t.Helper()
	for _, line := range wrong {
		t.Error(line)
	}
}
