package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// ReportConfig configures [ReportDepths]. The zero value is usable.
type ReportConfig struct {
	// Namespace is that of the queues, as in [Config].
	Namespace string
	// MeterProvider takes the metrics. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// Logger takes which depths can't be read, and which are read again. Default [slog.Default].
	Logger *slog.Logger
}

// ReportDepths adds the depths of queues to the metrics of a process that works none of them, such as a
// scheduler. So the series don't end with a queue's last worker. Of all processes, workers included, one at a
// time reports a queue.
//
// The client's Redis user needs the rule of a reporter in docs/operations.md. What it lacks is in the log.
//
// It returns at once. stop ends it. It waits for a read that is under way: a second or two, or the client's
// ReadTimeout if Redis doesn't answer. The error wraps [signalbox.ErrInvalid] and names the wrong arguments.
func ReportDepths(ctx context.Context, rdb redis.UniversalClient, cfg ReportConfig, queues ...string) (stop func(), err error) {
	if err := store.CheckClient(rdb); err != nil {
		return nil, err
	}
	if err := store.ValidateNamespace(cfg.Namespace); err != nil {
		return nil, fmt.Errorf("worker.ReportConfig.Namespace: %w", err)
	}
	if len(queues) == 0 {
		return nil, fmt.Errorf("%w worker.ReportDepths: no queue is named", signalbox.ErrInvalid)
	}
	stores := make([]*store.Queue, 0, len(queues))
	for _, name := range queues {
		if err := store.ValidateQueue(name); err != nil {
			return nil, err
		}
		stores = append(stores, store.New(rdb, cfg.Namespace, name))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return observe(ctx, cfg.MeterProvider, cfg.Logger, stores), nil
}

// observe adds the depths of the queues to the metrics, unless another process reports them, until the returned
// function is called.
func observe(ctx context.Context, mp metric.MeterProvider, log *slog.Logger, queues []*store.Queue) func() {
	me := store.NewID()                // not the worker's name, which another host's may have, too
	said := make(map[string]time.Time) // when the log warned of a queue; there is one read at a time
	warned := make(map[string]bool)    // the log has not said since that the queue is read again
	stop := telemetry.ObserveDepths(mp, func(ctx context.Context) []telemetry.Depth {
		depths := make([]telemetry.Depth, 0, len(queues))
		for _, q := range queues {
			d, mine, err := depthsOf(ctx, q, me)
			switch {
			case err != nil && sayAgain(said, q.Name()):
				warned[q.Name()] = true
				log.Warn("signalbox: the depths of a queue could not be read, and are missing from the metrics",
					"queue", q.Name(), "error", q.Denied(ctx, err, store.Reporter))
			case err == nil && mine && warned[q.Name()]:
				delete(warned, q.Name())
				log.Info("signalbox: the depths of a queue are read again", "queue", q.Name())
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
		if telemetry.MetricsOff(mp) {
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
