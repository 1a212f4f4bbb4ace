package telemetry

import (
	"strings"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Bounds of what a user's error may put into spans and metrics, in bytes. Beyond them, or with bytes that
// are no UTF-8, an exporter could fail, and lose the spans of others with it.
const (
	maxErrorText = 2048
	maxErrorType = 128
)

// brokenError is what is told of an error whose methods panic.
const brokenError = "the error's own methods panic"

// ErrorType is the value of error.type for a Go error: its type, or what its method ErrorType says, of
// which there should be few. It is "" for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	return said(maxErrorType, func() string { return semconv.ErrorType(err).Value.AsString() })
}

// errorText is the message of an error.
func errorText(err error) string { return said(maxErrorText, err.Error) }

// said is what a user's method says: UTF-8 of so many bytes at the most.
func said(most int, method func() string) (text string) {
	defer func() {
		if recover() != nil {
			text = brokenError
		}
	}()
	text = method()
	if len(text) > most {
		text = text[:most-len("...")] + "..."
	}
	return strings.ToValidUTF8(text, "")
}
