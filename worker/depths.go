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
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// ReportConfig configures [ReportDepths]. The zero value is usable.
type ReportConfig struct {
	// Namespace is the namespace of the queues, as in [Config].
	Namespace string
	// MeterProvider receives the metrics. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// Logger logs when the depths of a queue can't be read, and when they are read again. Default [slog.Default].
	Logger *slog.Logger
}

// ReportDepths adds the depths of queues to the metrics of a process that doesn't work these queues, such as a scheduler. Without
// it the series of a queue end when its last worker stops. Only one process at a time reports a queue. Workers are counted among
// these processes.
//
// The client's Redis user needs the rule of a reporter in docs/operations/access.md. The log names missing rights.
//
// It returns at once. stop ends the reports. It waits for a read that is under way: a second or two, or the client's ReadTimeout if
// Redis doesn't answer. The error wraps [signalbox.ErrInvalid] and names the wrong arguments.
func ReportDepths(ctx context.Context, rdb redis.UniversalClient, cfg ReportConfig, queues ...string) (stop func(), err error) {
	if err := server.CheckClient(rdb); err != nil {
		return nil, err
	}
	if err := layout.ValidateNamespace(cfg.Namespace); err != nil {
		return nil, fmt.Errorf("worker.ReportConfig.Namespace: %w", err)
	}
	if len(queues) == 0 {
		return nil, fmt.Errorf("%w worker.ReportDepths: no queue is named", signalbox.ErrInvalid)
	}
	stores := make([]*store.Queue, 0, len(queues))
	for _, name := range queues {
		if err := layout.ValidateQueue(name); err != nil {
			return nil, err
		}
		stores = append(stores, store.New(rdb, cfg.Namespace, name))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return observe(ctx, cfg.MeterProvider, cfg.Logger, stores), nil
}

// observe adds the depths of the queues to the metrics until the returned function is called. It skips queues that another process
// reports.
func observe(ctx context.Context, mp metric.MeterProvider, log *slog.Logger, queues []*store.Queue) func() {
	me := store.Reporter(store.NewID()) // not the worker's name: a process on another host may have the same
	said := make(map[string]time.Time)  // when the log last warned of a queue; no lock, since only one read runs at a time
	warned := make(map[string]bool)     // queues that the log has warned of and that were not read since
	stop := telemetry.ObserveDepths(mp, func(ctx context.Context) []telemetry.Depth {
		depths := make([]telemetry.Depth, 0, len(queues))
		for _, q := range queues {
			d, flows, mine, err := depthsOf(ctx, q, me)
			switch {
			case err != nil && sayAgain(said, q.Name()):
				warned[q.Name()] = true
				log.Warn("signalbox: the depths of a queue could not be read, and are missing from the metrics",
					"queue", q.Name(), "error", q.Denied(ctx, err, server.Reporter))
			case err == nil && mine && warned[q.Name()]:
				delete(warned, q.Name())
				log.Info("signalbox: the depths of a queue are read again", "queue", q.Name())
			}
			if err != nil || !mine {
				continue
			}
			depths = append(depths, telemetry.Depth{
				Queue: q.Name(), Ready: d.Ready - d.Blocked, Blocked: d.Blocked, PausedGroups: d.PausedGroups, HeldGroups: d.HeldGroups, Scheduled: d.Scheduled, Awaiting: d.Awaiting, Running: d.Running,
				Dead: d.Dead, Cancelled: d.Cancelled, Completed: d.Completed, OpenFlows: flows.Open, FailedFlows: flows.Failed, Oldest: d.Oldest,
				Paused: d.Paused, Held: !d.HeldUntil.IsZero(), Limited: d.Limited,
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
			_ = me.End(ctx, q) // if this fails, another process begins a little later
		}
	}
}

// depthsOf reads the depths of a queue, and how many batches it has, if this process reports them. mine is false if another one does.
func depthsOf(ctx context.Context, q *store.Queue, me store.Reporter) (d looks.Depths, flows store.FlowCounts, mine bool, err error) {
	if err := ctx.Err(); err != nil { // the client may not check ctx
		return d, flows, false, err
	}
	if mine, err = me.Begin(ctx, q); err == nil && mine {
		d, err = q.Looks().Depths(ctx)
	}
	if err == nil && mine {
		flows, err = q.Flows().Count(ctx)
	}
	return d, flows, mine, err
}
