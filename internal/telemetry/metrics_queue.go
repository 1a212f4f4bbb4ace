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

// A Depth is the number of jobs in a queue.
type Depth struct {
	Queue string
	// Jobs by state. Those of Ready could start if a worker were free. Blocked ones are ready, too, but their group lets none start. Scheduled jobs wait for
	// their time.
	Ready, Blocked, Scheduled, Awaiting, Running, Dead, Cancelled, Completed int64
	// How many groups of the queue are paused, and how many are held back.
	PausedGroups, HeldGroups int64
	// How many batches aren't over, and of how many a member hasn't completed, whether they are over or not.
	OpenFlows, FailedFlows int64
	// Oldest is how long the oldest job that could run has been waiting; 0: there is none.
	Oldest time.Duration
	// What keeps jobs from starting, whatever the workers do: the queue is paused, or held back, or at its limits while jobs are ready.
	Paused, Held, Limited bool
}

// depthTimeout bounds how long reading the depths delays all metrics of the program. The context of the read
// ends a little earlier. So a read that heeds its context returns in time with what it has.
const (
	depthTimeout = 2 * time.Second
	readTimeout  = depthTimeout - depthTimeout/10
)

// ObserveDepths reports the depths of queues to mp, or to the global provider if mp is nil. It calls read
// whenever metrics are collected. The returned function ends that. It waits for a read in progress, however long
// that takes: the context of the read ends in time, but a client of go-redis without ContextTimeoutEnabled still
// waits for its own timeout, once.
//
// There is one read at a time. A collection that begins during a read waits for it. If the read takes too long,
// those collections report nothing. So do later ones that find it still in progress.
//
// read must leave out what it can't read, and log it: if an error is passed on to a reader of metrics, the
// reader may export nothing at all. Of all processes, only one should read a queue. In the others, read returns
// nothing.
func ObserveDepths(mp metric.MeterProvider, read func(context.Context) []Depth) (stop func()) {
	m := meterOf(mp)
	gauges, err := newDepthGauges(m)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	reader := &depthReader{read: read}
	registration, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, d := range reader.depths(ctx) {
			d.observe(o, gauges)
		}
		return nil
	}, gauges.all()...)
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

// depthGauges are the instruments that report a [Depth].
type depthGauges struct {
	depth, stopped, groups, flowsOpen, flowsFailed metric.Int64ObservableGauge
	oldest                                         metric.Float64ObservableGauge
}

func newDepthGauges(m metric.Meter) (g depthGauges, err error) {
	for _, one := range []struct {
		gauge *metric.Int64ObservableGauge
		d     definition
	}{{&g.depth, queueDepth}, {&g.stopped, queueStopped}, {&g.groups, queueGroups}, {&g.flowsOpen, flowsOpen}, {&g.flowsFailed, flowsFailed}} {
		if *one.gauge, err = m.Int64ObservableGauge(one.d.name, metric.WithUnit(one.d.unit), metric.WithDescription(one.d.description)); err != nil {
			return depthGauges{}, err
		}
	}
	g.oldest, err = m.Float64ObservableGauge(queueOldest.name, metric.WithUnit(queueOldest.unit), metric.WithDescription(queueOldest.description))
	return g, err
}

func (g *depthGauges) all() []metric.Observable {
	return []metric.Observable{g.depth, g.stopped, g.groups, g.flowsOpen, g.flowsFailed, g.oldest}
}

// A depthReader makes one read at a time.
type depthReader struct {
	read func(context.Context) []Depth

	mu      sync.Mutex
	current *depthRead // nil: none in progress
	stopped bool
}

type depthRead struct {
	until  time.Time     // after this time no collection waits for it
	done   chan struct{} // closed when the read has returned
	depths []Depth       // set before done is closed
}

// depths returns the result of a read, which it starts or joins. It returns nil if the read takes too long.
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

// join returns the read in progress, or begins one. After stop it begins none, and may return nil.
func (r *depthReader) join(ctx context.Context) *depthRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil || r.stopped {
		return r.current
	}
	current := &depthRead{until: time.Now().Add(depthTimeout), done: make(chan struct{})}
	r.current = current
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // other collections may join
		defer cancel()
		current.depths = r.read(ctx)
		r.mu.Lock()
		r.current = nil
		r.mu.Unlock()
		close(current.done)
	}()
	return current
}

// stop waits for the read in progress. No read begins after it.
func (r *depthReader) stop() {
	r.mu.Lock()
	r.stopped = true
	current := r.current
	r.mu.Unlock()
	if current != nil {
		<-current.done
	}
}

func (d *Depth) observe(o metric.Observer, g depthGauges) {
	system, queue := semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(d.Queue)
	for _, s := range []struct {
		state string
		n     int64
	}{
		{"ready", d.Ready},
		{"blocked", d.Blocked},
		{"scheduled", d.Scheduled},
		{"awaiting", d.Awaiting},
		{"running", d.Running},
		{"dead", d.Dead},
		{"cancelled", d.Cancelled},
		{"completed", d.Completed},
	} {
		o.ObserveInt64(g.depth, s.n, metric.WithAttributeSet(attribute.NewSet(system, queue, queueState.String(s.state))))
	}
	o.ObserveInt64(g.groups, d.PausedGroups, metric.WithAttributeSet(attribute.NewSet(system, queue, queueCause.String("paused"))))
	o.ObserveInt64(g.groups, d.HeldGroups, metric.WithAttributeSet(attribute.NewSet(system, queue, queueCause.String("held"))))
	o.ObserveInt64(g.flowsOpen, d.OpenFlows, metric.WithAttributeSet(attribute.NewSet(system, queue)))
	o.ObserveInt64(g.flowsFailed, d.FailedFlows, metric.WithAttributeSet(attribute.NewSet(system, queue)))
	o.ObserveFloat64(g.oldest, d.Oldest.Seconds(), metric.WithAttributeSet(attribute.NewSet(system, queue)))
	for _, b := range []struct {
		by string
		is bool
	}{{"paused", d.Paused}, {"held", d.Held}, {"limited", d.Limited}} {
		n := int64(0)
		if b.is {
			n = 1
		}
		o.ObserveInt64(g.stopped, n, metric.WithAttributeSet(attribute.NewSet(system, queue, queueCause.String(b.by))))
	}
}
