package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// A comment of a function that begins with a name, as most do, has the name that the function has now.
func TestNamesInComments(t *testing.T) {
	t.Parallel()
	looked := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && skipped(d.Name()) {
			if d != nil && d.IsDir() && path != root {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		report(t, misnamed(t, path, src))
		return nil
	})
	if err != nil || looked < 100 {
		t.Fatalf("%d files were looked at: %v", looked, err)
	}
}

// misnamed returns which functions of a file have comments that begin with another name.
func misnamed(t *testing.T, path string, src []byte) (wrong []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Doc == nil {
			continue
		}
		word, _, _ := strings.Cut(f.Doc.Text(), " ")
		if name := strings.Trim(word, ",:\n"); name != f.Name.Name && name != "" && unicode.IsLower(rune(name[0])) && !strings.Contains(name, ".") {
			wrong = append(wrong, fmt.Sprintf("%s: the comment of %s begins with %s", path, f.Name.Name, name))
		}
	}
	return wrong
}

func TestPlantedComments(t *testing.T) {
	t.Parallel()
	src := "package p\n\n// had is the name that it had.\nfunc has() {}\n\n// has is its name.\nfunc (t) has() {}\n\n// A sentence.\nfunc other() {}\n\n// p.F is one of others.\nfunc last() {}\n"
	if wrong := misnamed(t, "p.go", []byte(src)); len(wrong) != 1 || !strings.Contains(wrong[0], "of has begins with had") {
		t.Errorf("%q", wrong)
	}
}
