package telemetry

import (
	"strings"
	"unicode/utf8"
)

// maxName bounds the ID and the kind of a job in spans and metrics, in bytes. What we enqueue is no longer, and is
// ASCII; another program may have put anything into Redis.
const maxName = 200

// clean is a name as an exporter can send it, which would lose the spans of others with one that is no UTF-8.
func clean(name string) string {
	if len(name) <= maxName && utf8.ValidString(name) {
		return name
	}
	name = strings.ToValidUTF8(name, "\uFFFD")
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName-len("...")], "") + "..."
	}
	return name
}
