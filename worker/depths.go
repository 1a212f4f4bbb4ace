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
	me := store.NewID()                  // not the worker's name, which another host's may have, too
	warned := make(map[string]time.Time) // queues; there is one read at a time
	stop := telemetry.ObserveDepths(w.cfg.MeterProvider, func(ctx context.Context) []telemetry.Depth {
		depths := make([]telemetry.Depth, 0, len(queues))
		for _, q := range queues {
			d, mine, err := depthsOf(ctx, q, me)
			if err != nil && sayAgain(warned, q.Name()) {
				w.log.Warn("signalbox: the depths of a queue could not be read, and are missing from the metrics", "queue", q.Name(), "error", err)
			}
			if err != nil || !mine {
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

// depthsOf reads the depths of a queue, if they are ours to report.
func depthsOf(ctx context.Context, q *store.Queue, me string) (d store.Depths, mine bool, err error) {
	if err := ctx.Err(); err != nil { // a client may not look
		return d, false, err
	}
	if mine, err = q.Report(ctx, me); err == nil && mine {
		d, err = q.Depths(ctx)
	}
	return d, mine, err
}
