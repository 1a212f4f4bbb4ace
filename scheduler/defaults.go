package scheduler

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// kindDefaults are the defaults of a kind of jobs. The zero value has none.
type kindDefaults struct {
	kind string
	signalbox.Defaults
}

// defaultsOf returns the defaults of the args.
func defaultsOf(kind string, args signalbox.Args) (kindDefaults, error) {
	d, ok := args.(signalbox.Defaulter)
	switch {
	case ok:
		return kindDefaults{kind, d.Defaults()}, nil
	case pointerHas(reflect.TypeOf(args)):
		return kindDefaults{}, fmt.Errorf("%w Defaults of kind %s: the method has a pointer receiver, so a %T has none; give it a value receiver, or enqueue a pointer",
			signalbox.ErrInvalid, kind, args)
	}
	return kindDefaults{}, nil
}

var (
	defaulter = reflect.TypeFor[signalbox.Defaulter]()
	pointers  sync.Map // by reflect.Type: whether the pointer to the type is a Defaulter
)

// pointerHas reports whether the pointer to t is a Defaulter. t itself is none.
func pointerHas(t reflect.Type) bool {
	if has, ok := pointers.Load(t); ok {
		return has.(bool)
	}
	has := reflect.PointerTo(t).Implements(defaulter)
	pointers.Store(t, has)
	return has
}

// take sets the defaults of a kind in o.
func (o *options) take(k kindDefaults) {
	wrong := func(field, format string, args ...any) {
		o.wrong("Defaults of kind "+k.kind+", "+field, format, args...)
	}
	if k.Queue != "" {
		if err := layout.ValidateQueue(k.Queue); err != nil {
			wrong("Queue", "%s", strings.TrimPrefix(err.Error(), signalbox.ErrInvalid.Error()+" "))
		}
		o.queue = k.Queue
	}
	if k.Priority > signalbox.PriorityLow {
		wrong("Priority", "%v; want PriorityHigh, PriorityNormal or PriorityLow", k.Priority)
	}
	o.priority = k.Priority
	if k.MaxAttempts != 0 {
		if k.MaxAttempts < 0 || k.MaxAttempts > maxAttemptsLimit {
			wrong("MaxAttempts", "%d; want 1 to %d, or 0 for %d", k.MaxAttempts, maxAttemptsLimit, signalbox.DefaultMaxAttempts)
		}
		o.maxAttempts = k.MaxAttempts
	}
	if k.Timeout < 0 {
		wrong("Timeout", "%v; want 0 or more", k.Timeout)
	}
	o.timeout = k.Timeout
	if !retainable(k.Retain) {
		wrong("Retain", retainHelp, k.Retain)
	}
	o.retain = wholeMicros(k.Retain)
	o.takeGroup(k, wrong)
	if !expirable(k.ExpireAfter) {
		wrong("ExpireAfter", expireHelp, k.ExpireAfter)
	}
	o.expire = k.ExpireAfter.Truncate(time.Microsecond)
	if k.TraceMode > signalbox.TraceNone {
		wrong("TraceMode", "%d; want TraceAuto, TraceParent, TraceLink or TraceNone", k.TraceMode)
	}
	o.mode = k.TraceMode
}

// takeGroup sets the group that is the default of a kind.
func (o *options) takeGroup(k kindDefaults, wrong func(field, format string, args ...any)) {
	o.yields = k.YieldOnRetry
	if k.Group != "" && k.Serial != "" {
		wrong("Group", "it is given together with Serial; want one of them")
	}
	for _, group := range []struct {
		field, key string
		serial     bool
	}{{"Group", k.Group, false}, {"Serial", k.Serial, true}} {
		if group.key == "" {
			continue
		}
		if err := layout.ValidateGroup(group.key); err != nil {
			wrong(group.field, "%s", strings.TrimPrefix(err.Error(), signalbox.ErrInvalid.Error()+" "))
		}
		o.group, o.serial = group.key, group.serial
	}
}

// ofKind returns the options of all jobs of a kind in the bulk: the kind's defaults, changed by
// the options of the call.
func (b *bulk) ofKind(k kindDefaults) (*options, error) {
	if k == (kindDefaults{}) {
		return b.base, nil
	}
	known, ok := b.kinds[k]
	if !ok {
		known.options, known.err = resolve(k, b.s.trace.reserved, b.opts)
		if b.kinds == nil {
			b.kinds = make(map[kindDefaults]resolved)
		}
		b.kinds[k] = known
	}
	return known.options, known.err
}

// resolved has options and the error about the mistakes in them.
type resolved struct {
	options *options
	err     error
}

// resolve returns the defaults of a kind, changed by a list of options.
func resolve(k kindDefaults, reserved func() []string, opts []EnqueueOption) (*options, error) {
	if k == (kindDefaults{}) {
		return defaults.with(reserved, opts)
	}
	o := defaults.begin()
	o.take(k)
	return o, o.apply(reserved, opts)
}
