package store

// A terminalState is a state of jobs that have ended and are kept. The same list is in terminal_states, in scripts/chapters/places.lua.
type terminalState struct {
	outcome  Outcome // the outcome that leads to it; it is the name of the state as well
	key      string  // the scripts' name for the key with the set of its IDs
	bytes    string  // the field of stats that counts its bytes
	met      Fate    // the fate of a job that was left out because a job in this state has its ID
	replaced Fate    // the fate of a job that replaced a job in this state
}

// terminalStates are all these states. Completed jobs are kept if the queue's settings say so.
var terminalStates = []terminalState{
	{outcome: Dead, key: "DEAD", bytes: "dead_bytes", met: MetDead, replaced: ReplacedDead},
	{outcome: Cancelled, key: "CANCELLED", bytes: "cancelled_bytes", met: MetCancelled, replaced: ReplacedCancelled},
	{outcome: Completed, key: "COMPLETED", bytes: "completed_bytes", met: MetCompleted, replaced: ReplacedCompleted},
}
