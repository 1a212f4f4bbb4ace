package telemetry

import (
	"strings"
	"unicode/utf8"
)

// maxName bounds the ID and the kind of a job in spans and metrics, in bytes. Signalbox enqueues only shorter
// ones, in ASCII. Another program may have put anything into Redis.
const maxName = 200

// clean returns a name that can be exported. With a name that is not UTF-8, an exporter could lose other spans.
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
