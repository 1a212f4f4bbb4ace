package spec

import (
	"errors"
	"strings"
	"testing"
)

func TestFenceKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"digest":          "digest{digest}:fence",
		"a b\x00\n":       "a b\x00\n{a b\x00\n}:fence",
		"a{b":             "",
		"digest{digest}":  "",
		"digest{digest}2": "digest{digest}2:fence",
		"{digest}":        "{digest}:fence",
		"{queue}:1":       "{queue}:1:fence",
		"1:{queue}":       "1:{queue}:fence",
		"{a}{b}":          "{a}{b}:fence",
		"a{{b}}c":         "a{{b}}c:fence",
		"":                "",
		"a}b":             "",
		"a{}b":            "",
		"{}{a}":           "",
		"}{a":             "",
		":fence":          "",
		"{digest}:fence":  "",
	} {
		got, err := FenceKey(key)
		if got != want || (want == "") != errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %q, %v; want %q", key, got, err, want)
		}
	}
}

// hashed is the part of a key that picks its slot, as in the Redis Cluster specification.
func hashed(key string) string {
	start := strings.IndexByte(key, '{')
	if start < 0 {
		return key
	}
	end := strings.IndexByte(key[start+1:], '}')
	if end <= 0 {
		return key
	}
	return key[start+1 : start+1+end]
}

func FuzzFenceKey(f *testing.F) {
	for _, key := range []string{"", "a", "{a}", "a}", "{}a", "{a}:fence", "}{", "a{a}", "a{a}{a}", "{{}}", "\xff{\x00}"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		fence, err := FenceKey(key)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || fence != "" {
				t.Fatalf("%q: %q, %v", key, fence, err)
			}
			return
		}
		if hashed(fence) != hashed(key) {
			t.Errorf("%q and %q hash to different slots", key, fence)
		}
		if !strings.HasPrefix(fence, key) {
			t.Errorf("%q is not under the prefix of %q", fence, key)
		}
		for _, other := range []string{"{" + key + "}", key + "{" + key + "}", strings.Trim(key, "{}"), strings.TrimSuffix(fence, ":fence")} {
			if beside, err := FenceKey(other); err == nil && other != key && beside == fence {
				t.Errorf("%q and %q have one record, %q", key, other, fence)
			}
		}
		if _, err := FenceKey(fence); err == nil {
			t.Errorf("%q, the counter of %q, can be locked", fence, key)
		}
	})
}
