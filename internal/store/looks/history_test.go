package looks

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Samples in any order become periods: the last one of each minute ends its period.
func TestPeriods(t *testing.T) {
	t.Parallel()
	const minute = 1_000_000 * 60_000_000
	at := func(s float64, enqueued int64, ran int64) sample {
		return sample{us: minute + int64(s*1e6), totals: Totals{Enqueued: enqueued}, run: facts.Histogram{0: ran}}
	}
	resumed := func(s float64, enqueued int64) sample {
		x := at(s, enqueued, 0)
		x.resumed = true
		return x
	}
	for name, c := range map[string]struct {
		samples []sample
		live    sample
		want    string // start, length, enqueued, ran
	}{
		"none":                    {nil, at(0, 5, 0), ""},
		"one":                     {[]sample{at(-10, 3, 9)}, at(0, 5, 0), "-10+10:2,0"},
		"in disorder":             {[]sample{at(65, 7, 2), at(-10, 3, 1), at(5, 4, 3)}, at(130, 9, 0), "-10+15:1,3 5+60:3,2 65+65:2,0"},
		"last of the same minute": {[]sample{at(-10, 3, 1), at(50, 4, 0), at(5, 4, 3)}, at(70, 9, 0), "-10+60:1,3 50+20:5,0"},
		"now in the same minute":  {[]sample{at(-10, 3, 1), at(5, 4, 3)}, at(30, 9, 0), "-10+40:6,3"},
		"resumed":                 {[]sample{resumed(3, 8), at(-1200, 3, 1), at(50, 9, 3)}, at(70, 9, 0), "-1200+1203:5,0 3+47:1,3 50+20:0,0"},
		"begun":                   {[]sample{resumed(3, 8), at(3, 8, 4)}, at(70, 9, 0), "3+67:1,4"},
		"counters fell":           {[]sample{at(-100, 3, 1), at(5, 1, 3)}, at(65, 2, 0), "5+60:1,0"},
		"of the future":           {[]sample{at(-10, 3, 1), at(500, 9, 3)}, at(5, 4, 0), "-10+15:1,0"},
		"too old":                 {[]sample{at(-181*60, 1, 1), at(-180*60, 3, 1)}, at(5, 4, 0), "-10800+10805:1,0"},
	} {
		var got []string
		for _, p := range periods(c.samples, c.live, Minutes) {
			got = append(got, fmt.Sprintf("%g+%g:%d,%d", float64(p.Start.UnixMicro()-minute)/1e6, p.End.Sub(p.Start).Seconds(), p.Enqueued, p.Run[0]))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func FuzzSample(f *testing.F) {
	f.Add("1750000000000000 1 2 3 4 5 6 7 8 9 10;0:1,3:17;")
	f.Add("1750000000000000 1 2 3 4 5 6 7 8 9 10")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSample(text)
		if err != nil {
			return
		}
		if s.us < 0 || s.totals.fell() {
			t.Errorf("%q is read as %+v", text, s)
		}
		periods([]sample{s}, sample{us: 1 << 50}, Hours)
	})
}

// What a later release writes can be read.
func TestSampleOfALaterRelease(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"5 1 2 3 4 5 6 7 8 9 10;1:2;3:4", "5 1 2 3 4 5 6 7 8 9 10 11 x;1:2;3:4;5:6;"} {
		s, err := parseSample(text)
		if err != nil || s.us != 5 || s.totals.Revived != 10 || s.wait != (facts.Histogram{1: 2}) || s.run != (facts.Histogram{3: 4}) {
			t.Errorf("%q is read as %+v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "5", "5 1 2 3 4 5 6 7 8 9", "5 1 2 3 4 5 6 7 8 9 -1", "5 1 2 3 4 5 6 7 8 9 10;1:2", "5 1 2 3 4 5 6 7 8 9 10;x;", " 5 1 2 3 4 5 6 7 8 9 10"} {
		if s, err := parseSample(text); err == nil {
			t.Errorf("%q is read as %+v", text, s)
		}
	}
}

func TestStrangeHistories(t *testing.T) {
	t.Parallel()
	for _, list := range [][]any{nil, {}, {nil}, {"ok"}, {"OK", int64(1)}, {"ok", "1", "0"}, {"ok", nil, nil}, {"ok", int64(1), "x", []any{}}, {map[any]any{"ok": 1}, 1.5, true}} {
		if h, err := parseHistory(&scripts.Reply{List: list}, Minutes); err == nil || !strings.Contains(err.Error(), "field") {
			t.Errorf("%v: %+v, %v", list, h, err)
		}
	}
}

// Go and the scripts have the same steps and buckets.
func TestHistoryAgrees(t *testing.T) {
	t.Parallel()
	lua, err := os.ReadFile("../scripts/chapters/statistics.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		fmt.Sprintf("{'m', %d, %d, ", Minutes.length.Microseconds(), Minutes.fields), fmt.Sprintf("{'h', %d, %d, ", Hours.length.Microseconds(), Hours.fields),
		fmt.Sprintf("for bucket = 0, %d do", len(facts.Histogram{})-1),
	} {
		if !strings.Contains(string(lua), part) {
			t.Errorf("statistics.lua has no %s", part)
		}
	}
}
