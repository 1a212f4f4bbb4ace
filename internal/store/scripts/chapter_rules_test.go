package scripts

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// What a queue's settings allow, also if another program has written them.
func TestChapterSettings(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	protocol := luaString(fmt.Sprint(layout.Protocol))
	read := "show(read_settings(SETTINGS, STATS, " + protocol + ", %s))"
	set := func(fields ...any) {
		c.t.Helper()
		c.must(c.rdb.Del(bg, c.keys.Settings).Err())
		c.must(c.rdb.HSet(bg, c.keys.Settings, fields...).Err())
	}
	c.shows(fmt.Sprintf(read, "nil"), shown("", "", nil, true)) // nothing there
	for _, s := range []struct {
		fields   []any
		producer string
		worker   string
	}{
		{[]any{"layout", layout.Protocol}, shown("", "", nil, false), shown("", "", false, false, false, false)},
		{[]any{"layout", layout.Protocol, "paused", "1", "slots", "7"}, shown("paused", "7", nil, false), shown("paused", "7", false, false, false, false)},
		{[]any{"layout", layout.Protocol, "max_length", "10", "quiet:w", "quiet"}, shown("", "", 10, false), shown("quiet", "", false, false, "10", false)},
		{[]any{"layout", layout.Protocol, "max_length", "0"}, shown("", "", nil, false), shown("", "", false, false, "0", false)},
		{[]any{"layout", layout.Protocol, "max_length", "1e3", "quiet:w", "stop 1", "paused", "x"}, shown("paused", "", nil, false), shown("stop", "", false, false, "1e3", false)},
		{[]any{"layout", layout.Protocol, "limits", "a", "group_limits", "b"}, shown("", "", nil, false), shown("", "", "a", "b", false, false)},
		{[]any{"layout", layout.Protocol + 1}, shown(fmt.Sprint(layout.Protocol+1), ""), shown(fmt.Sprint(layout.Protocol+1), "")},
		{[]any{"layout", "x"}, shown("999", ""), shown("999", "")},
		{[]any{"layout", "1234"}, shown("999", ""), shown("999", "")},
		{[]any{"paused", "1"}, shown("1", ""), shown("1", "")},
	} {
		set(s.fields...)
		c.shows(fmt.Sprintf(read, "nil"), s.producer)
		c.shows(fmt.Sprintf(read, "'w'"), s.worker)
	}

	retention := "show(retention(SETTINGS, {1, 2, 3}))"
	for _, s := range []struct {
		fields []any
		want   string
	}{
		{[]any{"x", "y"}, "{1 2 3 false}"},
		{[]any{"keep", "5 6 7", "copy_dead", "q"}, "{5 6 7 true}"},
		{[]any{"keep", "5 -6 7", "copy_dead", "{off}"}, "{1 2 3 false}"},
		{[]any{"keep", "1000000000000000 6 7", "copy_dead", ""}, "{1 2 3 false}"},
	} {
		set(s.fields...)
		c.shows(retention, s.want)
	}
	for text, want := range map[string]string{
		"1 2 3": "{1 2 3}", "": "nil", "0 2 3": "nil", "1 2": "nil", "1 2 3 4": "nil", "1  2 3": "nil", "1000000000000000 2 3": "nil", "x": "nil",
	} {
		set("keep_completed", text)
		c.shows("show((keeps(SETTINGS)))", want)
	}
}

// Limits are read from any text, and rates are those of a model in Go: the generic cell rate algorithm.
func TestChapterLimits(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	for text, want := range map[string]string{
		"nil": "inf false", "''": "inf false", "'x'": "inf false", "'3 0 0 0'": "3 false", "'0 0 0 0'": "inf false", "'0 2 1000000 1'": "inf true", "'4 2 1000000 1'": "4 true",
		"'- - 0 0'": "inf false", "'- - 0 0', '5 2 1000000 3'": "5 true", "'7 - 0 0', '5 2 1000000 3'": "7 true", "'- 0 0 0', '5 2 1000000 3'": "5 false", "'- 1 1 1', 'x'": "inf true",
	} {
		c.shows("local l = limits_of("+text+") show(l.running, l.rated)", want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		jobs, per, burst := 1+random.Int64N(20), 1+random.Int64N(5_000_000), 1+random.Int64N(10)
		// Steps in time, and how many jobs want to start then. at is scaled by jobs in the model, so that it has no fractions; the script rounds up.
		var code, want strings.Builder
		fmt.Fprintf(&code, "local l, at = limits_of('0 %d %d %d')\n", jobs, per, burst)
		now, at := int64(1_750_000_000_000_000), int64(0)
		for range 30 {
			now += random.Int64N(2*per/jobs + 2)
			ahead := max(at-now, 0)
			left := (burst-1)*per - ahead*jobs
			allowed, pause := int64(0), int64(0)
			if left < 0 {
				pause = (-left + jobs - 1) / jobs
			} else {
				allowed = left/per + 1
			}
			n := min(allowed, 1+random.Int64N(4))
			fmt.Fprintf(&code, "show(l.allowed(at, %d))\n", now)
			want.WriteString("; " + shown(allowed, pause))
			if n > 0 {
				at = now + ahead + (n*per+jobs-1)/jobs
				fmt.Fprintf(&code, "at = l.started(at, %d, %d) show(at, l.bound(at, %d))\n", now, n, now)
				want.WriteString("; " + shown(fmt.Sprint(at), nil))
			}
		}
		most := now + (burst*per+jobs-1)/jobs
		fmt.Fprintf(&code, "show(l.bound('%d', %d), l.bound('%d', %d), l.bound(nil, %d))", most, now, most+1, now, now)
		want.WriteString("; " + shown(nil, fmt.Sprint(most), nil))
		c.shows(code.String(), strings.TrimPrefix(want.String(), "; "))
		if t.Failed() {
			return
		}
	}
}

// A counter that can't be counted up starts again, and never ends a script.
func TestChapterStatistics(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	for _, s := range []struct {
		had  any
		n    string
		want string
	}{
		{"5", "3", "8"},
		{"5", "-7", "-2"},
		{"5", "0 - 0", "5"},
		{"x", "3", "3"},
		{"", "3", "3"},
		{"1.5", "3", "3"},
		{"9223372036854775807", "3", "3"},
		{"9007199254740990", "1", "9007199254740991"},
		{"99999999999999999999", "4", "4"},
	} {
		if s.had == "9223372036854775807" && !redistest.Start(t).Real() {
			continue // the embedded Redis goes on from the other end
		}
		c.must(c.rdb.HSet(bg, c.keys.Stats, "n", s.had).Err())
		c.shows("show(count_up(STATS, 'n', "+s.n+")) show((redis.call('HGET', STATS, 'n')))", s.want, luaString(s.want))
	}
	c.must(c.rdb.Del(bg, c.keys.Stats).Err())
	c.shows("show(note_change('dead', 2)) show(note_change('dead', 1))", 2, 3)
	c.must(c.rdb.HSet(bg, c.keys.Stats, "enqueued", "7", "completed", "x", "crashed", "99999999999999999", "expired", "1").Err())
	c.shows("show(totals_of(STATS))", shown("7 0 0 0 0 3 0 0 0 0 1"))
	c.must(c.rdb.Set(bg, c.keys.History, "other", 0).Err())
	c.shows("sample(nil, STATS, HISTORY, 60000000, 1, '', '') show('on')", shown("on"))
	c.must(c.rdb.Del(bg, c.keys.History).Err())
	c.shows("sample(nil, STATS, HISTORY, 60000000, 1, '', '') show((redis.call('HGET', HISTORY, 'last')))", shown("60000000 7 0 0 0 0 3 0 0 0 0 1"))
	c.must(c.rdb.Set(bg, c.keys.Stats, "other", 0).Err())
	c.shows("show(count_up(STATS, 'n', 1))", 0) // after any other error it is unchanged
}

// A unique key is freed only for the job that has it.
func TestChapterUniques(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	record := func(scope byte, key string) string {
		part := "\x00" + string(rune(1+len(key))) + string(scope) + key
		if scope == 'w' || scope == 't' {
			part = "\x00" + string(rune(9+len(key))) + string(scope) + "\x00\x00\x00\x00\x00\x00\x00\x05" + key
		}
		return luaString("\x011\x00\x04" + strings.Repeat("\x00", 16) + "\x00" + string(rune(len(part))) + part)
	}
	set := func(fields ...any) {
		t.Helper()
		c.must(c.rdb.Del(bg, c.keys.Unique, c.keys.Windows, c.keys.Jobs).Err())
		c.must(c.rdb.HSet(bg, c.keys.Unique, fields...).Err())
	}
	left := "\nshow(redis.call('HKEYS', UNIQUE))"
	for _, s := range []struct {
		value, code, want string
	}{
		{"e a", "free_keys({'k'}, {'a'})", "{}"},
		{"s a", "free_keys({'k'}, {'a'})", "{}"},
		{"e b", "free_keys({'k'}, {'a'})", `{"k"}`},
		{"x a", "free_keys({'k'}, {'a'})", `{"k"}`},
		{"9 a", "free_keys({'k'}, {'a'})", `{"k"}`},
		{"e a", "free_keys({'other'}, {'a'})", `{"k"}`},
		{"e a", "free_key_of('a', " + record('e', "k") + ")", "{}"},
		{"e b", "free_key_of('a', " + record('e', "k") + ")", `{"k"}`},
		{"9 a", "free_key_of('a', " + record('w', "k") + ")", `{"k"}`},
		{"9 a", "free_key_of('a', " + record('w', "k") + ", true)", "{}"},
		{"9 b", "free_key_of('a', " + record('w', "k") + ", true)", `{"k"}`},
		{"t a", "free_key_of('a', " + record('t', "k") + ")", "{}"},
		{"e a", "free_key_of('a', 'no record')", `{"k"}`},
	} {
		set("k", s.value)
		c.shows(s.code+left, s.want)
	}
	taken := "show(key_taken('a', " + record('e', "k") + ", 10))"
	set("k", "e a")
	c.shows(taken, shown(false, "e", "k"))
	set("k", "e b")
	c.shows(taken, shown(false, "e", "k")) // its job is gone
	c.must(c.rdb.HSet(bg, c.keys.Jobs, "b", "x").Err())
	c.shows(taken, shown(true, "e", "k"))
	set("k", "11 b")
	c.shows(taken, shown(true, "e", "k"))
	set("k", "10 b")
	c.shows(taken, shown(false, "e", "k"))
	set("other", "e b")
	c.shows(taken+" show(key_taken('a', "+record('w', "k")+", 10))", shown(false, "e", "k"), shown(false))
}

// Lines of groups: who joins, quits, holds and leaves, and which lines get a turn.
func TestChapterGroups(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	line := "local function at(class, key, us, id) return line_at(class, key, us, id) end\n"
	state := "\nlocal function all() local t = redis.call('ZRANGE', TURNS, 0, -1) table.sort(t) show(redis.call('HGET', GROUPS, 'sk') or '', t, redis.call('ZCARD', LINED)) end\n"
	step := func(code string, want ...any) {
		t.Helper()
		c.shows(line+state+"local g = lines_of_groups()\ng.load({'sk'})\n"+code+"\nall()", want...)
	}
	step("show(g.join({at('1', 'sk', 5, 'a'), at('1', 'sk', 6, 'b')})) g.save()", "true", shown(".t.0")+` {"1sk"} 2`)
	step("show(g.room('sk'), g.holders('sk'), g.state('sk', '1'))", shown(1, 0, "t"), shown(".t.0")+` {"1sk"} 2`)
	step("g.hold('sk', 1) g.set('sk', '1', 'b') redis.call('ZREM', TURNS, '1sk') show(g.save())", "false", shown(".b.1")+" {} 2")
	step("show(g.join({at('0', 'sk', 7, 'c')})) g.save()", "false", shown("bb.1")+" {} 3") // another holds it
	step("show(g.quit(at('0', 'sk', 7, 'x')))", "false", shown("bb.1")+" {} 3")
	step("show(g.quit(at('0', 'sk', 7, 'c'))) g.save()", "true", shown(".b.1")+" {} 2")
	step("g.leave({'sk'}) show(g.save())", "true", shown(".t.0")+` {"1sk"} 2`)
	step("g.leave({'sk'}) show(g.holders('sk'))", "0", shown(".t.0")+` {"1sk"} 2`) // never fewer than none
	step("g.quit(at('1', 'sk', 5, 'a')) g.quit(at('1', 'sk', 6, 'b')) g.save()", shown("")+" {} 0")
	c.must(c.rdb.HSet(bg, c.keys.Groups, "sk", "garbage").Err())
	step("show(g.holders('sk'), g.state('sk', '2'))", shown(0, "."), shown("garbage")+" {} 0")
	step("show(g.join({at('2', 'sk', 5, 'a')}, {'sk'}, {'2'})) g.save()", "true", shown("..t0")+` {"2sk"} 1`)
	c.shows("show(line_facts('2sk')) show(line_facts('1sk'))", shown("true")[1:5]+` "2251799813685249" nil`, "false nil nil")
}

// Ended jobs are dropped in their order: those whose own time has come, then the oldest beyond the limits.
func TestChapterEndings(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	for i, s := range []struct {
		limits string // jobs, bytes, age (us)
		keep   string // after which jobs with ages: id, own age or nil
		want   string // what is left, in order
	}{
		{"{9, 99, 100}", "a nil;b nil;c nil", `{"a" "b" "c"}`},
		{"{2, 99, 100}", "a nil;b nil;c nil", `{"b" "c"}`},
		{"{9, 7, 100}", "a nil;b nil;c nil", `{"b" "c"}`},
		{"{9, 99, 15}", "a nil;b nil;c nil;d nil", `{"c" "d"}`},
		{"{2, 99, 100}", "a 500;b nil;c nil;d nil", `{"a" "d"}`},    // one with a time of its own goes after the others
		{"{9, 99, 100}", "a 15;b nil;c nil;d nil", `{"b" "c" "d"}`}, // its own time has come
		{"{2, 99, 100}", "a 700;b 500;c 600", `{"c" "a"}`},          // no others: in the order of their times
	} {
		c.must(c.rdb.Del(bg, c.keys.Jobs, c.keys.Dead, c.keys.Stats).Err())
		code, now := "local state, limits = terminal_states().dead, "+s.limits+"\n", 1000
		for job := range strings.SplitSeq(s.keep, ";") {
			id, own, _ := strings.Cut(job, " ")
			code += fmt.Sprintf("retain(state, '%s', 'abc', %s, limits, %d)\n", id, own, now)
			now += 10
		}
		c.shows(code+"show(redis.call('ZRANGE', DEAD, 0, -1)) show(redis.call('HLEN', JOBS) * 3 - redis.call('HGET', STATS, 'dead_bytes'))", s.want, 0)
		if t.Failed() {
			t.Fatalf("scene %d", i)
		}
	}
	c.shows("show(ended_at(5, 'x'))", 5)
}

// The session that has been idle for longest is woken, and addresses without a listener are removed.
func TestChapterWake(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	names := []string{c.name + "-1", c.name + "-2", c.name + "-3"}
	idle := func(n ...int) {
		t.Helper()
		c.must(c.rdb.Del(bg, c.keys.Idle).Err())
		for _, i := range n {
			c.must(c.rdb.ZAdd(bg, c.keys.Idle, redis.Z{Score: float64(i), Member: "p" + names[i-1]}).Err())
		}
	}
	left := "\nshow(redis.call('ZCARD', IDLE))"
	idle(1, 2, 3)
	c.shows("wake_one(IDLE)"+left, 0) // nobody listens
	sub := c.rdb.Subscribe(bg, names[1], names[2])
	defer sub.Close()
	for range 2 {
		_, err := sub.Receive(bg)
		c.must(err)
	}
	heard := func(want string) {
		t.Helper()
		m, err := sub.ReceiveMessage(bg)
		c.must(err)
		same(t, "the message", strings.TrimPrefix(m.Channel, c.name)+" "+m.Payload, want)
	}
	idle(1, 2, 3)
	c.shows("wake_one(IDLE)"+left, 1)
	heard("-2 work")
	heard("-3 standby")
	idle(2, 3)
	c.shows("wake_one(IDLE, "+luaString("p"+names[1])+")"+left, 1)
	heard("-3 work")
	c.shows("show(send("+luaString("p"+names[1])+", 'x')) show(send("+luaString("p"+names[0])+", 'x'))", 1, 0)
	heard("-2 x")
	for _, s := range []struct{ code, want string }{
		{"", "-1 {}"},
		{"redis.call('ZADD', DUE, 50, '1a')", "40 {}"},
		{"redis.call('ZADD', DUE, 5, '1b')", "0 {}"},
		{"redis.call('DEL', DUE) redis.call('ZADD', EXPIRES, 30, 'a')", "20 {}"},
		{"redis.call('ZADD', PARKED, 15, '1g')", "8 {}"},
		{"redis.call('ZADD', SESSIONS, 9, 's1', 12, 's2')", `2 {"s1"}`},
	} {
		c.shows(s.code+" show(upcoming(DUE, SESSIONS, 10, PARKED, EXPIRES, true, 7))", s.want)
	}
	c.shows("show(upcoming(DUE, SESSIONS, 10, PARKED, EXPIRES, false, 7)) show(upcoming(DUE, SESSIONS, 10, PARKED, EXPIRES, true, 7, true))", `2 {"s1"}`, `2 {"s1"}`)
}
