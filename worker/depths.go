package worker

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// observe has the depths of the queues reported with the metrics, by one worker for each queue,
// until the returned function is called.
func (w *Worker) observe(ctx context.Context, queues []*store.Queue) func() {
	me := store.NewID() // not the worker's name, which another host's may have, too
	stop := telemetry.ObserveDepths(w.cfg.MeterProvider, func(ctx context.Context) []telemetry.Depth {
		depths := make([]telemetry.Depth, 0, len(queues))
		for _, q := range queues {
			mine, err := q.Report(ctx, me)
			if err == nil && !mine {
				continue
			}
			var d store.Depths
			if err == nil {
				d, err = q.Depths(ctx)
			}
			if err != nil {
				w.log.Warn("signalbox: the depths of a queue could not be read, and are missing from the metrics", "queue", q.Name(), "error", err)
				continue
			}
			depths = append(depths, telemetry.Depth{
				Queue: q.Name(), Ready: d.Ready, Scheduled: d.Scheduled, Running: d.Running,
				Dead: d.Dead, Cancelled: d.Cancelled, Oldest: d.Oldest,
			})
		}
		return depths
	})
	return func() {
		stop()
		if telemetry.MetricsOff(w.cfg.MeterProvider) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		for _, q := range queues {
			_ = q.StopReporting(ctx, me) // else another begins a little later
		}
	}
}
