package inspect

import (
	"strings"
	"unicode/utf8"
)

const (
	// folded stands for what differs from one error to the next of its kind.
	folded = "<*>"
	// maxFolded bounds a folded error, in bytes: it ends with the word that goes beyond. A job keeps the first 512 bytes of an error: where that was cut doesn't show so far ahead.
	maxFolded = 200
)

// fold returns what errors of one kind have in common: the first line, with [folded] for each number, duration, UUID, and run of hexadecimal or other characters
// that looks like an ID. literal is the longest part of the error that stands there as it was, without spaces around it, or "".
func fold(text string) (pattern, literal string) {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(line)
	var out strings.Builder
	begin := 0 // of what is copied as it is
	keep := func(part string) {
		out.WriteString(part)
		if part = strings.TrimSpace(part); len(part) > len(literal) {
			literal = part
		}
	}
	replace := func(from, to int) {
		between := line[begin:from]
		if joins := len(between) == 1 && strings.Contains(".:,-", between); !joins || !strings.HasSuffix(out.String(), folded) { // 10.0.0.1:6379 is one
			keep(between)
			out.WriteString(folded)
		}
		begin = to
	}
	for i := 0; i < len(line) && out.Len()+i-begin < maxFolded; {
		if !alnum(line[i]) {
			i++
			continue
		}
		end := i + wordLen(line[i:])
		for _, part := range variable(line[i:end]) {
			replace(i+part[0], i+part[1])
		}
		i = end
	}
	rest := line[begin:]
	if room := maxFolded - out.Len(); len(rest) > room {
		rest = cutText(rest, max(room, 0))
		keep(rest)
		out.WriteString("…")
	} else {
		keep(rest)
	}
	return out.String(), literal
}

// cutText returns at most n bytes of s, and no part of a rune.
func cutText(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
func hex(c byte) bool   { return digit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
func alnum(c byte) bool { return digit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// wordLen returns the length of the word that s begins with: letters and digits, with points between digits, or a UUID.
func wordLen(s string) int {
	if n := uuidLen(s); n > 0 {
		return n
	}
	n := 0
	for n < len(s) && (alnum(s[n]) || s[n] == '.' && n > 0 && digit(s[n-1]) && n+1 < len(s) && digit(s[n+1])) {
		n++
	}
	if strings.HasPrefix(s[n:], "µs") || strings.HasPrefix(s[n:], "μs") {
		n += len("µs")
	}
	return n
}

// uuidLen returns the length of the UUID that s begins with, or 0.
func uuidLen(s string) int {
	const length = 36
	if len(s) < length || len(s) > length && alnum(s[length]) {
		return 0
	}
	for i := range length {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return 0
			}
		default:
			if !hex(s[i]) {
				return 0
			}
		}
	}
	return length
}

const (
	hexLen = 8  // hexadecimal characters that are an ID though there is no digit among them
	idLen  = 16 // letters and digits that may be an ID, as a ULID is
)

// variable returns the parts of a word that differ from one error to the next.
func variable(word string) [][2]int {
	all := [][2]int{{0, len(word)}}
	digits, hexes, runs := 0, 0, 0
	for i := range len(word) {
		if digit(word[i]) {
			digits++
			if i == 0 || !digit(word[i-1]) {
				runs++
			}
		}
		if hex(word[i]) {
			hexes++
		}
	}
	others := len(word) - hexes - strings.Count(word, ".")
	switch {
	case uuidLen(word) > 0,
		others == 0 && (digits > 0 || len(word) >= hexLen),
		others == 1 && len(word) > 2 && (strings.HasPrefix(word, "0x") || strings.HasPrefix(word, "0X")),
		duration(word),
		len(word) >= idLen && (runs > 1 || runs == 1 && digit(word[0])):
		return all
	case digits == 0:
		return nil
	}
	var parts [][2]int
	for i := 0; i < len(word); i++ {
		if !digit(word[i]) {
			continue
		}
		from := i
		for i < len(word) && (digit(word[i]) || word[i] == '.') {
			i++
		}
		parts = append(parts, [2]int{from, i})
	}
	return parts
}

// duration reports whether a word is one as Go prints it: 1.5s, 2m0s, 31ms.
func duration(word string) bool {
	for word != "" {
		rest := strings.TrimLeft(word, "0123456789.")
		if len(rest) == len(word) {
			return false
		}
		found := false
		for _, unit := range []string{"ns", "µs", "μs", "us", "ms", "s", "m", "h"} {
			if after, ok := strings.CutPrefix(rest, unit); ok {
				word, found = after, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
