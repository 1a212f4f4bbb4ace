package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	redisPath = "github.com/redis/go-redis/v9"
	sdkPath   = "go.opentelemetry.io/otel/sdk/trace"
)

// TestPlantedImports makes one forbidden import of each kind and checks that it is found.
func TestPlantedImports(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pkg, imports string
		test         bool
	}{
		{".", redisPath, false},
		{".", module + "/internal/wire", false},
		{"internal/wire", redisPath, false},
		{"internal/wire", "google.golang.org/protobuf/proto", false},
		{"internal/wire", module + "/internal/store", false},
		{"internal/store", module + "/worker", false},
		{"internal/store", module + "/internal/telemetry", false},
		{"internal/telemetry", module, false},
		{"internal/telemetry", sdkPath, false},
		{"internal/lease", module + "/lock", false},
		{"lock", module, false},
		{"lock", module + "/internal/store", false},
		{"lock", sdkPath, false},
		{"lock", module + "/lock/locktest", false},
		{"lock", module + "/lock/redlock", false},
		{"lock/internal/spec", module + "/lock/redlock", false},
		{"lock/internal/spec", module + "/lock", false},
		{"middleware", module + "/internal/store", false},
		{"middleware", module + "/worker", false},
		{"middleware", redisPath, false},
		{"scheduler", module + "/worker", false},
		{"scheduler", module + "/internal/wire", false},
		{"scheduler", sdkPath, false},
		{"scheduler", module + "/embedded", false},
		{"worker", module + "/scheduler", false},
		{"worker", module + "/internal/wire", false},
		{"worker", module + "/internal/redistest", false},
		{"worker", module + "/embedded", false},
		{"worker", goleak, false},
		{"worker", "github.com/hibiken/asynq", false},
		{"worker", "go.opentelemetry.io/otel/exporters/otlp/otlptrace", false},
		{"worker", "C", false},
		{"embedded", module + "/internal/store", false},
		{"examples/quickstart", module + "/internal/store", false},
		{"examples/quickstart", module + "/internal/redistest", false},
		{"internal/redistest", module + "/worker", false},
		{"internal/archtest", "golang.org/x/tools/go/packages", false},
		{"worker", "github.com/hibiken/asynq", true},
		{"lock", "github.com/go-redsync/redsync/v4", true},
		{"worker", "go.opentelemetry.io/otel/exporters/otlp/otlptrace", true},
	} {
		kind := "import"
		p := pkg{path: tc.pkg, imports: []string{"context", tc.imports}}
		if tc.test {
			kind = "test import"
			p = pkg{path: tc.pkg, testImports: []string{"testing", tc.imports}}
		}
		if wrong := checkImports(rules, []pkg{p}); len(wrong) != 1 || !strings.Contains(wrong[0], tc.imports) {
			t.Errorf("%s of %s by %s: got %q, want one line that names it", kind, tc.imports, tc.pkg, wrong)
		}
	}
}

func TestPlantedPackages(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"util", "lock/other", "internal", "internal/store/deep", "workers", "example"} {
		if wrong := checkImports(rules, []pkg{{path: path}}); len(wrong) != 1 || !strings.Contains(wrong[0], "no rule") {
			t.Errorf("package %s: got %q, want one line that says it has no rule", path, wrong)
		}
	}
}

func TestAllowedImports(t *testing.T) {
	t.Parallel()
	report(t, checkImports(rules, []pkg{
		{path: ".", imports: []string{"context", "encoding/json"}, testImports: []string{sdkPath, module + "/worker", goleak}},
		{path: "internal/wire", imports: []string{module, "google.golang.org/protobuf/encoding/protowire"}},
		{path: "internal/store", imports: []string{module, module + "/internal/wire", redisPath, "embed"}},
		{path: "lock", imports: []string{module + "/internal/telemetry", redisPath, "go.opentelemetry.io/otel/trace"}},
		{path: "internal/lease", imports: []string{"golang.org/x/sys/unix"}},
		{path: "worker", imports: []string{module + "/middleware"}, testImports: []string{module + "/scheduler", module + "/internal/redistest"}},
		{path: "examples/cron", imports: []string{module + "/embedded", module + "/worker"}},
		{path: "embedded", imports: []string{"github.com/alicebob/miniredis/v2/server"}},
	}))
}

func TestPlantedOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wrong []string
		want  string
	}{
		"rule of no package":  {checkUnused([]rule{{pattern: "a"}, {pattern: "b/..."}}, []pkg{{path: "b/c"}}), "the rule for a"},
		"no package comment":  {checkDocs([]pkg{{path: "x", name: "x"}, {path: "y", name: "y", doc: "Package y is."}}), "package x"},
		"a wrong comment":     {checkDocs([]pkg{{path: "x", name: "x", doc: "This is x."}}), "Package x "},
		"a command's comment": {checkDocs([]pkg{{path: "examples/q", name: "main", doc: "Package main."}}), "Command q "},
		"a rival in go.mod":   {checkModules([]string{redisPath, "github.com/hibiken/asynq"}), "asynq"},
		"a rival's major":     {checkModules([]string{"github.com/go-redsync/redsync/v4"}), "redsync"},
		"etcd":                {checkModules([]string{"go.etcd.io/etcd/client/v3"}), "etcd"},
		"an exporter":         {checkModules([]string{"go.opentelemetry.io/otel/exporters/otlp/otlptrace", sdkPath}), "exporters"},
		"a .lua file":         {checkLua("worker/x.lua", nil), "worker/x.lua"},
		"a .lua at the root":  {checkLua("x.lua", nil), "x.lua"},
		"a script's caller":   {checkLua("worker/x.go", selectors(t, "x.go", []byte("package x\nvar _ = redis.NewScript(``)"))), "NewScript"},
		"an eval":             {checkLua("inspect/x.go", selectors(t, "x.go", []byte("package x\nfunc f() { rdb.Eval(ctx, ``, nil) }"))), "Eval"},
	} {
		if len(tc.wrong) != 1 || !strings.Contains(tc.wrong[0], tc.want) {
			t.Errorf("%s: got %q, want one line with %q", name, tc.wrong, tc.want)
		}
	}
	for _, file := range []string{"internal/store/scripts/claim.lua", "lock/acquire.lua", "internal/store/script.go"} {
		report(t, checkLua(file, []string{"NewScript"}))
	}
}

func TestPlantedNumbers(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"return {0, (blocked + 2) / 3}", "return {math.floor(a) / 2}", "return {math.floor(a), b / 2}", "local half = n * 0.5", "return 2 ^ n",
		"return {'/', a / b} -- a half", "x = math.max(a / 2, 1)", "x = 'it''s' .. a/b",
	} {
		if wrong := checkLuaNumbers("x.lua", "local a = 1\n"+line); len(wrong) != 1 || !strings.Contains(wrong[0], "x.lua:2") {
			t.Errorf("%s: %q", line, wrong)
		}
	}
	for _, line := range []string{
		"return {math.floor(blocked / 3) + 1}", "x = math.ceil((a + b - c) / 1000), 1", "-- ms / 1000", "x = 'a/b' .. \"c/d\" .. '^(%d+)$'",
		"x = a .. b .. 1 .. 2", "redis.call('SET', k, 'v') -- and/or", "x = math.floor(math.max(a, b) * 0.5)",
	} {
		report(t, checkLuaNumbers("x.lua", line))
	}
}

// TestPlantedInATree writes a module with forbidden imports. So it tests the whole way
// from a file to a failure.
func TestPlantedInATree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, src := range map[string]string{
		"go.mod":                   "module " + module + "\n\ngo 1.26\n",
		"a.go":                     source("signalbox", redisPath),
		"scheduler/a.go":           source("scheduler", module+"/worker"),
		"worker/a.go":              source("worker", module+"/internal/redistest"),
		"worker/a_test.go":         source("worker_test", "github.com/hibiken/asynq"),
		"middleware/a_plan9.go":    source("middleware", module+"/internal/store"),
		"middleware/a.go":          source("middleware", "context"),
		"internal/store/a.go":      "//go:build never\n\n" + source("store", module+"/worker"),
		"internal/store/b_test.go": source("store", module+"/worker"),
		"internal/redistest/a.go":  source("redistest", "testing"),
		"internal/planted/a.go":    source("planted", "context"),
		"bench/go.mod":             "module " + module + "/bench\n\ngo 1.26\n",
		"bench/a.go":               source("bench", "github.com/hibiken/asynq"),
	} {
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, line := range checkImports(rules, tree(t, dir)) {
		line, _, _ = strings.Cut(line, ";")
		line, _, _ = strings.Cut(line, ":")
		got = append(got, line)
	}
	want := []string{
		"package . imports " + redisPath,
		"package internal/planted has no rule",
		"package internal/store imports " + module + "/worker",
		"package middleware imports " + module + "/internal/store",
		"package scheduler imports " + module + "/worker",
		"package worker imports " + module + "/internal/redistest",
		"the tests of package worker import github.com/hibiken/asynq",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// source returns a Go file with one import.
func source(name, imports string) string {
	return fmt.Sprintf("package %s\n\nimport _ %q\n", name, imports)
}
