package web

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 10: "less than 1 ms", 1500 * time.Microsecond: "2 ms", 999 * time.Millisecond: "999 ms", 999600 * time.Microsecond: "1 s", time.Second: "1 s", 1400 * time.Millisecond: "1.4 s",
		9960 * time.Millisecond: "10 s", 59600 * time.Millisecond: "1 m", 71 * time.Second: "1 m 11 s", 10 * time.Minute: "10 m", 59*time.Minute + 45*time.Second: "1 h",
		90 * time.Minute: "1 h 30 m", 24 * time.Hour: "1 d", 30*24*time.Hour + 5*time.Hour: "30 d 5 h", -2 * time.Second: "−2 s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "−1,234"} {
		if got := commas(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	for v, want := range map[float64]string{0: "0", .001: "< 0.01", .25: "0.25", 4.21: "4.2", 1234.6: "1,235"} {
		if got := perSecond(v); got != want {
			t.Errorf("%v: %q", v, got)
		}
	}
}

// A text is one line that hides and turns nothing, and has an end.
func TestClean(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"plain": "plain", "a\x00b": "a⟨0000⟩b", "a\u202eb\u2066": "a⟨202E⟩b⟨2066⟩", "a\nb\tc": "a b c", "\x1b[31m": "⟨001B⟩[31m", "日本": "日本", "\xff": "\ufffd", strings.Repeat("x", 21): strings.Repeat("x", 20) + "…",
	} {
		if got := clean(s, 20); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	if got := block("a\nb\tc\r\x00", 20); got != "a\nb\tc ⟨0000⟩" {
		t.Errorf("a block: %q", got)
	}
	if got := string(name(`<b title="x">`)); got != "<bdi>&lt;b title=&#34;x&#34;&gt;</bdi>" {
		t.Errorf("a name: %s", got)
	}
	if got := string(name(strings.Repeat(`"`, 500))); strings.Count(got, "&#34;") != 620 || strings.Count(got, `"`) != 2 {
		t.Errorf("a long name: %s", got)
	}
}

// What a user copies into a shell is words, whatever they are.
func TestShellWords(t *testing.T) {
	t.Parallel()
	if got := shellWords("job", "show", "mail", "a'b; rm -rf $HOME", ""); got != `job show mail 'a'\''b; rm -rf $HOME' ''` {
		t.Error(got)
	}
}

// The register has what is known of a job, wherever its times are, and leaves out what isn't.
func TestRegister(t *testing.T) {
	t.Parallel()
	at := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	tried := []inspect.Attempt{{Number: 3, At: at(-30), Ran: time.Minute, Worker: "w1", Error: "e"}, {Number: 4, At: at(-20), Ran: time.Minute, Worker: "<w2>", Error: "e"}}
	for name, tc := range map[string]struct {
		job   inspect.Job
		has   []string
		hasNo []string
	}{
		"no attempt":           {job: inspect.Job{State: signalbox.StateReady}},
		"retried":              {inspect.Job{State: signalbox.StateScheduled, EnqueuedAt: at(-31), DueAt: at(3), Attempts: tried}, []string{"&lt;w2&gt;", "r-next", "12:03:00", "11:29:00 enqueued", "number 3 are not kept", "r-delay", ">now<"}, []string{"<w2>"}},
		"due in a year":        {inspect.Job{State: signalbox.StateScheduled, EnqueuedAt: at(-31), DueAt: at(525600), Attempts: tried}, []string{">now<"}, []string{"r-next"}},
		"enqueued long ago":    {inspect.Job{State: signalbox.StateDead, EnqueuedAt: at(-525600), EndedAt: at(-19), Attempts: tried}, []string{"r-x"}, []string{"enqueued", ">now<"}},
		"crashed in between":   {inspect.Job{State: signalbox.StateDead, EnqueuedAt: at(-31), EndedAt: at(-19), Crashes: 2, Attempts: tried}, []string{"Crashes: 2. When they were is not known."}, []string{"r-delay"}},
		"runs":                 {inspect.Job{State: signalbox.StateRunning, EnqueuedAt: at(-1), Since: at(0), Worker: "w"}, []string{"r-run", ">w<"}, []string{"r-x", "NaN", "Inf"}},
		"a clock that is back": {inspect.Job{State: signalbox.StateRunning, EnqueuedAt: at(5), Since: at(10), Worker: "w"}, []string{"r-run"}, []string{"NaN", "Inf", `="-`}},
	} {
		r := drawRegister(&tc.job, deliveries(&tc.job), noon)
		text := string(r.Chart) + r.Says
		if (text == "") != (name == "no attempt") {
			t.Errorf("%s: %q", name, text)
		}
		for _, want := range tc.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s: %s", name, want, text)
			}
		}
		for _, no := range tc.hasNo {
			if strings.Contains(text, no) {
				t.Errorf("%s has %s: %s", name, no, text)
			}
		}
	}
}
