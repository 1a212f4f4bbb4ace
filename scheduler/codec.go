package scheduler

import (
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// pack makes a job's record. That is the last step of every enqueue, after the options are resolved and the ID is chosen: a codec may bind
// the payload to the job. Without a codec, the job has its payload already. For a cron entry, this step is made for each tick.
func (s *Scheduler) pack(job *signalbox.Job, args signalbox.Args, when store.When) (store.Item, error) {
	if s.codec != nil {
		if err := s.encode(job, args); err != nil {
			return store.Item{}, err
		}
	}
	return store.NewItem(job, when)
}

// item makes the record of a job, and says in it what the options say about other jobs. For UniqueBy, the arguments count before the codec has
// made something else of them: one that encrypts makes something new each time.
func (s *Scheduler) item(job *signalbox.Job, args signalbox.Args, o *options) (store.Item, error) {
	if !o.isUnique() {
		item, err := s.pack(job, args, o.when)
		if err == nil && o.cautious {
			item.IfAbsent()
		}
		return item, err
	}
	unique, err := o.uniqueOf(job.Kind, args, job.Payload)
	if err != nil {
		return store.Item{}, err
	}
	if o.replace && s.codec != nil && job.Effect == "" {
		// The payload may become that of another job. A codec may have bound it to this one's key.
		s.bind(job)
		job.Effect = job.EffectKey()
	}
	item, err := s.pack(job, args, o.when)
	if err != nil {
		return item, err
	}
	item.Unique(unique)
	if o.replace {
		item.Update(o.most)
	}
	if o.cautious {
		item.IfAbsent()
	}
	return item, nil
}

// bind sets the fields that a codec may bind a payload to, beside those that a record has.
func (s *Scheduler) bind(job *signalbox.Job) {
	if job.Namespace = s.namespace; job.Namespace == layout.DefaultNamespace {
		job.Namespace = ""
	}
}

// encode sets the job's payload by the codec. The error wraps signalbox.ErrInvalid. The codec gets a copy of the job: so the jobs of those
// who have no codec can stay on the stack.
func (s *Scheduler) encode(job *signalbox.Job, args signalbox.Args) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &encodeError{fmt.Sprintf("args: the codec %T panicked", s.codec), panicked(v)}
		}
	}()
	s.bind(job)
	job.Encoding = s.codec.Encoding()
	own := *job
	job.Payload, err = s.codec.Encode(&own, args)
	if err != nil {
		return fmt.Errorf("%w payload of kind %s: encoding %s: %w", signalbox.ErrInvalid, job.Kind, job.Encoding, err)
	}
	return nil
}
