package worker

import "context"

// lookForProducers says, once, that nobody has ever put a job into the queue: its name may be misspelt.
func (q *queue) lookForProducers(ctx context.Context) {
	unused, err := q.own.Unused(ctx)
	if err != nil {
		return // the next sweep looks
	}
	q.looked = true
	if unused {
		q.log.Info("signalbox: nobody has ever put a job into this queue; is the queue's name right?")
	}
}
