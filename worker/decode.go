package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/signalbox-go/signalbox"
)

// A typed handler decodes a job's payload into T and calls fn with it.
type typed[T signalbox.Args] struct {
	fn     func(ctx context.Context, job *signalbox.Job, args T) error
	strict bool // unknown fields are refused
	early  bool // LockBy decodes, outside of this handler

	members   bool // T is a struct with fields: null is not one
	validates bool // *T has a method Validate, or T
}

// validator is implemented by arguments that know whether they are usable.
type validator interface{ Validate() error }

func newTyped[T signalbox.Args](fn func(context.Context, *signalbox.Job, T) error) *typed[T] {
	t := reflect.TypeFor[T]()
	_, own := reflect.Zero(t).Interface().(validator)
	_, byPointer := any((*T)(nil)).(validator)
	return &typed[T]{fn: fn, members: hasMembers(t), validates: own || byPointer}
}

// Handle implements signalbox.Handler.
func (h *typed[T]) Handle(ctx context.Context, job *signalbox.Job) error {
	if h.early {
		if d, ok := ctx.Value(decodedKey{}).(*decoded[T]); ok && d.job == job {
			return h.fn(ctx, job, d.args)
		}
	}
	args, err := h.decode(job.Payload)
	if err != nil {
		return err
	}
	return h.fn(ctx, job, args)
}

// decodedKey is the key of the decoded arguments in a context.
type decodedKey struct{}

// decoded are the arguments of a job that LockBy has decoded.
type decoded[T signalbox.Args] struct {
	job  *signalbox.Job
	args T
}

// decodeEarly returns the arguments, and a context that has them for what is further inside.
func (h *typed[T]) decodeEarly(ctx context.Context, job *signalbox.Job) (context.Context, T, error) {
	if d, ok := ctx.Value(decodedKey{}).(*decoded[T]); ok && d.job == job {
		return ctx, d.args, nil
	}
	args, err := h.decode(job.Payload)
	if err != nil {
		return ctx, args, err
	}
	return context.WithValue(ctx, decodedKey{}, &decoded[T]{job, args}), args, nil
}

// decode returns the arguments of a payload, or a *signalbox.PayloadError.
func (h *typed[T]) decode(payload []byte) (T, error) {
	var args T
	if h.members && isNull(payload) {
		return args, &signalbox.PayloadError{Err: fmt.Errorf("decode the job's arguments: the payload is null; %T needs an object", args)}
	}
	if err := unmarshal(payload, &args, h.strict); err != nil {
		return args, &signalbox.PayloadError{Err: misfitError(reflect.TypeFor[T](), payload, h.strict)}
	}
	if h.validates {
		v, ok := any(&args).(validator)
		if !ok {
			v = any(args).(validator)
		}
		if err := v.Validate(); err != nil {
			return args, &signalbox.PayloadError{Err: fmt.Errorf("the job's arguments are not valid: %w", err)}
		}
	}
	return args, nil
}

// unmarshal decodes JSON. Strict refuses fields that the Go type doesn't have.
func unmarshal(payload []byte, into any, strict bool) error {
	if !strict {
		return json.Unmarshal(payload, into)
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// isNull reports whether a payload is the JSON value null.
func isNull(payload []byte) bool {
	return len(payload) > 0 && len(payload) < 64 && string(bytes.TrimSpace(payload)) == "null"
}

// hasMembers reports whether null would leave out fields of t. A type with a decoder of its own decides itself.
func hasMembers(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && t.NumField() > 0 && !decodesItself(t)
}
