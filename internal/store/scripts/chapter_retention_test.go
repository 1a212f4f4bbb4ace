package scripts

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// The scores of jobs that have ended are written and read as testdata/ends.txt of package wire says. Go is tested against the same file.
func TestChapterRetention(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	text, err := os.ReadFile("../../wire/testdata/ends.txt")
	if err != nil {
		t.Fatal(err)
	}
	var records []any
	var lines, want []string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		fields := strings.Fields(line)
		job := signalbox.Job{Kind: "k"}
		us, err := strconv.ParseInt(fields[1], 10, 64)
		switch {
		case err != nil: // it doesn't say it
		case us == 0:
			job.Retain = signalbox.RetainNone
		default:
			job.Retain = time.Duration(us) * time.Microsecond
		}
		records = append(records, fields[0], fields[2], string(wire.AppendRecord(nil, &job)))
		written := fields[0]
		if err != nil {
			written = fields[2] // a job is put in by its record
		}
		lines = append(lines, line)
		want = append(want, strings.ReplaceAll(strings.Join([]string{fields[2], fields[3], written}, " "), " - ", " nil "))
	}
	got := c.Run(`
for i = 1, #given, 3 do
  local score, ended, record = tonumber(given[i]), tonumber(given[i + 1]), given[i + 2]
  local state, limits = terminal_states().dead, {math.huge, math.huge, math.huge}
  redis.call('DEL', DEAD)
  retain(state, 'a', record, own_age(record), limits, ended)
  local written = redis.call('ZSCORE', DEAD, 'a')
  if not written then -- its time is over at once
    redis.call('ZADD', DEAD, given[i], 'a')
    written = redis.call('ZSCORE', DEAD, 'a')
  end
  show(ended_at(score, record), score < 0 and score + own_shift or nil, tonumber(written))
end`, records...)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: ended, dropped, written: %s; want %s", lines[i], got[i], want[i])
		}
	}
}

// Which job goes next, and whether its time is over, for what a set holds. A job "o" has a time of its own.
func TestChapterNextToGo(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	own := func(drop int64) string { return strconv.FormatInt(drop-1<<52, 10) }
	for _, g := range []struct {
		set  string
		age  string
		want string
	}{
		{"", "10", "nil nil"},
		{"989 a 995 b", "10", `"a" true`},
		{"990 a 995 b", "10", `"a" true`},
		{"991 a 995 b", "10", `"a" false`},
		{"991 a", "math.huge", `"a" false`},
		{"1000 a", "-math.huge", `"a" true`}, // none are kept
		{own(1000) + " o 500 a", "10", `"o" true`},
		{own(1001) + " o 500 a", "10", `"a" true`},
		{own(1001) + " o 999 a", "10", `"a" false`},
		{own(1001) + " o 0 a", "2000", `"a" false`},
		{own(1001) + " o " + own(1002) + " o2", "10", `"o" false`},
		{own(1001) + " o", "-math.huge", `"o" false`},
		{own(1) + " o " + own(5000) + " o2 0 a", "10", `"o" true`},
	} {
		code := "redis.call('DEL', DEAD)\n"
		if g.set != "" {
			code += fmt.Sprintf("redis.call('ZADD', DEAD, '%s')\n", strings.ReplaceAll(g.set, " ", "', '"))
		}
		c.shows(code+fmt.Sprintf("show(next_to_go(terminal_states().dead, %s, 1000))", g.age), g.want)
	}
}
