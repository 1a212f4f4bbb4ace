package worker_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// slowMeters count lost leases, and take as long as the test wants.
type slowMeters struct {
	metric.MeterProvider
	asked chan<- struct{}
	free  <-chan struct{}
}

func (m *slowMeters) Meter(string, ...metric.MeterOption) metric.Meter {
	return &slowMeter{Meter: noop.Meter{}, meters: m}
}

type slowMeter struct {
	metric.Meter
	meters *slowMeters
}

func (m *slowMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c, err := m.Meter.Int64Counter(name, opts...)
	if name == "signalbox.lock.lost" {
		c = &slowCounter{c, m.meters}
	}
	return c, err
}

type slowCounter struct {
	metric.Int64Counter
	meters *slowMeters
}

func (c *slowCounter) Add(context.Context, int64, ...metric.AddOption) {
	c.meters.asked <- struct{}{}
	<-c.meters.free
}

// Counting the loss of a lease may take long. Handlers that return meanwhile are still settled.
func TestLostLeaseIsCountedAside(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]bool{"heard by the keeper": false, "heard by a lane": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			asked := make(chan struct{}, 10)
			free, open := r.gate()
			release, end := r.gate()
			cfg := r.short(3)
			if long {
				cfg = r.patient(3) // no renewal notices it first
			}
			cfg.MeterProvider = &slowMeters{noop.NewMeterProvider(), asked, free}
			w := r.workerWith(cfg)
			began := make(chan struct{}, 3)
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
				began <- struct{}{}
				if job.ID != "waits" {
					return nil
				}
				<-release
				return nil
			})
			r.addOne(signalbox.Job{ID: "waits"})
			r.start(w)
			get(t, began, "the job runs")
			for _, session := range r.rdb.ZRange(t.Context(), r.key("sessions"), 0, -1).Val() {
				r.rdb.ZAdd(t.Context(), r.key("sessions"), redis.Z{Score: 1, Member: session})
			}
			if long {
				r.addOne(signalbox.Job{}) // a lane notices it
			}
			get(t, asked, "the loss is counted")
			end()
			r.until("the job is settled meanwhile", func(looks.Counts) bool {
				return !r.rdb.HExists(t.Context(), r.key("jobs"), "waits").Val()
			})
			open()
		})
	}
}
