package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// marshal returns the kind of args, their defaults, and their JSON, if there is no codec. The error wraps
// signalbox.ErrInvalid. Its text contains nothing of the payload.
func marshal(args signalbox.Args, codec signalbox.Codec) (k kindDefaults, kind string, payload []byte, err error) {
	if args == nil {
		return k, "", nil, fmt.Errorf("%w args: nil", signalbox.ErrInvalid)
	}
	defer func() {
		if v := recover(); v != nil {
			err = &encodeError{fmt.Sprintf("args: %T panicked", args), panicked(v)}
		}
	}()
	kind = args.Kind()
	if err := layout.ValidateKind(kind); err != nil {
		return k, "", nil, err
	}
	if v, ok := args.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return k, "", nil, fmt.Errorf("%w args of kind %s: %w", signalbox.ErrInvalid, kind, err)
		}
	}
	k, err = defaultsOf(kind, args)
	if err != nil {
		return k, "", nil, err
	}
	if codec != nil {
		return k, kind, nil, nil
	}
	payload, err = json.Marshal(args)
	if err != nil {
		return k, "", nil, &encodeError{"payload of kind " + kind + ": " + unencodable(err), err}
	}
	return k, kind, payload, nil
}

// encodeJSON returns the JSON of args that a codec encodes. The error wraps signalbox.ErrInvalid.
func encodeJSON(kind string, args signalbox.Args) (payload []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &encodeError{fmt.Sprintf("args: %T panicked", args), panicked(v)}
		}
	}()
	payload, err = json.Marshal(args)
	if err != nil {
		return nil, &encodeError{"UniqueBy of kind " + kind + ": " + unencodable(err), err}
	}
	return payload, nil
}

// encodeError keeps the encoder's error for errors.As. Its text leaves that error out, since it can quote the
// payload.
type encodeError struct {
	text string
	err  error
}

func (e *encodeError) Error() string   { return signalbox.ErrInvalid.Error() + " " + e.text }
func (e *encodeError) Unwrap() []error { return []error{signalbox.ErrInvalid, e.err} }

func unencodable(err error) string {
	var (
		typ   *json.UnsupportedTypeError
		value *json.UnsupportedValueError
		own   *json.MarshalerError
	)
	switch {
	case errors.As(err, &own): // first, since it wraps the error of the args
		return fmt.Sprintf("the marshaler of %v failed", own.Type)
	case errors.As(err, &typ):
		return fmt.Sprintf("JSON can't hold a %v", typ.Type)
	case errors.As(err, &value):
		return "JSON can't hold one of the values: NaN, an infinity or a cycle"
	}
	return fmt.Sprintf("it can't be encoded as JSON (%T)", err)
}

// panicked returns the error of a panic. An error of the runtime, such as for a nil pointer, is kept. For any
// other value it names only the type.
func panicked(v any) error {
	if err, ok := v.(runtime.Error); ok {
		return err
	}
	return fmt.Errorf("panic with a %T", v)
}
