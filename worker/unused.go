package worker

import "context"

// lookForProducers logs, once, if nobody has ever put a job into the queue: the queue's name may be misspelt.
func (k *keeper) lookForProducers(ctx context.Context) {
	unused, err := k.q.own.Presence().Unused(ctx)
	if err != nil {
		return // the next sweep tries again
	}
	k.looked = true
	if unused {
		k.q.log.Info("signalbox: nobody has ever put a job into this queue; is the queue's name right?")
	}
}
