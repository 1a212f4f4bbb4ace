package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// marshal returns the kind of args, their defaults, and their JSON, if there is no codec. The error wraps
// signalbox.ErrInvalid. Its text contains nothing of the payload.
func marshal(args signalbox.Args, codec signalbox.Codec) (k kindDefaults, kind string, payload []byte, err error) {
	if args == nil {
		return k, "", nil, fmt.Errorf("%w args: nil", signalbox.ErrInvalid)
	}
	defer func() {
		if v := recover(); v != nil {
			err = &encodeError{fmt.Sprintf("args: %T panicked", args), panicked(v)}
		}
	}()
	kind = args.Kind()
	if err := layout.ValidateKind(kind); err != nil {
		return k, "", nil, err
	}
	if v, ok := args.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return k, "", nil, fmt.Errorf("%w args of kind %s: %w", signalbox.ErrInvalid, kind, err)
		}
	}
	k, err = defaultsOf(kind, args)
	if err != nil {
		return k, "", nil, err
	}
	if codec != nil {
		return k, kind, nil, nil
	}
	payload, err = json.Marshal(args)
	if err != nil {
		return k, "", nil, &encodeError{"payload of kind " + kind + ": " + unencodable(err), err}
	}
	return k, kind, payload, nil
}

// encodeJSON returns the JSON of args that a codec encodes. The error wraps signalbox.ErrInvalid.
func encodeJSON(kind string, args signalbox.Args) (payload []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &encodeError{fmt.Sprintf("args: %T panicked", args), panicked(v)}
		}
	}()
	payload, err = json.Marshal(args)
	if err != nil {
		return nil, &encodeError{"UniqueBy of kind " + kind + ": " + unencodable(err), err}
	}
	return payload, nil
}

// encodeError keeps the encoder's error for errors.As. Its text leaves that error out, since it can quote the
// payload.
type encodeError struct {
	text string
	err  error
}

func (e *encodeError) Error() string   { return signalbox.ErrInvalid.Error() + " " + e.text }
func (e *encodeError) Unwrap() []error { return []error{signalbox.ErrInvalid, e.err} }

func unencodable(err error) string {
	var (
		typ   *json.UnsupportedTypeError
		value *json.UnsupportedValueError
		own   *json.MarshalerError
	)
	switch {
	case errors.As(err, &own): // first, since it wraps the error of the args
		return fmt.Sprintf("the marshaler of %v failed", own.Type)
	case errors.As(err, &typ):
		return fmt.Sprintf("JSON can't hold a %v", typ.Type)
	case errors.As(err, &value):
		return "JSON can't hold one of the values: NaN, an infinity or a cycle"
	}
	return fmt.Sprintf("it can't be encoded as JSON (%T)", err)
}

// panicked returns the error of a panic. An error of the runtime, such as for a nil pointer, is kept. For any
// other value it names only the type.
func panicked(v any) error {
	if err, ok := v.(runtime.Error); ok {
		return err
	}
	return fmt.Errorf("panic with a %T", v)
}

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
