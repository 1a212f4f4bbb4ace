package signalbox

// The headers of a copy of a dead job. A queue can have its dead jobs copied to another queue: see CopyDead of worker.Queue. They say of which
// job it is a copy. A job that has [HeaderDeadID] is not copied when it dies.
const (
	HeaderDeadQueue = "signalbox-dead-queue" // the queue of the dead job
	HeaderDeadID    = "signalbox-dead-id"    // its ID
	HeaderDeadAt    = "signalbox-dead-at"    // when it died, by the clock of Redis, as in 2026-01-31T03:00:00.000001Z
	HeaderDeadError = "signalbox-dead-error" // the first 512 bytes of its last error; left out if there is none
	// HeaderDeadEffect is its effect key, for [Job.PayloadKey]. Only copies whose payload isn't JSON have it.
	HeaderDeadEffect = "signalbox-dead-effect"
)
