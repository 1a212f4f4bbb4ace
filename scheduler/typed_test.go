package scheduler_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Each call accepts exactly the options that have a meaning there. Others don't compile: see
// testdata/options.go.txt.
func TestOptionsAreTyped(t *testing.T) {
	t.Parallel()
	const path = "testdata/options.go.txt"
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(map[int]string) // the compiler's error by line
	config := types.Config{
		Importer: importer.ForCompiler(files, "gc", exports(t)),
		Error: func(err error) {
			if e, ok := err.(types.Error); ok {
				refused[files.Position(e.Pos).Line] = e.Msg
			} else {
				t.Error(err)
			}
		},
	}
	_, _ = config.Check(path, files, []*ast.File{file}, nil) // Error gets all errors
	marks := 0
	for _, group := range file.Comments {
		if strings.TrimSpace(group.Text()) != "refused" {
			continue
		}
		marks++
		line := files.Position(group.Pos()).Line
		if refused[line] == "" {
			t.Errorf("%s:%d compiles", path, line)
		}
		delete(refused, line)
	}
	for line, msg := range refused {
		t.Errorf("%s:%d doesn't compile: %s", path, line, msg)
	}
	if marks == 0 {
		t.Error("no line is marked: the test looks for the wrong word")
	}
}

// exports returns a function that finds the compiled packages which a program with this package imports.
func exports(t *testing.T) func(path string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	compiled := make(map[string]string)
	for _, line := range strings.Fields(string(out)) {
		path, file, _ := strings.Cut(line, "=")
		compiled[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("package %s is not compiled", path)
		}
		return os.Open(compiled[path])
	}
}
