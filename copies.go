package signalbox

// The headers of a copy of a dead job. A queue can have its dead jobs copied to another queue: see CopyDead of worker.Queue. They say of which
// job it is a copy. A job that has [HeaderDeadID] is not copied when it dies.
const (
	HeaderDeadQueue = "signalbox-dead-queue" // the queue of the dead job
	HeaderDeadID    = "signalbox-dead-id"    // its ID
	HeaderDeadError = "signalbox-dead-error" // the first 512 bytes of its last error; left out if there is none
	// HeaderDeadAt says when it died, by the clock of Redis, as in 2026-01-31T03:00:00.000001Z. It differs between the deaths of a job. A copy has the effect key of the
	// dead job, so an effect that is to be had once for each death, such as an alert, needs this time in its name.
	HeaderDeadAt = "signalbox-dead-at"
)
