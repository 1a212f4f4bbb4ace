package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/signalbox-go/signalbox"

// A rule lists what packages may import, beside the standard library. Its pattern names the packages. Patterns are
// paths, or name a subtree if they end in "/...".
type rule struct {
	pattern string   // of package paths in the module; "." is the root
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

// otelAPI is the part of OpenTelemetry that library code may use: never the SDK, never an exporter. The program chooses
// those.
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

// rules is the whole table. The first rule whose pattern matches counts. Packages of other modules (bench, cmd/signalbox,
// tools) have no rule: their go.mod is the rule.
var rules = []rule{
	{".", []string{"internal/handlerctx"}, nil}, // the vocabulary: standard library only
	{pattern: "internal/handlerctx"},            // not the root: the root imports this
	{"internal/wire", []string{"."}, []string{protowire}},
	{"internal/store/layout", []string{"."}, []string{goRedis}}, // the lowest floor of the store
	{"internal/store/scripts", []string{"internal/store/layout"}, []string{goRedis}},
	{"internal/store/server", []string{".", "internal/store/scripts"}, []string{goRedis}},
	{"internal/store/facts", []string{".", "internal/wire", "internal/store/layout", "internal/store/scripts"}, []string{goRedis}},
	{"internal/store/settings", []string{".", "internal/wire", "internal/store/facts", "internal/store/layout", "internal/store/scripts"}, []string{goRedis}},
	{"internal/store/looks", []string{".", "internal/wire", "internal/store/facts", "internal/store/layout", "internal/store/scripts", "internal/store/server", "internal/store/settings"}, []string{goRedis}},
	{"internal/store/doctor", []string{".", "internal/wire", "internal/store/facts", "internal/store/layout", "internal/store/scripts"}, []string{goRedis}}, // not internal/store: its tests import this
	{"internal/store/check", []string{".", "internal/wire", "internal/store/facts"}, []string{goRedis}},                                                     // for tests; not internal/store: its tests import this
	{"internal/store", []string{".", "internal/wire", "internal/store/facts", "internal/store/layout", "internal/store/looks", "internal/store/scripts", "internal/store/server", "internal/store/settings"}, []string{goRedis}},
	{"internal/schedule", []string{"."}, []string{cron}},
	{"internal/telemetry", nil, otelAPI},          // not the root: lock imports this
	{"internal/lease", nil, []string{unix}},       // not lock: lock imports this
	{"internal/deadline", nil, []string{goRedis}}, // not lock: lock imports this
	{"lock", []string{"internal/deadline", "internal/lease", "internal/telemetry", "lock/internal/..."}, append([]string{goRedis, backoff}, otelAPI...)}, // not the root: users can use locks alone
	{"lock/internal/batch", []string{"internal/lease", "lock/internal/lua"}, []string{goRedis}},
	{"lock/internal/held", []string{"internal/lease", "internal/telemetry", "lock/internal/spec"}, nil},
	{"lock/internal/...", nil, []string{goRedis}}, // not lock: every locker imports these
	{"lock/redlock", []string{"lock", "internal/lease", "internal/telemetry", "lock/internal/..."}, append([]string{goRedis, backoff}, otelAPI...)},
	{"lock/locktest", []string{"lock"}, nil},
	{"lock/fence", []string{".", "lock", "internal/litetx"}, []string{goRedis}},
	{"middleware", []string{".", "lock", "internal/lease", "internal/telemetry"}, append([]string{backoff}, otelAPI...)},
	{"health", nil, nil}, // the standard library only: programs without Redis can use it
	{"scheduler", []string{".", "health", "internal/deadline", "internal/parcelseam", "internal/schedule", "internal/store", "internal/store/facts", "internal/store/layout", "internal/store/looks", "internal/store/server", "internal/telemetry"}, append([]string{goRedis, unix}, otelAPI...)},
	{"worker", []string{".", "health", "lock", "middleware", "internal/deadline", "internal/handlerctx", "internal/lease", "internal/parcelseam", "internal/store", "internal/store/facts", "internal/store/layout", "internal/store/looks", "internal/store/server", "internal/store/settings", "internal/telemetry", "internal/testseam"}, append([]string{goRedis, backoff}, otelAPI...)},
	{"internal/testseam", []string{".", "internal/store"}, nil},                                                        // not worker: worker imports this
	{"internal/parcelseam", []string{".", "internal/store", "internal/store/facts", "internal/store/layout"}, otelAPI}, // not scheduler: scheduler imports this
	{"outbox", []string{".", "scheduler", "internal/deadline", "internal/litetx", "internal/parcelseam", "internal/store", "internal/store/server", "internal/telemetry"}, append([]string{goRedis}, otelAPI...)},
	{"signalboxtest", []string{".", "lock", "scheduler", "worker", "internal/parcelseam", "internal/store", "internal/testseam"}, []string{goRedis}},                                                                                                   // nothing imports it but tests
	{"inspect", []string{".", "internal/schedule", "internal/store", "internal/store/doctor", "internal/store/facts", "internal/store/layout", "internal/store/looks", "internal/store/server", "internal/store/settings", "lock"}, []string{goRedis}}, // lock: who holds one
	{"internal/asynq", nil, []string{goRedis, protowire}},
	{"fromasynq", []string{".", "internal/asynq", "internal/store", "internal/store/layout", "internal/store/server", "internal/store/settings", "internal/wire", "scheduler"}, []string{goRedis}},
	{"web", []string{".", "inspect"}, nil},
	{"embedded", []string{"."}, []string{miniredis}},
	{"examples/quickstart", []string{".", "scheduler", "worker", "examples/quickstart/internal/demo"}, nil},
	{"examples/items", []string{"lock", "lock/redlock", "examples/internal/demo"}, []string{goRedis}},
	{"examples/...", []string{".", "embedded", "examples/internal/stage", "health", "inspect", "lock", "lock/redlock", "middleware", "scheduler", "worker"}, append([]string{goRedis}, otelAPI...)},
	{"internal/redistest", []string{"embedded", "internal/servertest"}, []string{goRedis, goleak}},
	{pattern: "internal/litetx"},
	{"internal/servertest", nil, nil}, // nothing of this module imports it but tests
	{pattern: "outbox/model"},         // all tests
	{pattern: "internal/archtest"},
	{pattern: "internal/luck"},
	{pattern: "internal/mutants"},
}

// testOthers is what test files may import of other modules, in addition to what a package's rule allows. Of this
// module they may import everything, since a test may cover several packages.
var testOthers = []string{goleak, "go.opentelemetry.io/otel/sdk/...", "github.com/yuin/gopher-lua/..."} // which the embedded Redis brings

// rivals are the modules that we compare with, or that belong to a module of their own. The core go.mod must not
// require them, so that users don't download them.
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

// luaHomes are the subtrees that may contain Lua: scripts are part of their protocols.
var luaHomes = []string{"internal/asynq", "internal/store/...", "lock/..."}

// A pkg has the data of a package that the rules check.
type pkg struct {
	path        string // within the module; "." is the root
	name        string
	doc         string   // the package comment's first sentence
	imports     []string // of all files except tests, with any build tags
	testImports []string // of all test files
}

// checkImports returns one line for each import that no rule allows, and for each package without a rule.
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

// checkUnused returns one line for each rule that matches no package.
func checkUnused(rules []rule, pkgs []pkg) []string {
	var wrong []string
	for _, r := range rules {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return fits(r.pattern, p.path) }) {
			wrong = append(wrong, fmt.Sprintf("the rule for %s names no package: delete it", r.pattern))
		}
	}
	return wrong
}

// checkDocs returns one line for each package without a doc comment.
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

// checkLua returns one line for each file that contains Lua outside of luaHomes: a .lua file, or Go code, except tests,
// that mentions a way to run a script.
func checkLua(file string, mentions []string) []string {
	slash := strings.LastIndex(file, "/")
	if fitsAny(luaHomes, file[:max(slash, 0)]) || file == "docs/enqueue.lua" { // a copy for producers in other languages
		return nil
	}
	var wrong []string
	if strings.HasSuffix(file, ".lua") {
		wrong = append(wrong, fmt.Sprintf("%s: Lua belongs to internal/store, internal/asynq or lock", file))
	}
	for _, name := range mentions {
		if slices.Contains(scripting, name) {
			wrong = append(wrong, fmt.Sprintf("%s uses %s: scripts are run by internal/store, internal/asynq or lock", file, name))
		}
	}
	return wrong
}

// checkLuaNumbers returns one line for each place in a script where a number may get a fraction: a division, a power or
// a literal that is not in math.floor or math.ceil. Redis' Lua 5.1 has no integers, and Redis cuts off a fraction in a
// reply. In Lua 5.4, which other servers have, 6/3 is 2.0, and a reply with it is no integer.
func checkLuaNumbers(file, src string) []string {
	var wrong []string
	for i, line := range strings.Split(src, "\n") {
		if slices.Contains(fractions[file], strings.TrimSpace(line)) {
			continue
		}
		var whole []bool // for each open parenthesis: whether its content becomes a whole number
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

// fractions are the lines of scripts that divide, and whose result is in no reply.
var fractions = map[string][]string{
	// It is compared with its own floor: only a whole number is used as a number of jobs.
	"internal/store/scripts/enqueue.lua": {`local n = (#ARGV - fixed) / 4`},
	// The remainder is taken off first. They are the bytes of a string.
	"internal/store/scripts/chapters/time.lua": {
		`low, high = (low - h) / 256, (high - d) / 256`,
		`low, high = (low - g) / 256, (high - c) / 256`,
		`return string.char((high - b) / 256, b, c, d, (low - f) / 256, f, g, h)`,
	},
}

// scripting are the names in go-redis that send Lua to a server.
var scripting = []string{
	"Eval", "EvalRO", "EvalSha", "EvalShaRO", "NewScript", "NewScriptServerSHA", "ScriptLoad",
	"FCall", "FCallRo", "FCallRO", "FunctionLoad", "FunctionLoadReplace",
}

// checkBench returns the packages of this module that a file of bench imports and must not.
func checkBench(file string, imports []string) []string {
	var wrong []string
	for _, path := range imports {
		in, ok := within(path)
		servers := in == "internal/servertest" || in == "internal/redistest" && strings.HasSuffix(file, "_test.go")
		if ok && strings.HasPrefix(in, "internal/") && in != "internal/store" && in != "internal/store/scripts" && !servers {
			wrong = append(wrong, fmt.Sprintf("%s imports %s; of the internal packages bench may import only internal/store, internal/store/scripts, internal/servertest for the servers of its peers, and its tests internal/redistest", file, in))
		}
	}
	return wrong
}

// commandMay are the packages of this module that cmd/signalbox may import. Its tests may import all.
var commandMay = []string{".", "fromasynq", "inspect", "scheduler", "web"}

// checkCommand returns what a file of cmd/signalbox imports of this module and may not.
func checkCommand(file string, imports []string) []string {
	var wrong []string
	for _, path := range imports {
		if in, ok := within(path); ok && !fitsAny(commandMay, in) && !strings.HasSuffix(file, "_test.go") {
			wrong = append(wrong, fmt.Sprintf("%s imports %s; of this module cmd/signalbox may import only %s", file, in, strings.Join(commandMay, " ")))
		}
	}
	return wrong
}

// fits reports whether a pattern matches a package.
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

// standard reports whether a path is in the standard library. cgo is not.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && path != "C"
}
