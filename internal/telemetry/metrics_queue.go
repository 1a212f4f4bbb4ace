package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// A Depth is how much is in a queue.
type Depth struct {
	Queue string
	// Jobs by state. Scheduled ones wait for their time.
	Ready, Scheduled, Running, Dead, Cancelled int64
	// Oldest is for how long the oldest job that could run has been waiting; 0: there is none.
	Oldest time.Duration
}

// depthTimeout bounds how long reading the depths holds up all metrics of the program. The context
// of the read ends a little earlier, so that one that heeds it is in time with what it has.
const (
	depthTimeout = 2 * time.Second
	readTimeout  = depthTimeout - depthTimeout/10
)

// ObserveDepths reports the depths of queues to mp, or to the global provider if mp is nil: whenever metrics are
// collected, read is called. The returned function ends that. It waits
// for a read that is under way, however long it takes: the context of the read ends in time, but a client of
// go-redis without ContextTimeoutEnabled still waits for its own timeout, once.
//
// One read is under way at a time. All collections that begin meanwhile wait for it. If it takes
// too long they report nothing, and so do those that find it still under way.
//
// read must leave out what it can't read, and log it: an error that is passed on to a reader of
// metrics can make it export none at all. Of many processes one should read a queue. For the
// others read returns nothing.
func ObserveDepths(mp metric.MeterProvider, read func(context.Context) []Depth) (stop func()) {
	m := meterOf(mp)
	depth, err := m.Int64ObservableGauge(queueDepth.name, metric.WithUnit(queueDepth.unit), metric.WithDescription(queueDepth.description))
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	oldest, err := m.Float64ObservableGauge(queueOldest.name, metric.WithUnit(queueOldest.unit), metric.WithDescription(queueOldest.description))
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	reader := &depthReader{read: read}
	registration, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, d := range reader.depths(ctx) {
			d.observe(o, depth, oldest)
		}
		return nil
	}, depth, oldest)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() {
		if err := registration.Unregister(); err != nil {
			otel.Handle(err)
		}
		reader.stop()
	}
}

// A depthReader makes one read at a time.
type depthReader struct {
	read func(context.Context) []Depth

	mu      sync.Mutex
	current *depthRead // nil: none is under way
	stopped bool
}

type depthRead struct {
	until  time.Time     // nobody waits for it any more
	done   chan struct{} // closed when it has returned
	depths []Depth       // from then on
}

// depths is what a read returns, one that is under way or another; nil if it takes too long.
func (r *depthReader) depths(ctx context.Context) []Depth {
	current := r.join(ctx)
	if current == nil {
		return nil
	}
	late := time.NewTimer(time.Until(current.until))
	defer late.Stop()
	select {
	case <-current.done:
		return current.depths
	case <-late.C:
	case <-ctx.Done():
	}
	return nil
}

// join returns the read that is under way, or begins one; nil after stop.
func (r *depthReader) join(ctx context.Context) *depthRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil || r.stopped {
		return r.current
	}
	current := &depthRead{until: time.Now().Add(depthTimeout), done: make(chan struct{})}
	r.current = current
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // others may join
		defer cancel()
		current.depths = r.read(ctx)
		r.mu.Lock()
		r.current = nil
		r.mu.Unlock()
		close(current.done)
	}()
	return current
}

// stop waits for the read that is under way. None begins after it.
func (r *depthReader) stop() {
	r.mu.Lock()
	r.stopped = true
	current := r.current
	r.mu.Unlock()
	if current != nil {
		<-current.done
	}
}

func (d *Depth) observe(o metric.Observer, depth metric.Int64Observable, oldest metric.Float64Observable) {
	system, queue := semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(d.Queue)
	for _, s := range []struct {
		state string
		n     int64
	}{
		{"ready", d.Ready}, {"scheduled", d.Scheduled}, {"running", d.Running}, {"dead", d.Dead}, {"cancelled", d.Cancelled},
	} {
		o.ObserveInt64(depth, s.n, metric.WithAttributeSet(attribute.NewSet(system, queue, queueState.String(s.state))))
	}
	o.ObserveFloat64(oldest, d.Oldest.Seconds(), metric.WithAttributeSet(attribute.NewSet(system, queue)))
}
