package telemetry

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox"
)

// The outcomes of deliveries equal those of the root package. Each has its operation, and counts as a failure
// or not.
func TestOutcomesAreThoseOfDeliveries(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[signalbox.Outcome]struct{ operation, errorType string }{
		signalbox.OutcomeCompleted:  {"ack", ""},
		signalbox.OutcomeRetried:    {"retry", ""},
		signalbox.OutcomeSnoozed:    {"snooze", ""},
		signalbox.OutcomeReturned:   {"snooze", ""},
		signalbox.OutcomeDead:       {"dead_letter", ""},
		signalbox.OutcomeCancelled:  {"dead_letter", ""},
		signalbox.OutcomeSuperseded: {"ack", ErrorLeaseLost},
		signalbox.OutcomeUnknown:    {"ack", ErrorUnsettled},
	} {
		if got := settleOperation(string(outcome)); got != want.operation {
			t.Errorf("the operation of %s is %s, want %s", outcome, got, want.operation)
		}
		mp, reader := meters()
		NewConsumerMetrics(mp, Who{}).Settled(t.Context(), "mail", "welcome", string(signalbox.OutcomeCompleted), string(outcome), time.Second)
		var settled, failed attribute.Value
		got := collect(t, reader)
		if sum, ok := got["signalbox.jobs.settled"].Data.(metricdata.Sum[int64]); ok {
			settled, _ = sum.DataPoints[0].Attributes.Value("signalbox.job.outcome")
		}
		failed, _ = got["messaging.client.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints[0].Attributes.Value("error.type")
		wantSettled := string(outcome)
		if want.errorType != "" {
			wantSettled = ""
		}
		if settled.AsString() != wantSettled || failed.AsString() != want.errorType {
			t.Errorf("%s is counted as %q with error type %q, want %q with %q", outcome, settled.AsString(), failed.AsString(), wantSettled, want.errorType)
		}
	}
}
