package wire

import (
	"encoding/hex"
	"errors"
	"testing"
)

// The bytes of an entry never change. Fields of later releases are passed over.
func TestEntry(t *testing.T) {
	t.Parallel()
	e := Entry{Kind: "digest", Spec: "0 9 * * 1-5", Zone: "Europe/Berlin"}
	b := e.Append(nil)
	if got, want := hex.EncodeToString(b), "0a06646967657374120b302039202a202a20312d351a0d4575726f70652f4265726c696e"; got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
	for _, more := range []string{"", "\x4a\x01x", "\x28\x07", "\x0d1234"} {
		if got, err := DecodeEntry(append(b, more...)); err != nil || got != e {
			t.Errorf("with %q behind it: %+v, %v", more, got, err)
		}
	}
	e.Missed = "once"
	if got, want := hex.EncodeToString(e.Append(nil)), hex.EncodeToString(b)+"22046f6e6365"; got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
	e.Overlap, e.Jitter, e.Start, e.End = "skip", "1m0s", "2026-07-01T00:00:00Z", "2026"
	if got, want := hex.EncodeToString(e.Append(nil)), hex.EncodeToString(b)+"22046f6e6365"+"2a04736b6970"+"3204316d3073"+"3a14323032362d30372d30315430303a30303a30305a"+"420432303236"; got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
	if got, err := DecodeEntry(e.Append(nil)); err != nil || got != e {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for _, bad := range []string{"", "garbage", "\x0a", "\x0a\x01k", "\x12\x01s"} {
		if got, err := DecodeEntry([]byte(bad)); !errors.Is(err, ErrCorrupt) || got != (Entry{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}
