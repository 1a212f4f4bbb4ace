package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/middleware"
)

// A kind is what a worker does with the jobs of one kind.
type kind struct {
	handler    signalbox.Handler // as registered
	middleware []signalbox.Middleware
	retry      RetryPolicy
	timeout    time.Duration
	trace      signalbox.TraceMode // TraceAuto: the worker's

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

// Handle registers fn for the jobs of T's kind. Their arguments are decoded from JSON; a
// job whose arguments don't decode fails that attempt.
//
// Handle panics on a programmer's error, as [net/http.ServeMux] does: a nil fn, a kind that
// is registered already or is no name, a nil or negative option, or a call after Run.
func Handle[T signalbox.Args](w *Worker, fn func(ctx context.Context, job *signalbox.Job, args T) error, opts ...Option) {
	if fn == nil {
		panic("worker: Handle of a nil function")
	}
	w.HandleKind(kindOf[T](), signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		var args T
		if err := json.Unmarshal(job.Payload, &args); err != nil {
			return decodeError(err)
		}
		return fn(ctx, job, args)
	}), opts...)
}

// HandleKind registers a handler that reads the payload by itself. It panics as [Handle] does.
func (w *Worker) HandleKind(name string, h signalbox.Handler, opts ...Option) {
	if err := store.ValidateKind(name); err != nil {
		panic("worker: Handle: " + err.Error())
	}
	if h == nil {
		panic("worker: Handle of a nil handler for kind " + name)
	}
	k := &kind{handler: h, retry: DefaultRetry}
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
	if k.trace > signalbox.TraceNone {
		panic(fmt.Sprintf("worker: Handle with trace mode %d for kind %s; signalbox's constants are allowed", k.trace, name))
	}
	for _, m := range k.middleware {
		if m == nil {
			panic("worker: Handle with a nil middleware for kind " + name)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustNotRun("Handle")
	if w.kinds[name] != nil {
		panic("worker: Handle: kind " + name + " is registered already")
	}
	w.kinds[name] = k
}

// build wraps the middleware around the handlers.
func (w *Worker) build() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.kinds {
		if k.chain != nil {
			continue // built by an earlier Run
		}
		who := w.who()
		mw := []signalbox.Middleware{
			middleware.Trace(
				middleware.WithTracerProvider(w.cfg.TracerProvider), middleware.WithPropagator(w.cfg.Propagator),
				middleware.WithTraceMode(w.traceMode(k)), middleware.WithParentFor(w.cfg.ParentFor),
				middleware.WithClient(who.Address, who.Port, who.ClientID)),
			middleware.Metrics(middleware.WithMeterProvider(w.cfg.MeterProvider), middleware.WithServer(who.Address, who.Port)),
			middleware.Recover(), middleware.Lock(nil),
		}
		mw = append(mw, w.middleware...)
		mw = append(mw, k.middleware...)
		mw = append(mw, middleware.Timeout(k.timeout), handled)
		k.chain = signalbox.Chain(mw...)(k.handler)
		w.middlemen = w.middlemen || len(w.middleware)+len(k.middleware) > 0
	}
}

// traceMode is that of a kind: its own, or the worker's. k is nil if it has no handler.
func (w *Worker) traceMode(k *kind) signalbox.TraceMode {
	if k != nil && k.trace != signalbox.TraceAuto {
		return k.trace
	}
	return w.cfg.TraceMode
}

// metricKind is the kind of a job for metrics: one of few, whatever Redis holds, or "" if the record
// can't be read.
func (w *Worker) metricKind(d *store.Delivery) string {
	switch {
	case d.Err != nil:
		return ""
	case w.kinds[d.Job.Kind] == nil:
		return telemetry.KindOther
	}
	return d.Job.Kind
}

// handled is the innermost middleware: it makes the handler's own span, if the delivery is traced.
func handled(next signalbox.Handler) signalbox.Handler {
	return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		ctx, end := telemetry.DeliveryFrom(ctx).Handle(ctx)
		if end == nil {
			return next.Handle(ctx, job)
		}
		err := telemetry.ErrPanicked // unless it returns
		defer func() { end(err) }()
		err = next.Handle(ctx, job)
		return err
	})
}

// who are we, for spans and metrics.
func (w *Worker) who() telemetry.Who {
	host, port := store.Address(w.rdb)
	return telemetry.Who{Address: host, Port: port, ClientID: w.id}
}

// kindOf asks the zero value of T, which is nil if T is a pointer.
func kindOf[T signalbox.Args]() string {
	var zero T
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("worker: Handle: Kind of a zero %T panicked (%v); it must return a constant", zero, p))
		}
	}()
	return zero.Kind()
}

// decodeError says where the arguments are wrong and leaves out what they are. The path to the field
// may have keys of a map, which are of the payload.
func decodeError(err error) error {
	if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("decode the job's arguments: a value near byte %d does not fit in Go type %v", typ.Offset, typ.Type)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("decode the job's arguments: no valid JSON at byte %d", syntax.Offset)
	}
	return errors.New("decode the job's arguments: a decoder of theirs refused them")
}
