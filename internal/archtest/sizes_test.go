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

// A bound is how large things of a package may be: a type by its fields and methods, a file by its lines.
type bound struct{ fields, methods, lines int }

// sizeBounds are those of the packages whose sizes are looked at. A type that needs more has two tasks: make one of them a type of its own, as a worker's
// keeper or claimer are. So has a file.
var sizeBounds = map[string]bound{
	"worker":                  {23, 25, 400},
	"internal/store":          {25, 35, 400},
	"internal/store/check":    {25, 35, 400},
	"internal/store/doctor":   {25, 35, 400},
	"internal/store/facts":    {25, 35, 400},
	"internal/store/layout":   {25, 35, 400},
	"internal/store/looks":    {25, 35, 400},
	"internal/store/scripts":  {25, 35, 400},
	"internal/store/server":   {25, 35, 400},
	"internal/store/settings": {25, 35, 400},
}

// larger has the types and files that were larger than the bound of their package when that was made, by package and name. The numbers may only get smaller: a type
// or a file that has shrunk gets its new number, or is taken out.
var larger = map[string]bound{
	"worker/deliver.go":                {lines: 414},
	"internal/store/flow.go":           {lines: 429},
	"internal/store/move.go":           {lines: 609},
	"internal/store/standin.go":        {lines: 631},
	"internal/store/check.Snapshot":    {fields: 27}, // what a queue has in Redis: a field for each key
	"internal/store/check.checker":     {fields: 31}, // a Snapshot, and what is worked out of it
	"internal/store/doctor.doctor":     {methods: 47},
	"internal/store/doctor/doctor.go":  {lines: 601},
	"internal/store/layout.Keys":       {fields: 40}, // a field for each key
	"internal/store/looks.Looks":       {methods: 41},
	"internal/store/settings.Settings": {methods: 46},
}

// slack is by how many lines a file may be shorter than larger says.
const slack = 20

// A size has the fields and methods of a type, or the lines of a file. Those of an embedded type of the same package count as its own.
type size struct {
	bound
	embedded []string
}

// TestSizes: no type and no file of the packages of sizeBounds grows into one that does everything.
func TestSizes(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, in := range slices.Sorted(maps.Keys(sizeBounds)) {
		files, err := filepath.Glob(filepath.Join(root, in, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", in, err)
		}
		src := make(map[string]string)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				src[filepath.Base(file)] = string(text)
			}
		}
		report(t, checkSizes(in, sizesOf(t, src), sizeBounds[in], larger, seen))
	}
	for name := range larger {
		if !seen[name] {
			t.Errorf("larger has %s, which isn't there, or fits: take it out", name)
		}
	}
	if stores, err := filepath.Glob(filepath.Join(root, "internal", "store", "*", "*.go")); err != nil || slices.ContainsFunc(stores, func(file string) bool {
		_, bounded := sizeBounds["internal/store/"+filepath.Base(filepath.Dir(file))]
		return !bounded
	}) {
		t.Errorf("a package of the store has no bound in sizeBounds: %v", err)
	}
}

func TestPlantedSizes(t *testing.T) {
	t.Parallel()
	planted := map[string]string{
		"a.go": "package a\ntype a struct { x, y int; z string }\ntype b struct { a; *c }\ntype c struct { x int }\ntype d[T any] struct{ T }\ntype e int",
		"b.go": "package a\nfunc (*c) m() {}\nfunc (c) n() {}\nfunc (*d[T]) m() {}\nfunc (x e) m() {}\nfunc f() { type a struct { x, y, z, u, v int } }\n\n",
	}
	for name, tc := range map[string]struct {
		most   bound
		larger map[string]bound
		want   []string
	}{
		"all fit":              {bound{6, 2, 7}, nil, nil},
		"fields":               {bound{5, 2, 7}, nil, []string{"in.b has 6 fields, more than 5"}},
		"more fields":          {bound{2, 2, 7}, nil, []string{"in.a has 3 fields", "in.b has 6 fields"}},
		"methods":              {bound{6, 1, 7}, nil, []string{"in.b has 2 methods", "in.c has 2 methods"}},
		"every method":         {bound{6, 0, 7}, nil, []string{"in.b has 2 methods", "in.c has 2 methods", "in.d has 1 methods", "in.e has 1 methods"}},
		"lines":                {bound{6, 2, 6}, nil, []string{"in/b.go has 7 lines, more than 6"}},
		"known":                {bound{5, 2, 6}, map[string]bound{"in.b": {fields: 6}, "in/b.go": {lines: 7 + slack}}, nil},
		"grown":                {bound{4, 2, 7}, map[string]bound{"in.b": {fields: 5}}, []string{"in.b has 6 fields, more than 5"}},
		"shrunk":               {bound{4, 2, 7}, map[string]bound{"in.b": {fields: 7}}, []string{"in.b has 6 fields: larger says 7"}},
		"a file has shrunk":    {bound{6, 2, 6}, map[string]bound{"in/b.go": {lines: 8 + slack}}, []string{"in/b.go has 7 lines: larger says 28"}},
		"known by its methods": {bound{5, 1, 7}, map[string]bound{"in.b": {methods: 2}, "in.c": {methods: 2}}, []string{"in.b has 6 fields, more than 5"}},
	} {
		got := checkSizes("in", sizesOf(t, planted), tc.most, tc.larger, make(map[string]bool))
		if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// sizesOf returns the size of each type that is declared in the files of a package, at the top level, and of each file.
func sizesOf(t *testing.T, src map[string]string) map[string]size {
	t.Helper()
	sizes := make(map[string]size)
	for name, text := range src {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		sizes[name] = size{bound: bound{lines: strings.Count(text, "\n")}}
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

// checkSizes returns one line for each type and each file of a package that is larger than most, or than larger says, and for each that larger has to follow. It notes
// in seen what of larger it has met.
func checkSizes(in string, sizes map[string]size, most bound, larger map[string]bound, seen map[string]bool) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		s, known := whole(sizes, name), in+"."+name
		if strings.HasSuffix(name, ".go") {
			known = in + "/" + name
		}
		for _, m := range []struct {
			what                    string
			is, most, larger, slack int
		}{
			{"fields", s.fields, most.fields, larger[known].fields, 0},
			{"methods", s.methods, most.methods, larger[known].methods, 0},
			{"lines", s.lines, most.lines, larger[known].lines, slack},
		} {
			switch {
			case m.is <= m.most:
			case m.is > max(m.most, m.larger):
				wrong = append(wrong, fmt.Sprintf("%s has %d %s, more than %d: make a part of it a type or a file of its own", known, m.is, m.what, max(m.most, m.larger)))
			case m.is < m.larger-m.slack:
				wrong = append(wrong, fmt.Sprintf("%s has %d %s: larger says %d, lower that", known, m.is, m.what, m.larger))
				fallthrough
			default:
				seen[known] = true
			}
		}
	}
	return wrong
}

// whole returns the size of a type with those that it embeds.
func whole(sizes map[string]size, name string) bound {
	sum := sizes[name].bound
	met := map[string]bool{name: true}
	for todo := slices.Clone(sizes[name].embedded); len(todo) > 0; todo = todo[1:] {
		if met[todo[0]] {
			continue
		}
		met[todo[0]] = true
		e := sizes[todo[0]]
		sum.fields, sum.methods = sum.fields+e.fields, sum.methods+e.methods
		todo = append(todo, e.embedded...)
	}
	return sum
}
