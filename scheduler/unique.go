package scheduler

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// setUnique sets the scope of a unique key.
func (o *options) setUnique(option string, scope Scope) {
	switch {
	case scope == UntilEnded:
		o.unique = store.Unique{Scope: store.UntilEnded}
	case scope == UntilStarted:
		o.unique = store.Unique{Scope: store.UntilStarted}
	case scope >= Scope(time.Millisecond) && scope <= Scope(store.MaxRetain):
		o.unique = store.Unique{Scope: store.ForWindow, Window: time.Duration(scope)}
	default:
		o.wrong(option, "the scope is %d; %s", int64(scope), scopeHelp)
	}
}

// scopeOf returns the scope of a unique key.
func scopeOf(u store.Unique) Scope {
	switch u.Scope {
	case store.UntilStarted, store.Throttled:
		return UntilStarted
	case store.ForWindow:
		return Scope(u.Window)
	}
	return UntilEnded
}

// isUnique reports whether the job has a unique key.
func (o *options) isUnique() bool { return o.unique.Scope != 0 }

// uniqueOf returns the unique key of a job. payload is the JSON of its arguments, or nil if a codec encodes them.
func (o *options) uniqueOf(kind string, args signalbox.Args, payload []byte) (store.Unique, error) {
	u := o.unique
	if o.uniqueKey != "" {
		u.Key = store.UniqueKey(kind, o.uniqueKey, false)
		return u, nil
	}
	if payload == nil {
		var err error
		if payload, err = encodeJSON(kind, args); err != nil {
			return u, err
		}
	}
	digest, err := digestOf(payload, o.uniqueFields)
	if err != nil {
		return u, fmt.Errorf("%w UniqueBy: %w", signalbox.ErrInvalid, err)
	}
	u.Key = store.UniqueKey(kind, digest, true)
	return u, nil
}

// digestOf returns a digest of those fields of an encoded object, or of the whole payload if there are none. Equal values have equal digests, whatever
// the order of fields in them.
func digestOf(payload []byte, fields []string) (string, error) {
	var value any
	if len(fields) == 0 {
		if err := decodeExactly(payload, &value); err != nil {
			return "", fmt.Errorf("the arguments are no JSON: %w", err)
		}
	} else {
		var all map[string]any
		if err := decodeExactly(payload, &all); err != nil {
			return "", fmt.Errorf("the arguments are no JSON object: %w", err)
		}
		some := make(map[string]any, len(fields))
		for _, name := range fields {
			v, ok := all[name]
			if !ok {
				return "", fmt.Errorf("the arguments have no field %q; name a field of their JSON, and don't leave it out if it is empty", shorten(name))
			}
			some[name] = v
		}
		value = some
	}
	text, err := json.Marshal(value) // the fields of maps are sorted
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:18]), nil
}

// decodeExactly decodes one JSON value. Numbers keep their digits.
func decodeExactly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more follows behind the value")
	}
	return nil
}
