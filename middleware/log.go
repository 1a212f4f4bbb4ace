package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// Log writes one record for each delivery, when its handler has returned. The record has job (its ID), kind, queue,
// attempt, token, duration (with its unit, such as 12.5ms) and outcome. If the delivery is traced, it has trace_id and span_id.
// It never has a payload or a header. All records are of level info. A nil logger means [slog.Default] at the time of the record.
//
// The outcome is what the handler's error asks for: completed, snoozed, cancelled, shutdown, failed, timeout, panic or
// lost. If the job is snoozed because a named lock couldn't be had, the record has the reason: "lock held" (by another
// client) or "lock service down". The error itself is not in the record: the worker logs it once, as a warning or an
// error, with what became of the job.
func Log(logger *slog.Logger) signalbox.Middleware {
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			start := time.Now()
			returned := false
			defer func() {
				if !returned { // a panic on its way to Recover
					record(ctx, logger, job, start, panicked, nil)
				}
			}()
			err := next.Handle(ctx, job)
			returned = true
			record(ctx, logger, job, start, outcomeOf(ctx, err), err)
			return err
		})
	}
}

func record(ctx context.Context, logger *slog.Logger, job *signalbox.Job, start time.Time, how outcome, err error) {
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attrs := make([]any, 0, 11)
	attrs = append(attrs,
		slog.String("job", job.ID),
		slog.String("kind", job.Kind),
		slog.String("queue", job.Queue),
		slog.Int("attempt", job.Attempt),
		slog.Int64("token", job.Token),
		slog.String("duration", time.Since(start).Round(time.Microsecond).String()),
		slog.String("outcome", string(how)),
	)
	if reason := putBack(how, err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	logger.InfoContext(ctx, "job", append(attrs, telemetry.LogAttrs(trace.SpanContextFromContext(ctx))...)...)
}

// putBack returns why a lock couldn't be had, for a job that is snoozed because of that. Otherwise it returns "".
func putBack(how outcome, err error) string {
	if how != snoozed {
		return ""
	}
	snooze, _ := errors.AsType[*signalbox.SnoozeError](err)
	switch {
	case is[*downError](snooze.Err):
		return "lock service down"
	case errors.Is(snooze.Err, lock.ErrHeld):
		return "lock held"
	}
	return ""
}
