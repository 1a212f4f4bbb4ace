package telemetry

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Bounds of what a user's error may put into spans and metrics, in bytes. Beyond them, or with bytes that
// are no UTF-8, an exporter could fail, and lose the spans of others with it.
const (
	maxErrorText = 2048
	maxErrorType = 128
)

// brokenError is the text for an error whose methods panic.
const brokenError = "the error's own methods panic"

// ErrorType returns the value of error.type for a Go error, or "" for nil. It is, in this order:
//
//   - what a method ErrorType returns, of the error or of one that it wraps; there should be few such values
//   - one of our own values
//   - the error's type; of an error that package fmt or errors made to wrap others, the type of the first of those that has
//     a type of its own
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	return said(maxErrorType, func() string { return errorType(err) })
}

func errorType(err error) string {
	if named, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](err); ok {
		if name := named.ErrorType(); name != "" {
			return name
		}
	}
	err, _ = telling(err)
	var (
		operation *net.OpError
		lookup    *net.DNSError
	)
	late, _ := err.(interface{ Timeout() bool }) // also that of a context
	_, network := err.(net.Error)                // also any of an HTTP client
	switch {
	case late != nil && late.Timeout():
		return ErrorTimeout
	case err == context.Canceled:
		return errorCancelled
	case network && (errors.As(err, &operation) || errors.As(err, &lookup)):
		return errorConnection
	}
	return semconv.ErrorType(err).Value.AsString()
}

// telling returns the first error that has a type of its own, of err and what it wraps by package fmt or errors. If there is
// none, it returns the first that wraps nothing, and false.
func telling(err error) (first error, ok bool) {
	if err == context.Canceled || !plain(err) {
		return err, true
	}
	var wrapped []error
	switch w := err.(type) {
	case interface{ Unwrap() error }:
		wrapped = []error{w.Unwrap()}
	case interface{ Unwrap() []error }:
		wrapped = w.Unwrap()
	}
	for _, inner := range wrapped {
		if inner == nil {
			continue
		}
		leaf, ok := telling(inner)
		if ok {
			return leaf, true
		}
		if first == nil {
			first = leaf
		}
	}
	if first == nil {
		first = err
	}
	return first, false
}

// plain reports whether an error's type is of package fmt or errors, and says nothing.
func plain(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() != reflect.Pointer {
		return false
	}
	pkg := t.Elem().PkgPath()
	return pkg == "fmt" || pkg == "errors"
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
