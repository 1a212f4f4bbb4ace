package web

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// span writes a duration in at most two units.
func span(d time.Duration) string {
	if d < 0 {
		return "−" + span(-d)
	}
	two := func(a int, unit string, b int, less string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, unit)
		}
		return fmt.Sprintf("%d %s %d %s", a, unit, b, less)
	}
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case d < 10*time.Minute-500*time.Millisecond:
		s := int(d.Round(time.Second).Seconds())
		return two(s/60, "m", s%60, "s")
	case d < time.Hour-30*time.Second:
		return fmt.Sprintf("%d m", int(d.Round(time.Minute).Minutes()))
	case d < 24*time.Hour-30*time.Second:
		m := int(d.Round(time.Minute).Minutes())
		return two(m/60, "h", m%60, "m")
	}
	h := int(d.Round(time.Hour).Hours())
	return two(h/24, "d", h%24, "h")
}

// commas writes a number with its thousands apart.
func commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// counted writes a number of things: "1 job", "2 jobs".
func counted(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return commas(n) + " " + one + "s"
}

// size writes a number of bytes.
func size(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if one := int64(1) << (40 - 10*i); n >= one {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(one)), ".0") + " " + unit
		}
	}
	return counted(n, "byte")
}

// perSecond writes a rate.
func perSecond(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < .01:
		return "< 0.01"
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return commas(int64(v + .5))
}

// clean returns the text as one line of at most most characters. What would hide or turn text on the screen is written as its number.
func clean(s string, most int) string {
	return shown(s, most, func(r rune) bool { return false })
}

// block is as clean, but keeps the ends of lines and tabs.
func block(s string, most int) string {
	return shown(s, most, func(r rune) bool { return r == '\n' || r == '\t' })
}

func shown(s string, most int, keep func(rune) bool) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		switch {
		case keep(r):
			b.WriteRune(r)
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x061c || r == 0x200e || r == 0x200f || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff:
			fmt.Fprintf(&b, "⟨%04X⟩", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escape returns the text for the inside of an element or of an attribute in double quotes.
func escape(s string) string { return template.HTMLEscapeString(s) }

// name writes a text of a user, short enough for a row. The whole of it, up to a bound, is in its title if it was cut.
func name(s string) template.HTML {
	const most = 120
	text := clean(s, most)
	title := ""
	if whole := clean(s, 1000); whole != text {
		title = ` title="` + escape(whole) + `"`
	}
	return template.HTML("<bdi" + title + ">" + escape(text) + "</bdi>") //nolint:gosec // both are escaped
}

// moment writes a time of day. Its title is the exact time.
func moment(t time.Time) template.HTML { return stamped(t, t.UTC().Format("15:04:05")) }

// day writes a date and a time of day.
func day(t time.Time) template.HTML { return stamped(t, t.UTC().Format("2006-01-02 15:04:05")) }

// stamped writes a text that stands for a time.
func stamped(t time.Time, text string) template.HTML {
	if t.IsZero() {
		return "not known"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, t.Format("2006-01-02T15:04:05.000Z"), t.Format("2006-01-02 15:04:05.000"), escape(text))) //nolint:gosec // escaped
}

// ago writes how long ago a time was, or in what time it is.
func ago(now, t time.Time) template.HTML {
	if d := now.Sub(t); d < 0 {
		return stamped(t, "in "+span(-d))
	} else {
		return stamped(t, span(d)+" ago")
	}
}

// lasting writes for how long something has been so.
func lasting(now, since time.Time) template.HTML { return stamped(since, span(max(0, now.Sub(since)))) }

// link returns the address of a page, relative to any other. pairs are names and values; those with an empty value are left out.
func link(page string, pairs ...string) string {
	q := make(url.Values)
	for i := 0; i+1 < len(pairs); i += 2 {
		if q.Del(pairs[i]); pairs[i+1] != "" { // of two of one name the later one counts
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return "./" + page
	}
	return "./" + page + "?" + q.Encode()
}

// shellWords writes a command of the program signalbox, which can be pasted into a shell: words with other characters than plain ones are quoted.
func shellWords(words ...string) string {
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
		}) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
