package telemetry

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Limits of the text that a user's error puts into spans and metrics, in bytes. With longer text, or text that is not
// UTF-8, an exporter could fail, and lose other spans with it.
const (
	maxErrorText = 2048
	maxErrorType = 128
)

// brokenError is the text for an error whose methods panic.
const brokenError = "the error's own methods panic"

// ErrorType returns the value of error.type for a Go error, or "" for nil. It is the first that exists of:
//
//   - the result of a method ErrorType, of the error or of one that it wraps; there should be few such values
//   - one of our own values
//   - the error's Go type. If package fmt or errors made the error to wrap others, it is the type of the first wrapped
//     error that has its own type.
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
	late, _ := err.(interface{ Timeout() bool }) // also the error of a context
	_, network := err.(net.Error)                // also any error of an HTTP client
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

// telling returns the first error that has its own type, among err and what it wraps by package fmt or errors. If there
// is none, it returns the first error that wraps nothing, and false.
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

// plain reports whether an error's type is from package fmt or errors, and so says nothing.
func plain(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() != reflect.Pointer {
		return false
	}
	pkg := t.Elem().PkgPath()
	return pkg == "fmt" || pkg == "errors"
}

// errorText returns the message of an error.
func errorText(err error) string { return said(maxErrorText, err.Error) }

// said returns the result of a user's method, as UTF-8 of at most that many bytes.
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
