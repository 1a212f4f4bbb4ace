package scheduler

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A Scope says until when a unique key keeps other jobs out: [UntilEnded], [UntilStarted] or the result of [Window].
type Scope time.Duration

const (
	// UntilEnded keeps other jobs out until the job has completed, died or was cancelled. That includes its retries.
	UntilEnded Scope = 0
	// UntilStarted keeps other jobs out until a worker first gets the job. So at most one job waits, and it sees what was so when it was enqueued, or
	// later. Another one may run beside it, and a retry of the first one beside the second.
	UntilStarted Scope = -1

	badScope  Scope = -2
	scopeHelp       = "want UntilEnded, UntilStarted or Window(d), d from 1ms to 240000h (10,000 days)"
)

// Window keeps other jobs out until d has passed since the job was enqueued, by the clock of Redis, whatever becomes of the job. d is 1 ms to 10,000
// days, in whole microseconds.
func Window(d time.Duration) Scope {
	if d < time.Millisecond || d > store.MaxRetain {
		return badScope
	}
	return Scope(d.Truncate(time.Microsecond))
}

// Unique leaves the job out while another job of its kind and queue has the key. That is no error: New of the [Result] is false, and Existing and State
// say which job has the key. The scope says until when a job has it. The key is 1 to 200 bytes of printable ASCII without spaces and braces.
//
// The step that ends the scope frees the key: no key is left behind by a crash, and none expires while its job runs. A dead or cancelled job has no key. If an operator
// runs it again, it takes its key again; while another job has it, that is refused.
//
// If jobs with different scopes use one key, the scope of the job that has the key counts. Of [Unique] and [UniqueBy] the last one counts.
func Unique(key string, scope Scope) BulkOption {
	return forBulk(func(o *options) {
		o.check(layout.ValidateUnique(key))
		o.setUnique("Unique", scope)
		o.uniqueKey, o.uniqueFields = key, nil
	})
}

// UniqueBy is [Unique] with a key made from the job's arguments: from those top-level fields of their JSON, or from all of it without fields. The values
// of objects are compared whatever the order of their fields. A field that isn't in the JSON is an error: also one that is left out since it is empty.
// With a codec the JSON of the arguments counts all the same, and the key is a digest of it that the codec does not encrypt.
func UniqueBy(scope Scope, fields ...string) BulkOption {
	fields = slices.Clone(fields)
	return forBulk(func(o *options) {
		o.setUnique("UniqueBy", scope)
		o.uniqueKey, o.uniqueFields = "", fields
	})
}

// Replace has the job that has the unique key take over what this one has, if it hasn't started: arguments, headers, number of attempts, timeout, trace,
// and, while it is scheduled, also the time, the priority and what else the options say. One that is ready gets the new arguments and stays where it is. Its
// ID and the time of its enqueue stay. Then Updated of the [Result] is true. The scope of the unique key must be [UntilStarted]. A job that has started
// leaves its key, so a running handler's arguments never change. [IfAbsent] is about the ID alone, and doesn't keep the job of the key from being updated.
func Replace() BulkOption {
	return forBulk(func(o *options) { o.replace = true })
}

// Debounce enqueues one job for a series of calls. It is due when d has passed without another call of this key, and at the latest when most has passed since the first call. It
// has the arguments of the last call. It stands for [Unique] with the scope [UntilStarted], [After] and [Replace]. d is 1 ms or more, and most is d or more.
// Give it no [ID]: while a job has that ID, a call changes nothing.
func Debounce(key string, d, most time.Duration) BulkOption {
	unique, after := Unique(key, UntilStarted), After(d)
	return forBulk(func(o *options) {
		unique.one(o)
		after.one(o)
		o.replace, o.most = true, most
		if d < time.Millisecond || most < d || most > maxDelay {
			o.wrong("Debounce", "%v and %v; want 1ms or more, and at least as much as the longest delay, at most %v", d, most, maxDelay)
		}
	})
}

// Throttle starts at most one job of a key in the time d, and loses none of the series: the last call's arguments run. The first job runs at once. Once a
// worker has got it, d begins, by the clock of Redis. The next call in that time enqueues a job that is due at its end, and further calls give that job what
// they have, as [Replace] does: arguments, headers, priority, but not its time. So a job that waits always has the arguments of the last call.
//
// Throttle stands for a unique key (see [Unique]) that a job has until it starts, and d after that. Retries and snoozes of a job that has started don't count:
// they run when they are due. A call can't have both Throttle and [At] or [After]. d is 1 ms to 10,000 days, in whole microseconds.
func Throttle(key string, d time.Duration) BulkOption {
	return forBulk(func(o *options) {
		o.check(layout.ValidateUnique(key))
		if d < time.Millisecond || d > store.MaxRetain {
			o.wrong("Throttle", "%v; want 1ms to 240000h (10,000 days)", d)
		}
		o.unique = store.Unique{Scope: store.Throttled, Window: d.Truncate(time.Microsecond)}
		o.uniqueKey, o.uniqueFields, o.replace, o.most = key, nil, true, 0
	})
}

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
