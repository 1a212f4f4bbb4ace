package lock

import (
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// MeterProvider says where the metrics of locks go. The default is OpenTelemetry's global
// provider. It stays the caller's, to flush and to shut down.
func MeterProvider(mp metric.MeterProvider) Option { return func(c *config) { c.meters = mp } }

// howLost tells how a lock was lost, from how its validity ended; "": it was not.
func howLost(cause error) string {
	switch {
	case errors.Is(cause, ErrTaken):
		return telemetry.LostTaken
	case errors.Is(cause, ErrLost):
		return telemetry.LostExpired
	}
	return ""
}
