package scheduler

import (
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A codec changes the bytes of a job's args before they go to Redis. It gets the job's ID, so that it can bind the
// bytes to the job.
type codec func(kind, id string, payload []byte) ([]byte, error)

// pack makes a job's record. That is the last step of every enqueue, after the args are marshalled, the options
// resolved and the ID chosen. It calls the codec. For a cron entry, args are marshalled once. The other steps are made
// for each tick.
func (s *Scheduler) pack(job *signalbox.Job, when store.When) (store.Item, error) {
	if s.codec != nil {
		payload, err := s.codec(job.Kind, job.ID, job.Payload)
		if err != nil {
			return store.Item{}, fmt.Errorf("payload of kind %s: %w", job.Kind, err)
		}
		job.Payload = payload
	}
	return store.NewItem(job, when)
}
