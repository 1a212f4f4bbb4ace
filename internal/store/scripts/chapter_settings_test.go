package scripts

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Which value counts, call by call. Times are in seconds. A step is a value that a worker tells, "=x" if an operator sets x, "reset", "carry x", or a time
// that passes. Behind it is the setting's value then, if it changes.
func TestChapterDecide(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	long := "1 30 1 30 1 30 1 30 1 30 1 30 1 30"
	for name, steps := range map[string]string{
		"the first":                            "1>1 1",
		"a new one":                            "1>1 60 2>2",
		"none fights in a rolling deploy":      "1>1 30 2>2 30 1 30 2 30 1 30 2 1 2 1 1 2",
		"a restart of the older one":           "1>1 2>2 60 1 60 1 2",
		"a restart of the newer one":           "1>1 2>2 60 1 59 1 59 2",
		"the newer one is away too long":       "1>1 2>2 60 1 60 1 60 1>1 60 2>2",
		"a rollback":                           "1>1 60 2>2 " + long[:len(long)-5] + " 1>1",
		"an outage ages by a minute":           "1>1 2>2 6000 1 60 1 2",
		"a night without workers":              "1>1 60 2>2 100000 2 1",
		"the clock is set back":                "1>1 2>2 -6000 1 1 2 1 60 2 3>3",
		"what an operator set stays":           "1>1 60 =5>5 60 1 1 6000 1",
		"until the value changes":              "1>1 60 =5>5 60 2>2",
		"a new one that is the operator's":     "1>1 60 =2>2 60 2 60 2",
		"an operator before any Config":        "=5>5 60 1>1",
		"an operator removes it":               "1>1 60 => 60 1 6000 1 60 2>2",
		"an operator, a rolling deploy":        "1>1 2>2 =5>5 60 1 60 2 60 1 2",
		"an operator, and a rollback":          "1>1 2>2 =5>5 60 1 60 1 60 1>1",
		"reset":                                "1>1 =5>5 60 reset>1 60 1",
		"reset of what was removed":            "1>1 => 60 reset>1",
		"reset where nobody tells":             "1>1 =5>5 181 reset> 1>1",
		"reset of what nobody has told":        "=5>5 reset>",
		"reset to none, and a Config":          "=5>5 reset> 60 1>1",
		"carried":                              "carry:1 =5>5 60 1 60 2>2",
		"carried where workers tell":           "2>2 carry:1 60 1>1",
		"eight are remembered":                 "1>1 2>2 3>3 4>4 5>5 6>6 7>7 8>8 9>9 2 3 1>1",
		"the applied one is among them":        "1>1 =x>x 2>2 =1>1 2 3>3 =x>x 3 3",
		"a third build with the first's value": "1>1 60 2>2 60 1 2 60 1 60 1 60 1>1",
	} {
		var code, want strings.Builder
		code.WriteString("local text, value = nil, ''\nlocal function step(verb, v, by, now)\nlocal m = memory_of(text)\nlocal after, writes = decide(m, verb, v, by, now)\n" +
			"if writes then text = memory_text(m) end\nif after then value = after end\nshow(value)\nend\n")
		now, value := int64(1_750_000_000), ""
		for _, step := range strings.Fields(steps) {
			did, after, changes := strings.Cut(step, ">")
			seconds, err := strconv.ParseInt(did, 10, 64)
			if err == nil && (seconds < 0 || seconds > 20) {
				now += seconds
				continue
			}
			if changes {
				value = after
			}
			verb, by := "tell", "worker w"
			if set, is := strings.CutPrefix(did, "="); is {
				verb, by, did = "set", "operator o", set
			} else if did == "reset" {
				verb, by, did = "reset", "operator o", ""
			} else if carried, is := strings.CutPrefix(did, "carry:"); is {
				verb, by, did = "carry", "operator o", carried
			}
			fmt.Fprintf(&code, "step(%s, %s, %s, %d)\n", luaString(verb), luaString(did), luaString(by), now*1_000_000)
			want.WriteString("; " + shown(value))
			now++
		}
		if got := strings.Join(c.Run(code.String()), "; "); got != strings.TrimPrefix(want.String(), "; ") {
			t.Errorf("%s: %s\n got  %s\n want %s", name, steps, got, strings.TrimPrefix(want.String(), "; "))
		}
	}
	for text, want := range map[string]string{
		"nil": `"0 nobody - 0\n"`, "''": `"0 nobody - 0\n"`, "'x'": `"0 nobody - 0\n"`, `'1 operator a b 2\n'`: `"0 nobody - 0\n"`,
		`'1 worker w 2\n1 2 * 3 4 5\n'`: `"1 worker w 2\n1 2 * 3 4 5\n"`, `'1 worker w 2\nx\n7 8 - a\n'`: `"1 worker w 2\n7 8 - a\n"`,
	} {
		c.shows("show(memory_text(memory_of("+text+")))", strings.ReplaceAll(want, `\n`, `\010`))
	}
}
