package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/signalbox-go/signalbox"

// A rule says what the packages that its pattern names may import beside the
// standard library. Patterns are paths, or begin a subtree if they end in "/...".
type rule struct {
	pattern string   // of package paths within the module; "." is the root
	within  []string // patterns of packages of this module
	others  []string // patterns of packages of other modules
}

const (
	goRedis   = "github.com/redis/go-redis/v9/..."
	backoff   = "github.com/cenkalti/backoff/v4"
	cron      = "github.com/robfig/cron/v3"
	miniredis = "github.com/alicebob/miniredis/v2/..."
	goleak    = "go.uber.org/goleak"
	protowire = "google.golang.org/protobuf/encoding/protowire"
	unix      = "golang.org/x/sys/unix"
)

// otelAPI is what library code may know of OpenTelemetry: never the SDK, never an
// exporter. Those are the choice of the program.
var otelAPI = []string{
	"go.opentelemetry.io/otel",
	"go.opentelemetry.io/otel/attribute",
	"go.opentelemetry.io/otel/baggage",
	"go.opentelemetry.io/otel/codes",
	"go.opentelemetry.io/otel/metric/...",
	"go.opentelemetry.io/otel/propagation",
	"go.opentelemetry.io/otel/semconv/...",
	"go.opentelemetry.io/otel/trace/...",
}

// rules is the whole table. The first rule whose pattern fits counts. Packages of a
// module of their own (bench, tools) have no rule: their go.mod is the rule.
var rules = []rule{
	{pattern: "."}, // the vocabulary: standard library only
	{"internal/wire", []string{"."}, []string{protowire}},
	{"internal/store", []string{".", "internal/wire"}, []string{goRedis}},
	{"internal/telemetry", nil, otelAPI},    // not the root: lock stands on it
	{"internal/lease", nil, []string{unix}}, // not lock: lock stands on it
	{"lock", []string{"internal/lease", "internal/telemetry", "lock/internal/..."}, append([]string{goRedis, backoff}, otelAPI...)}, // not the root: it stands alone
	{"lock/internal/batch", []string{"internal/lease", "lock/internal/lua"}, []string{goRedis}},
	{"lock/internal/held", []string{"internal/lease", "internal/telemetry", "lock/internal/spec"}, nil},
	{"lock/internal/...", nil, []string{goRedis}}, // not lock: every locker stands on it
	{"lock/redlock", []string{"lock", "internal/lease", "internal/telemetry", "lock/internal/..."}, append([]string{goRedis, backoff}, otelAPI...)},
	{"lock/locktest", []string{"lock"}, nil},
	{"middleware", []string{".", "lock", "internal/lease", "internal/telemetry"}, append([]string{backoff}, otelAPI...)},
	{"scheduler", []string{".", "internal/store", "internal/telemetry"}, append([]string{goRedis, cron, unix}, otelAPI...)},
	{"worker", []string{".", "lock", "middleware", "internal/lease", "internal/store", "internal/telemetry"}, append([]string{goRedis, backoff}, otelAPI...)},
	{"inspect", []string{".", "internal/store"}, []string{goRedis}},
	{"embedded", []string{"."}, []string{miniredis}},
	{"examples/quickstart", []string{".", "scheduler", "worker", "examples/quickstart/internal/demo"}, nil},
	{"examples/...", []string{".", "embedded", "lock", "lock/redlock", "middleware", "scheduler", "worker"}, append([]string{goRedis}, otelAPI...)},
	{"internal/redistest", []string{"embedded"}, []string{goRedis, goleak}},
	{pattern: "internal/archtest"},
}

// testOthers is what test files may import of other modules, on top of what some
// package's rule allows. Of this module they may import everything: a test tells
// the story of several packages.
var testOthers = []string{goleak, "go.opentelemetry.io/otel/sdk/..."}

// rivals are what we are compared with, or what has a module of its own: the core
// go.mod must not require them, so that no user downloads them.
var rivals = []string{
	"github.com/hibiken/asynq",
	"github.com/riverqueue/river",
	"github.com/gocraft/work",
	"github.com/RichardKnop/machinery",
	"github.com/vmihailenco/taskq",
	"github.com/go-redsync/redsync",
	"github.com/bsm/redislock",
	"github.com/redis/rueidis",
	"github.com/go-zookeeper/zk",
	"github.com/jackc/pgx",
	"github.com/lib/pq",
	"go.etcd.io/etcd",
	"go.opentelemetry.io/otel/exporters",
	"go.opentelemetry.io/contrib",
	"google.golang.org/grpc",
}

// luaHomes are the subtrees that may hold Lua: scripts are part of their protocols.
var luaHomes = []string{"internal/store/...", "lock/..."}

// A pkg is what the rules look at.
type pkg struct {
	path        string // within the module; "." is the root
	name        string
	doc         string   // the package comment's first sentence
	imports     []string // of all files but tests, whatever their build tags
	testImports []string // of all test files
}

// checkImports returns one line for each import that no rule allows, and for each
// package that no rule names.
func checkImports(rules []rule, pkgs []pkg) []string {
	var wrong []string
	var tests []string
	for _, r := range rules {
		tests = append(tests, r.others...)
	}
	tests = append(tests, testOthers...)
	for _, p := range pkgs {
		i := slices.IndexFunc(rules, func(r rule) bool { return fits(r.pattern, p.path) })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("package %s has no rule: say in internal/archtest/rules_test.go what it may import", p.path))
			continue
		}
		for _, path := range p.imports {
			inside, ours := within(path)
			switch {
			case standard(path):
			case ours && fitsAny(rules[i].within, inside):
			case !ours && fitsAny(rules[i].others, path):
			default:
				wrong = append(wrong, fmt.Sprintf("package %s imports %s; beside the standard library it may import only %s",
					p.path, path, strings.Join(append(slices.Clone(rules[i].within), rules[i].others...), " ")))
			}
		}
		for _, path := range p.testImports {
			if _, ours := within(path); !ours && !standard(path) && !fitsAny(tests, path) {
				wrong = append(wrong, fmt.Sprintf("the tests of package %s import %s; of other modules tests may import only what some package may, and %s",
					p.path, path, strings.Join(testOthers, " ")))
			}
		}
	}
	return wrong
}

// checkUnused returns one line for each rule that names no package.
func checkUnused(rules []rule, pkgs []pkg) []string {
	var wrong []string
	for _, r := range rules {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return fits(r.pattern, p.path) }) {
			wrong = append(wrong, fmt.Sprintf("the rule for %s names no package: delete it", r.pattern))
		}
	}
	return wrong
}

// checkDocs returns one line for each package that does not say what it is for.
func checkDocs(pkgs []pkg) []string {
	var wrong []string
	for _, p := range pkgs {
		want := "Package " + p.name + " "
		if p.name == "main" {
			want = "Command " + p.path[strings.LastIndex(p.path, "/")+1:] + " "
		}
		if !strings.HasPrefix(p.doc, want) {
			wrong = append(wrong, fmt.Sprintf("package %s needs a package comment that begins %q", p.path, want))
		}
	}
	return wrong
}

// checkModules returns one line for each module that go.mod must not require.
func checkModules(required []string) []string {
	var wrong []string
	for _, path := range required {
		for _, rival := range rivals {
			if fits(rival+"/...", path) {
				wrong = append(wrong, fmt.Sprintf("go.mod requires %s: only a module of its own may (bench, or an adapter)", path))
			}
		}
	}
	return wrong
}

// checkLua returns one line for each file that holds Lua outside its homes: a .lua file,
// or Go code, not a test's, that mentions a way to run a script.
func checkLua(file string, mentions []string) []string {
	slash := strings.LastIndex(file, "/")
	if fitsAny(luaHomes, file[:max(slash, 0)]) {
		return nil
	}
	var wrong []string
	if strings.HasSuffix(file, ".lua") {
		wrong = append(wrong, fmt.Sprintf("%s: Lua belongs to internal/store or lock", file))
	}
	for _, name := range mentions {
		if slices.Contains(scripting, name) {
			wrong = append(wrong, fmt.Sprintf("%s uses %s: scripts are run by internal/store or lock", file, name))
		}
	}
	return wrong
}

// checkLuaNumbers returns one line for each place in a script where a number may get a fraction: a division, a power or
// a literal that is in no math.floor or math.ceil. Redis cuts a fraction off in a reply, and its Lua 5.1 knows no
// whole numbers. Under Lua 5.4, which other servers have, 6/3 is 2.0, and a reply with it is no integer.
func checkLuaNumbers(file, src string) []string {
	var wrong []string
	for i, line := range strings.Split(src, "\n") {
		if allowed, ok := fractions[file]; ok && strings.TrimSpace(line) == allowed {
			continue
		}
		var whole []bool // for each open parenthesis: what is in it becomes a whole number
		code := luaText.ReplaceAllString(line, "''")
		code, _, _ = strings.Cut(code, "--")
		for at, c := range code {
			switch {
			case c == '(':
				whole = append(whole, luaRounds.MatchString(code[:at]))
			case c == ')' && len(whole) > 0:
				whole = whole[:len(whole)-1]
			case (c == '/' || c == '^' || luaFraction.MatchString(code[at:])) && !slices.Contains(whole, true):
				wrong = append(wrong, fmt.Sprintf("%s:%d: %q may have a fraction: put math.floor around it", file, i+1, strings.TrimSpace(line)))
			}
		}
	}
	return wrong
}

var (
	luaText     = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"`)
	luaRounds   = regexp.MustCompile(`math\.(floor|ceil)\s*$`)
	luaFraction = regexp.MustCompile(`^\.\d`)
)

// fractions are lines of scripts that divide, and whose result is in no reply.
var fractions = map[string]string{
	// It is compared with its own floor: nothing else is taken for a number of jobs.
	"internal/store/scripts/enqueue.lua": `local n = (#ARGV - fixed) / 4`,
	// Bytes of a string.
	"internal/store/scripts/fragments/stamp.lua": `us = (us - b[i]) / 256`,
}

// scripting are the names of go-redis that send Lua to a server.
var scripting = []string{
	"Eval", "EvalRO", "EvalSha", "EvalShaRO", "NewScript", "NewScriptServerSHA", "ScriptLoad",
	"FCall", "FCallRo", "FCallRO", "FunctionLoad", "FunctionLoadReplace",
}

// checkBench returns what a file of bench imports of this module and may not.
func checkBench(file string, imports []string) []string {
	var wrong []string
	for _, path := range imports {
		in, ok := within(path)
		servers := in == "internal/redistest" && strings.HasSuffix(file, "_test.go")
		if ok && strings.HasPrefix(in, "internal/") && in != "internal/store" && !servers {
			wrong = append(wrong, fmt.Sprintf("%s imports %s; of the internal packages bench may import only internal/store, and its tests internal/redistest", file, in))
		}
	}
	return wrong
}

// fits reports whether a pattern names a package.
func fits(pattern, path string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == root || strings.HasPrefix(path, root+"/")
	}
	return path == pattern
}

func fitsAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, path) })
}

// within returns the path of a package inside this module, if it is one.
func within(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// standard reports whether a path is of the standard library. cgo is not.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && path != "C"
}
