package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// parseAll reads a reply in the way of each call.
func parseAll(list []any) (errs []error) {
	again := func() *scripts.Reply { return &scripts.Reply{List: list} }
	_, err := parseEnqueue(again(), 2)
	errs = append(errs, err)
	_, err = parseClaim(again(), "q", 3)
	errs = append(errs, err)
	_, _, err = parseRenew(again())
	errs = append(errs, err)
	_, _, err = parseReclaim(again(), "q")
	errs = append(errs, err)
	return errs
}

func TestStrangeReplies(t *testing.T) {
	t.Parallel()
	for _, list := range [][]any{
		nil,
		{},
		{nil},
		{"ok"},
		{"OK", int64(1)},
		{int64(1)},
		{[]any{}},
		{"ok", "1", "0"},
		{"ok", nil, nil},
		{"taken"},
		{map[any]any{"ok": 1}, 1.5, true},
	} {
		for i, err := range parseAll(list) {
			if err == nil {
				t.Errorf("call %d accepts %v", i, list)
			} else if !strings.Contains(err.Error(), "field") {
				t.Errorf("call %d of %v: %v", i, list, err)
			}
		}
	}
}

func TestStrangeClaims(t *testing.T) {
	t.Parallel()
	for i, wrong := range map[int][]any{
		1: {nil, "1"}, 2: {nil, int64(1), "1"}, 3: {nil, "1"}, 4: {nil, "1"}, 5: {"1"}, 6: {nil}, 7: {"s", []any{int64(1)}},
		8: {nil, "a", []any{"b"}, []any{int64(1), "b"}, []any{nil, "b"}}, 9: {nil, "x", []any{}, []any{"x", "y", "z"}}, 10: {nil, "x", int64(1)}, 11: {nil, "1"}, 12: {nil, int64(2), "3", "0", "x"}, 13: {nil, int64(2)}, 14: {nil, "1"},
	} {
		for _, v := range wrong {
			list := []any{
				"ok", int64(1), []any{}, int64(1), int64(1), int64(0), int64(0), []any{}, []any{"a", "b"}, []any{"x", nil}, []any{}, int64(0), "", "", int64(0),
			}
			if _, err := parseClaim(&scripts.Reply{List: list}, "q", 0); err != nil {
				t.Fatal(err)
			}
			list[i] = v
			if _, err := parseClaim(&scripts.Reply{List: list}, "q", 0); err == nil {
				t.Errorf("field %d as %v is accepted", i, v)
			}
			if _, err := parseClaim(&scripts.Reply{List: list[:i]}, "q", 0); err == nil {
				t.Errorf("a reply that ends before field %d is accepted", i)
			}
		}
	}
}

func TestStrangeReclaims(t *testing.T) {
	t.Parallel()
	fours := []any{nil, int64(1), []any{"a"}, []any{"a", "1", "x"}, []any{"a", int64(1), "x", ""}, []any{"a", "1", "x", nil}, []any{"a", "1", "x", "", "b"}}
	for i, wrong := range map[int][]any{1: {nil, "1"}, 2: {nil, "1"}, 3: {nil, "1"}, 4: {nil, "a", []any{nil}}, 5: fours, 6: fours} {
		for _, v := range wrong {
			list := []any{"ok", int64(0), int64(1), int64(1), []any{"a"}, []any{"b", "1", "x", ""}, []any{"c", "one", "x", ""}}
			if r, _, err := parseReclaim(&scripts.Reply{List: list}, "q"); err != nil || len(r.Dead) != 1 || r.Dead[0].Err == nil || r.Dead[0].Job.Token != 1 || r.Lost[0].Job.Token != 0 {
				t.Fatal(r, err)
			}
			list[i] = v
			if _, _, err := parseReclaim(&scripts.Reply{List: list}, "q"); err == nil {
				t.Errorf("field %d as %v is accepted", i, v)
			}
			if _, _, err := parseReclaim(&scripts.Reply{List: list[:i]}, "q"); err == nil {
				t.Errorf("a reply that ends before field %d is accepted", i)
			}
		}
	}
}

// Refusals that don't belong to a settlement of the call are ignored.
func TestStrangeRefusals(t *testing.T) {
	t.Parallel()
	list := []any{
		"ok", int64(1),
		[]any{int64(0), int64(1), int64(3), int64(4), int64(-1), int64(1 << 62), "2", nil},
		int64(1), int64(1), int64(0), int64(0),
		[]any{},
		[]any{},
		[]any{},
		[]any{},
		int64(0),
		"",
		"",
		int64(0),
	}
	reply, err := parseClaim(&scripts.Reply{List: list}, "q", 3)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "refused", reply.Refused, []int{0, 2})
}

// Reading any reply at all causes no panic.
func FuzzReply(f *testing.F) {
	f.Add([]byte("sok\x00i\x01l\x00i\x01i\x05i\x00i\x00l\x00l\x01sa\x00l\x01sb\x00"))
	f.Add([]byte("sstale\x00"))
	f.Add([]byte("sok\x00i\x01s01\x00"))
	f.Add([]byte("nfml\x02ii\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []any
		for len(b) > 0 {
			var v any
			v, b = value(b, 0)
			list = append(list, v)
		}
		parseAll(list)
	})
}

// value makes a value from bytes, of a kind that go-redis could return.
func value(b []byte, depth int) (any, []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	kind, b := b[0], b[1:]
	switch kind {
	case 's':
		s, rest, _ := strings.Cut(string(b), "\x00")
		return s, []byte(rest)
	case 'i':
		if len(b) == 0 {
			return int64(-1), nil
		}
		return int64(int8(b[0])) << (b[0] % 64), b[1:]
	case 'l':
		if len(b) == 0 || depth > 3 {
			return []any{}, b
		}
		n := int(b[0]) % 8
		b = b[1:]
		list := make([]any, n)
		for i := range list {
			list[i], b = value(b, depth+1)
		}
		return list, b
	case 'f':
		return 1.5, b
	case 'm':
		return map[any]any{"k": "v"}, b
	case 't':
		return true, b
	}
	return nil, b
}

// The reply of an enqueue has an outcome for each job, or one outcome for all jobs.
func TestOutcomesOfAReply(t *testing.T) {
	t.Parallel()
	read := func(n int, outcomes ...any) (string, error) {
		fates, err := parseEnqueue(&scripts.Reply{List: []any{"ok", int64(1), outcomes}}, n)
		return fates.list, err
	}
	for _, c := range []struct {
		want     string
		outcomes []any
	}{
		{"1", []any{"1"}}, {"ddd", []any{"d"}}, {"10", []any{"1", "0"}}, {"1Ds", []any{"1", "D", "s"}},
	} {
		got, err := read(len(c.want), c.outcomes...)
		if err != nil || got != c.want {
			t.Errorf("%v: %q, %v", c.outcomes, got, err)
		}
	}
	for what, outcomes := range map[string][]any{
		"none": {}, "too few": {"1", "1"}, "too many": {"1", "1", "1", "1"}, "of two characters": {"1", "1", "11"},
		"empty": {"1", "1", ""}, "a number": {"1", "1", int64(1)}, "a later protocol's": {"1", "1", []any{"0", "id", "running"}},
	} {
		if got, err := read(3, outcomes...); err == nil {
			t.Errorf("%s: %q is no error", what, got)
		}
	}
}

// A call returns an outcome for each job if the outcomes differ. A repeated call returns the same.
func TestOutcomesOfACall(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.put("a")
	for _, want := range []string{"[0 1 1]", "[0 1 1]"} {
		got, err := r.rdb.Eval(bg, scripts.Sources()["enqueue"], scripts.Enqueue.Keys(&r.keys, r.keys.Lane("raw")), many(2, fmt.Sprint(layout.Protocol, " 1"), "a", "1", "", "\x0a\x01k")...).Slice()
		r.must(err)
		same(t, "outcomes", fmt.Sprint(got[2]), want)
	}
}
