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
	strict bool // unknown fields are errors
	early  bool // LockBy decodes the payload, before this handler is called
	codecs map[string]signalbox.Codec

	members   bool // T is a struct with fields, so null is an error
	validates bool // T or *T has a method Validate
}

// A validator reports whether its values are usable. A job's arguments may implement it.
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
	args, err := h.decodeJob(job)
	if err != nil {
		return err
	}
	return h.fn(ctx, job, args)
}

// decodedKey is the key for decoded arguments in a context.
type decodedKey struct{}

// decoded holds the arguments of a job that LockBy has decoded.
type decoded[T signalbox.Args] struct {
	job  *signalbox.Job
	args T
}

// decodeEarly decodes the arguments. It returns them, and a context that carries them to the inner middleware and the handler.
func (h *typed[T]) decodeEarly(ctx context.Context, job *signalbox.Job) (context.Context, T, error) {
	if d, ok := ctx.Value(decodedKey{}).(*decoded[T]); ok && d.job == job {
		return ctx, d.args, nil
	}
	args, err := h.decodeJob(job)
	if err != nil {
		return ctx, args, err
	}
	return context.WithValue(ctx, decodedKey{}, &decoded[T]{job, args}), args, nil
}

// decodeJob returns the arguments of a job. The error is a *signalbox.PayloadError, or wraps signalbox.ErrUnknownEncoding.
func (h *typed[T]) decodeJob(job *signalbox.Job) (args T, err error) {
	if job.Encoding == "" {
		return h.decode(job.Payload)
	}
	codec := h.codecs[job.Encoding]
	if codec == nil {
		return args, fmt.Errorf("%w: %q", signalbox.ErrUnknownEncoding, job.Encoding)
	}
	if err := codec.Decode(job, job.Payload, &args); err != nil {
		err = fmt.Errorf("decode the job's arguments: encoding %s: %w", job.Encoding, err)
		if errors.Is(err, signalbox.ErrUnknownEncoding) {
			return args, err
		}
		return args, &signalbox.PayloadError{Err: err}
	}
	return args, h.validate(&args)
}

// decode returns the arguments in JSON, or a *signalbox.PayloadError.
func (h *typed[T]) decode(payload []byte) (T, error) {
	var args T
	if h.members && isNull(payload) {
		return args, &signalbox.PayloadError{Err: fmt.Errorf("decode the job's arguments: the payload is null; %T needs an object", args)}
	}
	if err := unmarshal(payload, &args, h.strict); err != nil {
		return args, &signalbox.PayloadError{Err: misfitError(reflect.TypeFor[T](), payload, h.strict)}
	}
	return args, h.validate(&args)
}

// validate calls the method Validate of the arguments, if they have one. Its error becomes a *signalbox.PayloadError.
func (h *typed[T]) validate(args *T) error {
	if h.validates {
		v, ok := any(args).(validator)
		if !ok {
			v = any(*args).(validator)
		}
		if err := v.Validate(); err != nil {
			return &signalbox.PayloadError{Err: fmt.Errorf("the job's arguments are not valid: %w", err)}
		}
	}
	return nil
}

// unmarshal decodes JSON. If strict is true, a field that the Go type doesn't have is an error.
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

// hasMembers reports whether null would leave fields of t unset. It is false for a type with its own decoder, which decides itself.
func hasMembers(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && t.NumField() > 0 && !decodesItself(t)
}
