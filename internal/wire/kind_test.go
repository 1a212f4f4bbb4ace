package wire

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
)

// The beginning of an envelope is enough to know the kind, if it stands first and is there as a whole.
func TestKindAt(t *testing.T) {
	t.Parallel()
	kind := strings.Repeat("k", 200)
	whole := AppendEnvelope(nil, &signalbox.Job{Kind: kind, Payload: []byte(`{"n":1}`), Headers: map[string]string{"a": "b"}})
	for n := range whole {
		want := ""
		if n >= 3+len(kind) { // behind the tag and two bytes of length
			want = kind
		}
		if got := KindAt(whole[:n]); got != want {
			t.Fatalf("of %d bytes: %q", n, got)
		}
	}
	for _, head := range []string{"\x12\x01x\x0a\x01k", "\x08\x01", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\x05k", "{}"} {
		if got := KindAt([]byte(head)); got != "" {
			t.Errorf("of %q: %q", head, got)
		}
	}
}
