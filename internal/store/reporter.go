package store

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// ReportFor is how long a silent client remains a queue's reporter. It is longer than a minute, OpenTelemetry's period. So a client
// that reports in every period remains the reporter.
const ReportFor = 90 * time.Second

// A Reporter is the name of a client that reports the depths of queues. A queue has one reporter at a time.
type Reporter string

// Begin makes the client the queue's reporter for ReportFor from now, or extends that time. mine is false if another client is the
// reporter.
func (r Reporter) Begin(ctx context.Context, q *Queue) (mine bool, err error) {
	return r.call(ctx, q, ReportFor)
}

// End lets another client become the queue's reporter, if this one was it.
func (r Reporter) End(ctx context.Context, q *Queue) error {
	_, err := r.call(ctx, q, 0)
	return err
}

func (r Reporter) call(ctx context.Context, q *Queue, ttl time.Duration) (bool, error) {
	reply, err := scripts.Report.Run(ctx, q.rdb, scripts.Report.Keys(&q.keys),
		scripts.Report.Args(0, scripts.Arg("client", string(r)), scripts.Arg("ttl", ttl.Milliseconds())))
	if err != nil {
		return false, err
	}
	mine := reply.Int(0) == 1
	return mine, reply.Err
}
