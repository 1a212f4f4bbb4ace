package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// readingRooms are the packages of the store that only read: people look at queues in use with them, and tests judge by them.
var readingRooms = []string{"check", "facts", "looks"}

// TestReadingRooms: no package that only reads calls a command that writes, nor a script that does, nor a function of package settings, which does both.
func TestReadingRooms(t *testing.T) {
	t.Parallel()
	sources := scripts.Sources()
	writers := writersOf(t, filepath.Join(root, "internal", "store", "settings"), sources)
	if !slices.Contains(writers, "SetLimits") || slices.Contains(writers, "LimitsOf") {
		t.Fatalf("functions of settings that write: %v", writers)
	}
	for _, room := range readingRooms {
		files, err := filepath.Glob(filepath.Join(root, "internal", "store", room, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", room, err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				names := selectors(t, file, src)
				report(t, checkReads(file, names, scriptsIn(t, file, src), sources))
				for _, name := range names {
					if slices.Contains(writers, name) {
						t.Errorf("%s calls %s of package settings, which writes: that belongs to another package of the store", file, name)
					}
				}
			}
		}
	}
}

func TestPlantedWrites(t *testing.T) {
	t.Parallel()
	sources := map[string]string{"look": "redis.call('HGET', JOBS, id)", "mend": "-- redis.call('DEL', a)\nredis.pcall('hdel', JOBS, id)"}
	for code, want := range map[string]string{
		"c.HGet(); c.ZRange(); c.Scan(); q.Deleted(); scripts.Look.Run()": "",
		"q.Mend()":           "",
		"c.HDel()":           "a.go calls HDel",
		"c.SetNX()":          "a.go calls SetNX",
		"c.Do()":             "a.go calls Do",
		"scripts.Mend.Run()": "a.go runs mend.lua, which calls HDEL",
	} {
		src := []byte("package a\nfunc f() { " + code + " }")
		got := strings.Join(checkReads("a.go", selectors(t, "a.go", src), scriptsIn(t, "a.go", src), sources), "; ")
		if got == "" != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", code, got, want)
		}
	}
}

var (
	luaComments = regexp.MustCompile(`--[^\n]*`)
	luaCalls    = regexp.MustCompile(`redis\.p?call\('(\w+)'`)
)

// checkReads returns one line for each name that follows a dot in a Go file and is a call that may write, and for each command in the scripts that the file runs which
// a viewer may not call.
func checkReads(file string, names, runs []string, sources map[string]string) (wrong []string) {
	for _, name := range names {
		if aCall(name) && !slices.Contains(readingCalls, name) {
			wrong = append(wrong, fmt.Sprintf("%s calls %s, which isn't among readingCalls: what writes belongs to another package of the store", file, name))
		}
	}
	reads := server.Commands(server.Viewer)
	for _, name := range runs {
		for _, call := range luaCalls.FindAllStringSubmatch(luaComments.ReplaceAllString(sources[name], ""), -1) {
			if command := strings.ToUpper(call[1]); !slices.Contains(reads, command) {
				wrong = append(wrong, fmt.Sprintf("%s runs %s.lua, which calls %s: what writes belongs to another package of the store", file, name, command))
			}
		}
	}
	return wrong
}

// writersOf returns the names of the functions and methods of a package that write, or call one that does, sorted.
func writersOf(t *testing.T, folder string, sources map[string]string) (writers []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string][]string) // the functions, and methods of its own type, that a function calls, by its name
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name, receiver := fn.Name.Name, ""
			if fn.Recv != nil && len(fn.Recv.List[0].Names) > 0 {
				receiver = fn.Recv.List[0].Names[0].Name
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch of := call.Fun.(type) {
				case *ast.Ident:
					calls[name] = append(calls[name], of.Name)
				case *ast.SelectorExpr:
					if x, ok := of.X.(*ast.Ident); ok && x.Name == receiver {
						calls[name] = append(calls[name], of.Sel.Name)
					}
				}
				return true
			})
			body := slices.Concat([]byte("package a\n"), src[fn.Pos()-f.FileStart:fn.End()-f.FileStart])
			if len(checkReads(file, selectors(t, file, body), scriptsIn(t, file, body), sources)) > 0 {
				writers = append(writers, name)
			}
		}
	}
	for n := -1; n != len(writers); { // until no function more is found
		n = len(writers)
		for name, all := range calls {
			if !slices.Contains(writers, name) && slices.ContainsFunc(all, func(called string) bool { return slices.Contains(writers, called) }) {
				writers = append(writers, name)
			}
		}
	}
	slices.Sort(writers)
	return writers
}

// scriptsIn returns the names of the scripts that a Go file uses, sorted.
func scriptsIn(t *testing.T, name string, src []byte) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "scripts" {
				list = append(list, strings.ToLower(s.Sel.Name))
			}
		}
		return true
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// readingCalls are the methods of go-redis' clients and pipelines by which those packages read.
var readingCalls = []string{
	"Digest", "Exec", "Exists", "ForEachMaster", "Get", "HGet", "HGetAll", "HKeys", "HLen", "HMGet", "HScan", "Keys", "LLen", "LRange", "MemoryUsage", "Pipelined", "Scan", "Sort", "Time", "TxPipeline", "TxPipelined",
	"ZCard", "ZCount", "ZLexCount", "ZMScore", "ZRange", "ZRangeWithScores", "ZScore",
}

// aCall reports whether go-redis' clients or pipelines have a method of that name.
func aCall(name string) bool {
	_, client := reflect.TypeFor[redis.UniversalClient]().MethodByName(name)
	_, pipeline := reflect.TypeFor[redis.Pipeliner]().MethodByName(name)
	return client || pipeline
}
