package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The largest types of package worker have so many fields and methods. A type that needs more has two tasks: make one of them a type of its own, as a
// queue's keeper or claimer are. The numbers may get smaller.
const (
	mostFields  = 23
	mostMethods = 25
)

// A size has the fields and methods of a type. Those of an embedded type of the same package count as its own.
type size struct {
	fields, methods int
	embedded        []string
}

// TestSizes: no type of package worker grows into one that does everything.
func TestSizes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "worker", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	src := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			src[file] = string(text)
		}
	}
	sizes := sizesOf(t, src)
	if sizes["queue"].fields == 0 || sizes["keeper"].methods == 0 {
		t.Fatal("the types of package worker are not found")
	}
	report(t, checkSizes(sizes, mostFields, mostMethods))
}

func TestPlantedSizes(t *testing.T) {
	t.Parallel()
	planted := map[string]string{
		"a.go": "package a\ntype a struct { x, y int; z string }\ntype b struct { a; *c }\ntype c struct { x int }\ntype d[T any] struct{ T }\ntype e int",
		"b.go": "package a\nfunc (*c) m() {}\nfunc (c) n() {}\nfunc (*d[T]) m() {}\nfunc (x e) m() {}\nfunc f() { type a struct { x, y, z, u, v int } }",
	}
	for name, tc := range map[string]struct {
		fields, methods int
		want            []string
	}{
		"all fit":      {6, 2, nil},
		"fields":       {5, 2, []string{"worker.b has 6 fields"}},
		"more fields":  {2, 2, []string{"worker.a has 3 fields", "worker.b has 6 fields"}},
		"methods":      {6, 1, []string{"worker.b has 2 methods", "worker.c has 2 methods"}},
		"every method": {6, 0, []string{"worker.b has 2 methods", "worker.c has 2 methods", "worker.d has 1 methods", "worker.e has 1 methods"}},
	} {
		got := checkSizes(sizesOf(t, planted), tc.fields, tc.methods)
		if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// sizesOf returns the size of each type that is declared in the files of a package, at the top level.
func sizesOf(t *testing.T, src map[string]string) map[string]size {
	t.Helper()
	sizes := make(map[string]size)
	for name, text := range src {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					on := typeName(decl.Recv.List[0].Type)
					s := sizes[on]
					s.methods++
					sizes[on] = s
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if structure, ok := spec.Type.(*ast.StructType); ok {
						s := sizes[spec.Name.Name]
						for _, field := range structure.Fields.List {
							s.fields += max(len(field.Names), 1)
							if len(field.Names) == 0 {
								s.embedded = append(s.embedded, typeName(field.Type))
							}
						}
						sizes[spec.Name.Name] = s
					}
				}
			}
		}
	}
	return sizes
}

// typeName returns the name of a type of the package, or "" for one of another package.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	}
	return ""
}

// checkSizes returns one line for each type with too many fields or methods.
func checkSizes(sizes map[string]size, fields, methods int) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		s := sizes[name]
		seen := map[string]bool{name: true}
		for todo := slices.Clone(s.embedded); len(todo) > 0; todo = todo[1:] {
			if seen[todo[0]] {
				continue
			}
			seen[todo[0]] = true
			e := sizes[todo[0]]
			s.fields, s.methods = s.fields+e.fields, s.methods+e.methods
			todo = append(todo, e.embedded...)
		}
		if s.fields > fields {
			wrong = append(wrong, fmt.Sprintf("worker.%s has %d fields, more than %d: make a part of it a type of its own", name, s.fields, fields))
		}
		if s.methods > methods {
			wrong = append(wrong, fmt.Sprintf("worker.%s has %d methods, more than %d: make a part of it a type of its own", name, s.methods, methods))
		}
	}
	return wrong
}
