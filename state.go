package signalbox

// A State says where a job is in its life. The zero value "" means that it is not known.
type State string

// The states.
const (
	StateScheduled State = "scheduled" // waits for its time: At, After, a retry or a snooze
	StateReady     State = "ready"     // waits for a worker
	StateRunning   State = "running"   // a worker has it
	StateCompleted State = "completed" // done; its record is deleted, unless the queue keeps completed jobs
	StateDead      State = "dead"      // failed for good; its record is kept for a while
	StateCancelled State = "cancelled" // ended by Cancel, or cancelled from outside; its record is kept for a while
)

// Live reports whether the job is not over yet: scheduled, ready or running.
func (s State) Live() bool {
	return s == StateScheduled || s == StateReady || s == StateRunning
}
