package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Log writes one record for each delivery when its handler has returned: job (its ID), kind, queue,
// attempt, token, duration, outcome, the error if there is one, and trace_id and span_id if it
// is traced. Never a payload or a header. A failure is a warning, a panic an error, all else is info. A nil
// logger means [slog.Default] at the time of the record.
//
// The outcome is what the handler's error asks for: completed, snoozed, cancelled,
// shutdown, failed, timeout, panic or lost. What became of the job, such as a retry or
// a refusal since it was superseded, is the worker's to tell.
func Log(logger *slog.Logger) signalbox.Middleware {
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			start := time.Now()
			returned := false
			defer func() {
				if !returned { // a panic on its way to Recover, which has its value
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
	level := slog.LevelInfo
	switch {
	case how == panicked:
		level = slog.LevelError
	case how.isFailure():
		level = slog.LevelWarn
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]any, 0, 10)
	attrs = append(attrs,
		slog.String("job", job.ID),
		slog.String("kind", job.Kind),
		slog.String("queue", job.Queue),
		slog.Int("attempt", job.Attempt),
		slog.Int64("token", job.Token),
		slog.Duration("duration", time.Since(start)),
		slog.String("outcome", string(how)),
	)
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	logger.Log(ctx, level, "job", append(attrs, telemetry.LogAttrs(ctx)...)...)
}
