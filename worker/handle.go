package worker

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/middleware"
)

// A kind is what a worker does with the jobs of one kind.
type kind struct {
	name       string
	handler    signalbox.Handler // as registered
	middleware []signalbox.Middleware
	retry      RetryPolicy
	timeout    time.Duration
	trace      signalbox.TraceMode // TraceAuto: the worker's
	retryFor   time.Duration       // 0: no bound
	terminal   []func(error) bool
	retryAll   bool         // an error with RetryAfter holds back other jobs
	whenStuck  *StuckPolicy // nil: the worker's
	strict     bool         // refuse fields that the arguments' type doesn't have
	many       *many        // of HandleMany

	chain signalbox.Handler // the handler inside all middleware, since Run
}

// An Option configures one handler.
type Option func(*kind)

// With wraps mw around this handler, inside that of [Worker.Use]; the first is the outermost.
func With(mw ...signalbox.Middleware) Option {
	return func(k *kind) { k.middleware = append(k.middleware, mw...) }
}

// Timeout bounds each attempt: then the handler's context ends with cause
// [signalbox.ErrTimeout]. The worker waits for the handler to return all the same. A job's own
// timeout applies too; the shorter one counts. 0, the default, is no bound.
func Timeout(d time.Duration) Option { return func(k *kind) { k.timeout = d } }

// TraceMode says how deliveries of this kind are connected with the span that enqueued the
// job; a job's own mode counts more. Default, and [signalbox.TraceAuto]: the worker's.
func TraceMode(m signalbox.TraceMode) Option { return func(k *kind) { k.trace = m } }

// Retry sets how long failed attempts of this kind wait. Default: [DefaultRetry].
func Retry(p RetryPolicy) Option { return func(k *kind) { k.retry = p } }

// Strict refuses payloads that have a field which the arguments' type doesn't have: one that was
// renamed, say, and would be left at its zero value. It is for [Handle]; [Config] has it for all
// kinds of a worker. A new field must then be known to all workers before a producer sends it.
func Strict() Option { return func(k *kind) { k.strict = true } }

// Handle registers fn for the jobs of T's kind. Their arguments are decoded from JSON, as by
// [json.Unmarshal], or by one of Config.Codecs if the job's producer uses another encoding. A payload of null is refused if T is a struct with fields. If T or *T has a
// method Validate() error, it is called then, and an error of it refuses the arguments.
//
// fn is not called with arguments that are refused. That is a failed attempt with a
// [*signalbox.PayloadError]: it names the field in JSON and in Go and the type that is expected, and has
// no value of the payload. While a new release is rolled out another worker may understand the payload. So the
// job is tried five times, over 7 to 15 minutes, whatever the kind's retry policy. Then it is dead.
//
// Handle panics on a programmer's error, as [net/http.ServeMux] does: a nil fn, a kind that
// is registered already or is no name, a nil or negative option, or a call after Run.
func Handle[T signalbox.Args](w *Worker, fn func(ctx context.Context, job *signalbox.Job, args T) error, opts ...Option) {
	if fn == nil {
		panic("worker: Handle of a nil function")
	}
	h := newTyped(fn)
	k := w.register(kindOf[T](), h, opts)
	k.mustBeOne()
	h.strict, h.codecs = k.strict || w.cfg.Strict, w.codecs
}

// mustBeOne panics if UpTo was given to another than HandleMany.
func (k *kind) mustBeOne() {
	if k.many != nil {
		panic("worker: Handle with UpTo for kind " + k.name + "; it is for HandleMany")
	}
}

// HandleKind registers a handler that reads the payload by itself. It panics as [Handle] does. A
// [*signalbox.PayloadError] that it returns is treated as one of Handle.
func (w *Worker) HandleKind(name string, h signalbox.Handler, opts ...Option) {
	k := w.register(name, h, opts)
	k.mustBeOne()
	if k.strict {
		panic("worker: HandleKind with Strict for kind " + name + "; its handler reads the payload by itself")
	}
}

// otherKinds stands in panics for the name of a kind, of the handler of HandleOthers.
const otherKinds = "* (HandleOthers)"

// HandleOthers registers a handler for the jobs of all kinds that no other handler is registered for, with one set of options. It reads kind and payload by itself. It panics as [Worker.HandleKind] does.
//
// Without it such a job is put back until a worker of the queue handles its kind, which is what a deploy wants: the new release's jobs wait for the new release. With it the old release's
// handler gets them. So it is for queues whose kinds are open, as those of a proxy or of a migration.
//
// Metrics have one kind for all of these jobs, "_OTHER", since there may be ever new ones. Spans and logs have each job's own.
func (w *Worker) HandleOthers(h signalbox.Handler, opts ...Option) {
	k := newKind(otherKinds, h, opts)
	k.mustBeOne()
	if k.strict {
		panic("worker: HandleOthers with Strict; its handler reads the payload by itself")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustNotRun("HandleOthers")
	if w.kinds.others != nil {
		panic("worker: HandleOthers: a handler is registered already")
	}
	w.kinds.others = k
}

// register adds a handler for a kind. It panics on a programmer's error.
func (w *Worker) register(name string, h signalbox.Handler, opts []Option) *kind {
	if err := layout.ValidateKind(name); err != nil {
		panic("worker: Handle: " + err.Error())
	}
	k := newKind(name, h, opts)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustNotRun("Handle")
	if w.kinds.named[name] != nil {
		panic("worker: Handle: kind " + name + " is registered already")
	}
	w.kinds.named[name] = k
	return k
}

// newKind returns a kind with a handler and its options. It panics on a programmer's error.
func newKind(name string, h signalbox.Handler, opts []Option) *kind {
	if h == nil {
		panic("worker: Handle of a nil handler for kind " + name)
	}
	k := &kind{name: name, handler: h, retry: DefaultRetry}
	for _, opt := range opts {
		if opt == nil {
			panic("worker: Handle with a nil option for kind " + name)
		}
		opt(k)
	}
	if k.retry == nil {
		panic("worker: Handle with a nil retry policy for kind " + name)
	}
	if k.timeout < 0 {
		panic(fmt.Sprintf("worker: Handle with a timeout of %v for kind %s; 0 or more is allowed", k.timeout, name))
	}
	if k.many != nil {
		k.many.validate(name)
	}
	if k.retryFor < 0 {
		panic(fmt.Sprintf("worker: Handle with RetryFor(%v) for kind %s; 0 or more is allowed", k.retryFor, name))
	}
	if slices.ContainsFunc(k.terminal, func(is func(error) bool) bool { return is == nil }) {
		panic("worker: Handle with Terminal of a nil function for kind " + name)
	}
	if p := k.whenStuck; p != nil && (*p < KeepSlot || *p > FreeSlot) {
		panic(fmt.Sprintf("worker: Handle with WhenStuck(%d) for kind %s; KeepSlot or FreeSlot is allowed", *p, name))
	}
	if k.trace > signalbox.TraceNone {
		panic(fmt.Sprintf("worker: Handle with trace mode %d for kind %s; signalbox's constants are allowed", k.trace, name))
	}
	for _, m := range k.middleware {
		if m == nil {
			panic("worker: Handle with a nil middleware for kind " + name)
		}
	}
	return k
}

// build wraps the middleware around the handlers.
func (w *Worker) build() {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Collect(maps.Values(w.kinds.named))
	if w.kinds.others != nil {
		all = append(all, w.kinds.others)
	}
	for _, k := range all {
		if k.chain != nil {
			continue // built by an earlier Run
		}
		who := w.who()
		mw := []signalbox.Middleware{
			middleware.Trace(
				middleware.WithTracerProvider(w.cfg.TracerProvider), middleware.WithPropagator(w.cfg.Propagator),
				middleware.WithTraceMode(w.traceMode(k)), middleware.WithParentFor(w.cfg.ParentFor),
				func(c *telemetry.TraceConfig) { c.Who = who }),
			middleware.Metrics(middleware.WithMeterProvider(w.cfg.MeterProvider), func(c *telemetry.MetricsConfig) {
				c.Who.Address, c.Who.Port, c.Others = who.Address, who.Port, k == w.kinds.others
			}),
		}
		mw = append(mw, w.policed(k)...)
		mw = append(mw, middleware.Recover(), middleware.Lock(nil))
		mw = append(mw, w.middleware...)
		mw = append(mw, k.middleware...)
		mw = append(mw, middleware.Timeout(k.timeout), handled)
		if len(w.middleware)+len(k.middleware) > 0 {
			mw = append(mw, phased)
			w.middlemen = true
		}
		k.chain = signalbox.Chain(mw...)(k.handler)
	}
}

// traceMode returns the mode of a kind: its own, or the worker's. k is nil if the kind has no handler.
func (w *Worker) traceMode(k *kind) signalbox.TraceMode {
	if k != nil && k.trace != signalbox.TraceAuto {
		return k.trace
	}
	return w.cfg.TraceMode
}

// metric returns the kind of a job for metrics: one that has a handler of its own, telemetry.KindOther, or "" if the
// record can't be read.
func (ks *kinds) metric(d *store.Delivery) string {
	switch {
	case d.Err != nil:
		return ""
	case ks.named[d.Job.Kind] == nil:
		return telemetry.KindOther
	}
	return d.Job.Kind
}

// How far a delivery is: for a report of what lasts when its context has ended.
const (
	before int32 = iota // in no handler yet; or there is no middleware of the user's, which may last
	inside              // the handler runs
	after               // it has returned, and the middleware has not
)

// phased notes in the delivery when the handler is called and when it returns.
func phased(next signalbox.Handler) signalbox.Handler {
	return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		d, ok := ctx.Value(deliveryKey{}).(*delivery)
		if !ok {
			return next.Handle(ctx, job)
		}
		d.phase.Store(inside)
		defer d.phase.Store(after)
		return next.Handle(ctx, job)
	})
}

// who returns what spans and metrics say about this worker.
func (w *Worker) who() telemetry.Who {
	host, port := server.Address(w.rdb)
	return telemetry.Who{Address: host, Port: port, ClientID: w.id}
}

// insteadOf returns what to do about a type whose zero value can't name a kind.
func insteadOf[T signalbox.Args]() string {
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		return fmt.Sprintf("have the handler take %v, not a pointer", t.Elem())
	}
	return "it must return a constant"
}

// kindOf returns the kind that the zero value of T names. That is a nil pointer if T is a pointer.
func kindOf[T signalbox.Args]() string {
	var zero T
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("worker: Handle: Kind of a zero %T panicked (%v); %s", zero, p, insteadOf[T]()))
		}
	}()
	return zero.Kind()
}
