package scripts

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	// A call of Redis, and of the functions that take keys, with its arguments on the line.
	redisCall  = regexp.MustCompile(`redis\.p?call\(([^\n]*)`)
	helperCall = regexp.MustCompile(`\b(begin|wake_one|dead_or_held|count_up|upcoming|read_settings|retention|totals_of|sample)\(([^\n]*)`)
	helperHead = regexp.MustCompile(`local function (\w+)\(([^)]*)\)`)
	// What may stand where a key is expected: one of KEYS, a list that has them, or the set of a terminal state.
	aKey = regexp.MustCompile(`^(KEYS\[k\]|(?:ready_)?lists\[[\w.(), ]+\]|list|state\.set|place\.set|terminal\.\w+\.set)$`)
)

// helperKeys are the positions of keys among the arguments of those functions.
var helperKeys = map[string][]int{
	"wake_one": {0}, "dead_or_held": {1, 2, 3}, "count_up": {0}, "upcoming": {0, 1, 3, 4}, "read_settings": {0, 1}, "begin": {0, 1}, "retention": {0}, "keeps": {0}, "totals_of": {0}, "sample": {0, 1, 2},
}

// luaFiles returns the names of the scripts, or of the chapters.
func luaFiles(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := files.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".lua"); ok {
			all = append(all, name)
		}
	}
	return all
}

// Redis Cluster and managed servers need every key that a script touches declared in KEYS. So no
// key is built in Lua: where a command takes its key there is one of KEYS, or a function's parameter
// that is given one.
func TestKeysAreDeclared(t *testing.T) {
	t.Parallel()
	calls, q := 0, layout.KeysOf("", "q")
	for _, name := range luaFiles(t, ".") {
		lua := comment.ReplaceAllString(asWritten(name), "")
		params, names := []string{}, unpacked(read(name), "KEYS")
		for _, head := range helperHead.FindAllStringSubmatch(lua, -1) {
			list := strings.Split(head[2], ", ")
			for _, i := range helperKeys[head[1]] {
				params = append(params, list[i])
			}
		}
		check := func(line, arg string) {
			calls++
			for key := range strings.SplitSeq(arg, " or ") {
				if !aKey.MatchString(key) && !slices.Contains(params, key) && !slices.Contains(names, key) {
					t.Errorf("%s.lua: %q stands for a key in %s", name, key, line)
				}
			}
		}
		for _, call := range redisCall.FindAllStringSubmatch(lua, -1) {
			args := arguments(call[1])
			if !slices.Contains([]string{"'TIME'", "'PUBLISH'", "'SPUBLISH'"}, args[0]) { // those have no key
				check(call[0], args[1])
			}
		}
		for _, call := range helperCall.FindAllStringSubmatch(lua, -1) {
			if strings.Contains(lua, "function "+call[0]) {
				continue // its definition
			}
			args := arguments(call[2])
			for _, i := range helperKeys[call[1]] {
				check(call[0], args[i])
			}
		}
		if regexp.MustCompile(`KEYS\[[^\]]*\]\s*\.\.|\.\.\s*KEYS`).MatchString(lua) {
			t.Errorf("%s.lua: a key is made longer", name)
		}
		for _, key := range names {
			if regexp.MustCompile(`\b` + key + `\s*\.\.|\.\.\s*` + key + `\b`).MatchString(lua) {
				t.Errorf("%s.lua: %s is made longer", name, key)
			}
			if own := key == "LANE" || key == "INFLIGHT" || key == "REGISTRY"; !own && q.Named[key] == "" {
				t.Errorf("%s.lua: %s is no key of a queue", name, key)
			}
		}
	}
	if calls < 150 {
		t.Errorf("only %d uses of keys were found", calls)
	}
}

// asWritten returns what a script has, as it stands in its files.
func asWritten(name string) string {
	text := read(name)
	for _, p := range piecesOf(read(name)) {
		if p.passage != nil {
			text += p.passage.in(read(name))
		}
	}
	return text
}

// arguments splits at the commas that are not in parentheses, up to the closing one.
func arguments(s string) (args []string) {
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth == 0 {
				return append(args, strings.TrimSpace(s[start:i]))
			}
			depth--
		case ',':
			if depth == 0 {
				args = append(args, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	return append(args, strings.TrimSpace(s[start:]))
}

// keyOrder is the order of KEYS in every script. A script leaves out those that it doesn't use.
var keyOrder = []string{
	"LANE", "INFLIGHT", "SESSIONS", "FENCE", "JOBS", "DUE", "IDLE", "STATS", "HISTORY", "CRON", "ENTRIES", "HIGH", "NORMAL", "LOW", "SUSPECT",
	"DEAD", "CANCELLED", "NOTES", "CANCELS", "SETTINGS", "COMPLETED", "REPORTER", "LINED", "TURNS", "GROUPS", "RUNNING", "LIMITS",
	"RATES", "PARKED", "UNIQUE", "WINDOWS", "EXPIRES", "RECEIPTS", "OUTBOXES", "FLOWS", "AWAITING", "FLOWNOTES", "FLOWTIMES", "ADDED", "REGISTRY",
}

func TestKeysHaveOneOrder(t *testing.T) {
	t.Parallel()
	for _, name := range luaFiles(t, ".") {
		keys, left := unpacked(read(name), "KEYS"), keyOrder
		for _, key := range keys {
			i := slices.Index(left, key)
			if i < 0 {
				t.Errorf("%s.lua: in %v, %s is not in its place", name, keys, key)
				break
			}
			left = left[i+1:]
		}
		for _, first := range regexp.MustCompile(`(?m)^local first_(?:session|lane) = (\d+) -- of KEYS$`).FindAllStringSubmatch(read(name), -1) {
			same(t, name+".lua: the number of the key behind those that have names", first[1], strconv.Itoa(len(keys)+1))
		}
	}
}

// A script reads the arguments that have names at once, all at the place of their names, and no other by its number.
func TestArgumentsHaveNames(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^local ([\w, ]+) = unpack\(ARGV(, 1, fixed)?\)$`)
	fixed := regexp.MustCompile(`(?m)^local fixed = (\d+)\b`)
	named := 0
	for _, name := range luaFiles(t, ".") {
		lua := comment.ReplaceAllString(source(name), "")
		if regexp.MustCompile(`ARGV\[\d`).MatchString(lua) || strings.Count(lua, "unpack(ARGV") > strings.Count(lua, "unpack(ARGV, i, i +")+1 {
			t.Errorf("%s.lua: an argument is read by its number", name)
		}
		m := line.FindStringSubmatch(lua)
		if m == nil {
			if strings.Contains(lua, "ARGV") {
				t.Errorf("%s.lua: the arguments have no names", name)
			}
			continue
		}
		named++
		args := strings.Split(m[1], ", ")
		n := fixed.FindStringSubmatch(lua)
		if (n != nil) != (m[2] != "") || n != nil && n[1] != strconv.Itoa(len(args)) {
			t.Errorf("%s.lua: %d arguments have names, fixed is %v", name, len(args), n)
		}
		equal(t, "arguments of "+name, load(name).ArgNames, args)
	}
	if named < 9 {
		t.Errorf("only %d scripts name their arguments", named)
	}
}

// The arguments stand where the script's names are, in whatever order they are given; one that is missing, or unknown, or there
// twice is a mistake.
func TestArguments(t *testing.T) {
	t.Parallel()
	s := &Script{ArgNames: []string{"a", "b"}}
	equal(t, "arguments", s.Args(3, Arg("b", 2), Arg("a", 1)), []any{1, 2})
	for what, values := range map[string][]Argument{
		"missing": {{"a", 1}},
		"unknown": {{"a", 1}, {"c", 3}},
		"twice":   {{"a", 1}, {"a", 1}},
		"more":    {{"a", 1}, {"b", 2}, {"b", 2}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			s.Args(0, values...)
		}()
	}
}

// Jobs end, become ready and change their state in one place each.
func TestOnePlace(t *testing.T) {
	t.Parallel()
	texts := make(map[string]string)
	for _, p := range passages() {
		texts[p.name] = p.text
	}
	for _, name := range luaFiles(t, ".") {
		texts[name] = read(name)
	}
	ready, terminal := `'[LR]PUSH', (list|\w*lists|HIGH|NORMAL|LOW|SUSPECT)\b`, `'Z(ADD|REM)', (\w+\.set|terminal\.\w+\.set|DEAD|CANCELLED|COMPLETED)\b`
	for pattern, planted := range map[string][]string{
		ready:    {"'RPUSH', ready_lists[class], id", "'LPUSH', lists['0'], id", "'RPUSH', SUSPECT, id"},
		terminal: {"'ZREM', COMPLETED, id", "'ZADD', place.set, 1, id", "'ZREM', terminal.dead.set, id", "'ZADD', state.set, 1, id"},
	} {
		for _, line := range planted {
			if !regexp.MustCompile(pattern).MatchString(line) {
				t.Errorf("%s isn't found by %s", line, pattern)
			}
		}
	}
	for pattern, places := range map[string][]string{
		ready:           {"make_ready"},
		`'HDEL', JOBS,`: {"finish", "trim"},
		terminal:        {"forget", "retain"},
		`'S?PUBLISH'`:   {"send"},
		`\bcount_up\(STATS, ('?(enqueued|completed|outcome|dead|cancelled|crashed|deleted|revived)\b|change)`: {"note_change"},
	} {
		var found []string
		for name, text := range texts {
			calls := regexp.MustCompile(`(?m)^.*`+pattern).FindAllString(comment.ReplaceAllString(text, ""), -1)
			if slices.ContainsFunc(calls, func(line string) bool { return !strings.HasPrefix(strings.TrimSpace(line), "{'") }) { // those are for the ACL
				found = append(found, name)
			}
		}
		slices.Sort(found)
		equal(t, "places of "+pattern, found, places)
	}
}
