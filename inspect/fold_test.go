package inspect

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// Errors that differ in numbers and IDs only are folded to one text. The longest part that they share is in all of them.
func TestFold(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{
		"":                             {"", "  \n"},
		"no such address":              {"no such address", "no such address\nstack of 17 lines", "  no such address \r\n7"},
		"timeout after <*> id <*>":     {"timeout after 31ms id 8f3e12", "timeout after 1.2s id 0de4c1aa", "timeout after 1m31.5s id 12345678", "timeout after 5µs id deadbeef", "timeout after 2m0s id 4d2"},
		"order <*> not found":          {"order 17 not found", "order 123456 not found", "order 6b1f7c3a-0d0e-4b5a-9f64-3f1a2b3c4d5e not found", "order 01HZX3KQ7VABCDEFGHJKMNPQRS not found", "order 0004mLw3mzZ6VWtGbUJFeo not found"},
		"dial tcp <*>: refused":        {"dial tcp 10.0.0.1:6379: refused", "dial tcp 192.168.17.4:80: refused"},
		"at <*>T<*>Z: 'no'":            {"at 2026-01-31T03:01:07Z: 'no'", "at 2025-12-01T13:00:59Z: 'no'"},
		"sha<*>With x<*>, utf<*>mb<*>": {"sha256With x509, utf8mb4"},
		"pointer <*> is bad, add fee":  {"pointer 0xc000123 is bad, add fee", "pointer 0xfff is bad, add fee"},
		"job_<*> [<*>] (<*>)":          {"job_17 [3] (99)", "job_8f3e [12] (1)"},
		"grüße, <*>":                   {"grüße, 17", "grüße, 4"},
		"<*>":                          {"17", "5s", "1,234.50", "8f3e12aa"},
		"<*> <*>":                      {"17 18"},
	} {
		for _, text := range texts {
			got, literal := fold(text)
			if got != want {
				t.Errorf("%q is folded to %q, want %q", text, got, want)
			}
			if !strings.Contains(text, literal) || strings.Contains(literal, folded) {
				t.Errorf("%q doesn't have %q", text, literal)
			}
		}
	}
	if _, literal := fold("took 31ms, upstream said no, 503"); literal != ", upstream said no," {
		t.Errorf("%q", literal)
	}
	a, _ := fold(strings.Repeat("ä", 150) + " end 1")
	b, _ := fold(strings.Repeat("ä", 150) + " other end 22")
	if a != b || !utf8.ValidString(a) || len(a) > maxFolded+len("…") {
		t.Errorf("%q, %q", a, b)
	}
}

// Whatever an error says, its fold is one short line, and what is named of it is there.
func TestFoldAnything(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "timeout", " ", " ", ".", "-", ":", "\n", "7", "17", "8f3e12aa", "0x", "ms", "µs", "é", "\xff", "6b1f7c3a-0d0e-4b5a-9f64-3f1a2b3c4d5e", folded}
	for range 20_000 {
		var b strings.Builder
		for range r.IntN(80) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		text := b.String()
		pattern, literal := fold(text)
		if !strings.Contains(text, literal) || strings.Contains(pattern, "\n") || len(pattern) > maxFolded+idLen*len(folded) || utf8.ValidString(text) && !utf8.ValidString(pattern) {
			t.Fatalf("%q: %q, %q", text, pattern, literal)
		}
	}
}
