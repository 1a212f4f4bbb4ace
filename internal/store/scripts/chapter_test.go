package scripts

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A chapter test calls functions of chapters on a server. Its keys are those of a queue of its own.
type chapterTest struct {
	t    *testing.T
	rdb  redis.UniversalClient
	name string
	keys layout.Keys
}

func newChapterTest(t *testing.T) *chapterTest {
	t.Helper()
	name := redistest.Name(t)
	c := &chapterTest{t, redistest.Start(t).Client(), name, layout.KeysOf("", name)}
	t.Cleanup(func() { // else other tests' scans take longer
		keys := slices.Collect(maps.Values(c.keys.Named))
		c.must(c.rdb.Del(bg, append(keys, c.keys.Inflight("s1"))...).Err())
	})
	return c
}

func (c *chapterTest) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// run runs code as a script, which gets the functions that it names, and its keys by their names. It returns what the code has shown: show(...) adds a
// text of all its arguments, in the form of shown.
func (c *chapterTest) Run(code string, args ...any) []string {
	c.t.Helper()
	code = "\nlocal given = ARGV\n" + luaShow + code + "\nreturn all_shown\n"
	words := wordsOf(code)
	often, deferred := pickedFor(code)
	for _, p := range slices.Concat(often, deferred) {
		maps.Copy(words, wordsOf(p.text))
	}
	var names, keys []string
	for _, name := range slices.Sorted(maps.Keys(c.keys.Named)) {
		if words[name] {
			names, keys = append(names, name), append(keys, c.keys.Named[name])
		}
	}
	if words["INFLIGHT"] {
		names, keys = append(names, "INFLIGHT"), append(keys, c.keys.Inflight("s1"))
	}
	if len(names) == 0 {
		names, keys = []string{"NONE"}, []string{c.keys.Jobs}
	}
	// As many calls have the same code, the server compiles it once.
	list, err := c.rdb.Eval(bg, pick("local "+strings.Join(names, ", ")+" = unpack(KEYS)\n"+code), keys, args...).StringSlice()
	if err != nil {
		c.t.Fatalf("%v in %s", err, code)
	}
	return list
}

// shows checks what code shows.
func (c *chapterTest) shows(code string, want ...any) {
	c.t.Helper()
	got := strings.Join(c.Run(code), "; ")
	texts := make([]string, len(want))
	for i, w := range want {
		texts[i] = fmt.Sprint(w)
	}
	if wanted := strings.Join(texts, "; "); got != wanted {
		c.t.Errorf("%s\n got  %s\n want %s", strings.TrimSpace(code), got, wanted)
	}
}

// luaShow has show, and flat, which returns the text of a value: a string in quotes, with each byte that isn't plain as \ and three digits; the fields of a table
// in the order of their texts.
const luaShow = `
local all_shown = {}
local function flat(v)
  if type(v) == 'string' then
    return '"' .. string.gsub(v, '[%z%c\127-\255"\\]', function(b) return string.format('\\%03d', string.byte(b)) end) .. '"'
  elseif v == math.huge then
    return 'inf'
  elseif type(v) == 'number' then
    return v == math.floor(v) and math.abs(v) < 1e17 and string.format('%.0f', v) or string.format('%.17g', v)
  elseif type(v) ~= 'table' then
    return tostring(v)
  end
  local fields = {}
  for name, value in pairs(v) do
    fields[#fields + 1] = (type(name) == 'number' and '' or name .. '=') .. flat(value)
  end
  if #v == 0 then
    table.sort(fields)
  end
  return '{' .. table.concat(fields, ' ') .. '}'
end
local function show(...)
  local texts = {}
  for i = 1, select('#', ...) do
    texts[i] = flat((select(i, ...)))
  end
  all_shown[#all_shown + 1] = table.concat(texts, ' ')
end
`

// shown returns the text that show makes of values.
func shown(values ...any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case nil:
			texts[i] = "nil"
		case string:
			texts[i] = luaString(v)
		default:
			texts[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(texts, " ")
}

// luaString returns a string in the form of Lua.
func luaString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, "\\%03d", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

func TestChapterTime(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	for _, n := range []int64{0, 1, -1, 999999, 1 << 31, 1 << 32, 1750000000000001, -4503599627370496, 1<<53 - 1, 1 << 53} {
		c.shows(fmt.Sprintf("show(digits(%d))", n), shown(strconv.FormatInt(n, 10)))
	}
	for n, want := range map[int64]string{
		0: "\x00\x00\x00\x00\x00\x00\x00\x00", 255: "\x00\x00\x00\x00\x00\x00\x00\xff", 256: "\x00\x00\x00\x00\x00\x00\x01\x00",
		1750000000000000: "\x00\x06\x37\x9d\xa0\x5b\x60\x00", 1<<53 - 1: "\x00\x1f\xff\xff\xff\xff\xff\xff", 1 << 53: "\x00\x20\x00\x00\x00\x00\x00\x00",
	} {
		c.shows(fmt.Sprintf("show(eight_bytes(%d))", n), shown(want))
	}
	before := c.rdb.Time(bg).Val().UnixMicro()
	at, _ := strconv.ParseInt(c.Run("show(clock())")[0], 10, 64)
	if after := c.rdb.Time(bg).Val().UnixMicro(); at < before || at > after {
		t.Errorf("the clock says %d between %d and %d", at, before, after)
	}
}

// The clock of limits goes on with Redis' clock, and never back.
func TestChapterTimeLimitsClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		noted any // what STATS has
		now   int64
		want  string
	}{
		"none":               {nil, 5_000_000, shown(5_000_000, "5000000 0")},
		"garbage":            {"x", 5_000_000, shown(5_000_000, "5000000 0")},
		"soon after":         {"5000000 0", 5_099_999, shown(5_099_999)},
		"later":              {"5000000 0", 5_100_000, shown(5_100_000, "5100000 0")},
		"set back":           {"5000000 0", 4_000_000, shown(5_000_000, "5000000 1000000")},
		"after it, soon":     {"5000000 1000000", 4_050_000, shown(5_050_000)},
		"after it":           {"5000000 1000000", 4_200_000, shown(5_200_000, "5200000 1000000")},
		"set back once more": {"5000000 1000000", 3_000_000, shown(5_000_000, "5000000 2000000")},
		"set on again":       {"5000000 1000000", 9_000_000, shown(10_000_000, "10000000 1000000")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newChapterTest(t)
			if c.noted != nil {
				r.must(r.rdb.HSet(bg, r.keys.Stats, "clock", c.noted).Err())
			}
			r.shows(fmt.Sprintf("show(limits_clock(%d))", c.now), c.want)
		})
	}
}
