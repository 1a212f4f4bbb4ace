package facts

import (
	"strings"

	"github.com/signalbox-go/signalbox"
)

// EndedStates are the states of jobs that have ended and are kept. The same list is in terminal_states, in scripts/chapters/places.lua. Completed jobs are kept if the queue's settings say so.
var EndedStates = []signalbox.State{signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted}

// EndedKey is the scripts' name for the key with the IDs of the jobs of a state.
func EndedKey(state signalbox.State) string { return strings.ToUpper(string(state)) }

// EndedBytes is the field of stats that counts the bytes of the jobs of a state.
func EndedBytes(state signalbox.State) string { return string(state) + "_bytes" }
