package signalbox

// A TraceMode says how the spans of a delivery are connected with the span that enqueued the job. It can be set for a
// worker, for a kind of job and for one job. The setting of the job overrides that of the kind, and both override that
// of the worker. TraceAuto for a job or a kind means that the next one decides. The jobs of a bulk are always linked,
// unless their mode is TraceNone.
type TraceMode uint8

// The modes.
const (
	// TraceAuto is TraceParent for a job that was enqueued alone and not long ago, and TraceLink for all others. So one
	// job reads as one trace, and no trace grows without end. If handlers enqueue one job after the other, the age of
	// the first one counts.
	TraceAuto TraceMode = iota
	// TraceParent makes deliveries children of the span that enqueued the job.
	TraceParent
	// TraceLink makes each delivery the root of a trace of its own, with a link to the span that enqueued the job.
	TraceLink
	// TraceNone makes each delivery the root of a trace of its own, without a link.
	TraceNone
)

var traceModes = [...]string{"auto", "parent", "link", "none"}

// String returns "auto", "parent", "link" or "none".
func (m TraceMode) String() string {
	if int(m) < len(traceModes) {
		return traceModes[m]
	}
	return "invalid"
}
