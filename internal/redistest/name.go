package redistest

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

// Name returns a name that no other call returns, in this process or another. It is the
// test's own name, shortened, and a random part. It consists of [a-z0-9-]. So it is valid
// for queues and keys. Tests share a server and use different names; none of them flushes
// it.
func Name(t testing.TB) string {
	t.Helper()
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return slug(t.Name()) + "-" + hex.EncodeToString(b[:])
}

// slug keeps the characters that a name may have, at most 40 bytes.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 40 {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
