package store

// A terminalState is a state in which a job has ended and is kept. scripts/fragments/terminal_states.lua has the same.
type terminalState struct {
	outcome  Outcome // its name, too
	key      string  // the name that scripts give to the set of its ids
	bytes    string  // the counter of its bytes in stats
	met      Fate    // of a job that was left out, since its ID is that of such a job
	replaced Fate    // of one that took the place of such a job
}

// terminalStates are all of them. A completed job is not kept.
var terminalStates = []terminalState{
	{outcome: Dead, key: "DEAD", bytes: "dead_bytes", met: MetDead, replaced: ReplacedDead},
	{outcome: Cancelled, key: "CANCELLED", bytes: "cancelled_bytes", met: MetCancelled, replaced: ReplacedCancelled},
}

// terminal reports whether a state is one of terminalStates.
func terminal(state string) bool {
	for _, s := range terminalStates {
		if state == string(s.outcome) {
			return true
		}
	}
	return false
}
