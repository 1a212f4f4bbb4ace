package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("update", false, "write what packages export into testdata/api")

// shared are the internal packages of the root module that the other released modules import. A program may have a newer root
// than its lockers, so what these export is kept as a public API is: see decision 46.
var shared = []string{"internal/lease", "internal/telemetry", "lock/internal/held", "lock/internal/spec"}

const (
	apiDir = root + "/testdata/api"
	howAPI = "go test ./internal/archtest -run 'TestAPI$' -update"
)

// What each public package exports is in testdata/api, a file for each, and so is what released modules share. Who changes it
// writes the files again, and so sees, and shows to reviewers, what becomes of the programs of users: docs/compatibility.md.
func TestAPI(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, dir := range released(t) {
		maps.Copy(got, apiOf(t, filepath.Join(root, dir)))
	}
	if len(got) < 15 {
		t.Fatalf("found %d packages: the test looks at the wrong folders", len(got))
	}
	files, err := filepath.Glob(apiDir + "/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want[strings.TrimSuffix(filepath.Base(file), ".txt")] = string(text)
	}
	if *updateAPI {
		for name := range want {
			if got[name] == "" {
				if err := os.Remove(filepath.Join(apiDir, name+".txt")); err != nil {
					t.Error(err)
				}
			}
		}
		for name, text := range got {
			if err := os.WriteFile(filepath.Join(apiDir, name+".txt"), []byte(text), 0o644); err != nil {
				t.Error(err)
			}
		}
		return
	}
	report(t, checkAPI(got, want))
}

// checkAPI returns a line for each line of an API that came or went, and says what to do.
func checkAPI(got, want map[string]string) (wrong []string) {
	names := maps.Clone(got)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		now, before := strings.Split(got[name], "\n"), strings.Split(want[name], "\n")
		for _, line := range before {
			if line != "" && !slices.Contains(now, line) {
				wrong = append(wrong, fmt.Sprintf("testdata/api/%s.txt: - %s", name, line))
			}
		}
		for _, line := range now {
			if line != "" && !slices.Contains(before, line) {
				wrong = append(wrong, fmt.Sprintf("testdata/api/%s.txt: + %s", name, line))
			}
		}
	}
	if wrong != nil {
		wrong = append(wrong, "if docs/compatibility.md lets it change, write the files: "+howAPI)
	}
	return wrong
}

func TestPlantedAPI(t *testing.T) {
	t.Parallel()
	before := map[string]string{"lock": "func A()\nfunc B()\n", "gone": "func C()\n"}
	now := map[string]string{"lock": "func A()\nfunc B(int)\n", "new": "func D()\n"}
	want := []string{
		"testdata/api/gone.txt: - func C()",
		"testdata/api/lock.txt: - func B()",
		"testdata/api/lock.txt: + func B(int)",
		"testdata/api/new.txt: + func D()",
	}
	if wrong := checkAPI(now, before); len(wrong) != 5 || !slices.Equal(wrong[:4], want) || !strings.Contains(wrong[4], howAPI) {
		t.Errorf("got %q", wrong)
	}
	if wrong := checkAPI(before, before); wrong != nil {
		t.Errorf("an API that is the same: %q", wrong)
	}
}

// Each module that is released has the licence: a module's archive has nothing of the folders above it.
func TestLicences(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(root + "/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range released(t) {
		if got, err := os.ReadFile(filepath.Join(root, dir, "LICENSE")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s/LICENSE is not that of the root (%v)", dir, err)
		}
	}
}

// released returns the folders of the modules that others fetch.
func released(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(root + "/tools/release/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// apiOf returns what the public packages of the module in dir export, and the shared ones, one line for each thing. The keys are the packages'
// paths in the tree, with dots for slashes.
func apiOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	type listed struct{ ImportPath, Name, Export string }
	var public []string
	exports := map[string]string{}
	packages := json.NewDecoder(bytes.NewReader(run(t, dir, "list", "-json=ImportPath,Name", "./...")))
	for {
		var p listed
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		path, _ := within(p.ImportPath)
		hidden := strings.Contains("/"+path+"/", "/internal/") || strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "testdata/")
		if p.Name != "main" && (!hidden || slices.Contains(shared, path)) {
			public = append(public, p.ImportPath)
		}
	}
	if public == nil {
		return nil
	}
	packages = json.NewDecoder(bytes.NewReader(run(t, dir, append([]string{"list", "-export", "-deps", "-json=ImportPath,Name,Export"}, public...)...)))
	for {
		var p listed
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	load := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	api := map[string]string{}
	for _, path := range public {
		p, err := load.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := within(path)
		if name == "" || name == "." {
			name = "signalbox"
		}
		lines := exported(p)
		if lines == nil {
			continue // it has nothing but tests
		}
		slices.Sort(lines)
		api[strings.ReplaceAll(name, "/", ".")] = strings.Join(slices.Compact(lines), "\n") + "\n"
	}
	return api
}

// exported returns a line for each thing that a package exports, which says all that a program could depend on.
func exported(p *types.Package) (lines []string) {
	name := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Path()
	}
	text := func(t types.Type) string { return types.TypeString(t, name) }
	// members adds the exported fields and methods of a type, also those of what it embeds.
	members := func(of string, t types.Type) {
		var fields func(s *types.Struct)
		fields = func(s *types.Struct) {
			for f := range s.Fields() {
				if f.Exported() {
					lines = append(lines, fmt.Sprintf("field %s.%s %s", of, f.Name(), text(f.Type())))
				} else if embedded, ok := f.Type().Underlying().(*types.Struct); ok && f.Embedded() {
					fields(embedded)
				}
			}
		}
		if s, ok := t.Underlying().(*types.Struct); ok {
			fields(s)
		}
		if types.IsInterface(t) {
			return // its methods are in the line of the type
		}
		byValue := types.NewMethodSet(t)
		for m := range types.NewMethodSet(types.NewPointer(t)).Methods() {
			if m.Obj().Exported() {
				star := "*"
				if byValue.Lookup(m.Obj().Pkg(), m.Obj().Name()) != nil {
					star = ""
				}
				lines = append(lines, fmt.Sprintf("method (%s%s) %s%s", star, of, m.Obj().Name(), strings.TrimPrefix(text(m.Type()), "func")))
			}
		}
	}
	for _, n := range p.Scope().Names() {
		obj := p.Scope().Lookup(n)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("const %s %s = %s", n, text(obj.Type()), obj.Val().ExactString()))
		case *types.TypeName:
			if obj.IsAlias() {
				to := types.Unalias(obj.Type())
				lines = append(lines, fmt.Sprintf("type %s = %s", n, text(to)))
				// Users can't read an internal type elsewhere.
				if named, ok := to.(*types.Named); ok && named.Obj().Pkg() != nil && strings.Contains("/"+named.Obj().Pkg().Path()+"/", "/internal/") {
					members(n, to)
				}
				continue
			}
			of, kind := text(obj.Type()), text(obj.Type().Underlying())
			if s, ok := obj.Type().Underlying().(*types.Struct); ok {
				kind = "struct" // its fields have lines of their own
				if !types.Comparable(s) {
					kind += ", not comparable"
				}
			}
			if named, ok := obj.Type().(*types.Named); ok && named.TypeParams().Len() > 0 {
				var params []string
				for param := range named.TypeParams().TypeParams() {
					params = append(params, param.Obj().Name()+" "+text(param.Constraint()))
				}
				of = n + "[" + strings.Join(params, ", ") + "]"
			}
			lines = append(lines, fmt.Sprintf("type %s %s", of, kind))
			members(n, obj.Type())
		default: // a function or a variable
			lines = append(lines, types.ObjectString(obj, name))
		}
	}
	return lines
}
