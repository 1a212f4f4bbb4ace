package signalbox

import (
	"encoding/json"
	"errors"
	"time"
)

// Args are the typed arguments of a job. They are encoded as JSON.
//
// Args may have a method Validate() error. It is called before a job is enqueued, so that the producer learns of a
// mistake at once. It is called again before the handler, because other programs and older releases may have enqueued
// the job.
//
// Args may have a method Defaults() [Defaults]. Then they are a [Defaulter].
type Args interface {
	// Kind names the type of work, such as "email.welcome". It must return a constant of 1 to 200 bytes:
	// it is called on a zero value when a handler is registered.
	Kind() string
}

// Defaults say how jobs of a kind are enqueued when the call doesn't say it. They belong to the type of the
// arguments: see [Defaulter]. A field with its zero value changes nothing.
type Defaults struct {
	// Queue is the queue: 1 to 200 bytes of printable ASCII without spaces and braces. "" is [DefaultQueue].
	Queue string
	// Priority is the priority within the queue. The zero value is [PriorityNormal].
	Priority Priority
	// MaxAttempts is how often the job is tried before it is dead: 1 to 1,000,000. 0 is [DefaultMaxAttempts].
	MaxAttempts int
	// Timeout bounds each attempt, with a resolution of 1 µs. 0 is no bound.
	Timeout time.Duration
	// Retain is how long a job is kept after it has ended, as for scheduler.Retain. [RetainNone] keeps none. 0 leaves it to the queue.
	Retain time.Duration
	// Group is the key of a group of all jobs of the kind, as for scheduler.Group, and Serial that of a serial one, as for scheduler.Serial: 1 to 200
	// bytes of printable ASCII without spaces and braces. "" is none. One of them can be set. With a group of its own a kind can have limits of its own:
	// see LimitsOf of a worker's Queue.
	Group, Serial string
	// YieldOnRetry lets the next job of a serial group run while this one waits for its retry, as scheduler.YieldOnRetry does.
	YieldOnRetry bool
	// ExpireAfter is how long after it is due a job expires if it hasn't started, as for scheduler.ExpireAfter. 0 is no bound.
	ExpireAfter time.Duration
	// TraceMode says how the deliveries are connected with the span that enqueues the job. The zero value is
	// [TraceAuto].
	TraceMode TraceMode
}

// A Defaulter is Args with defaults of its own. They can depend on the arguments. For a cron entry, Defaults is
// called once, when the entry is registered.
//
// Give Defaults the same receiver as Kind: arguments that are enqueued as a value don't have the methods of
// their pointer.
type Defaulter interface {
	Args
	Defaults() Defaults
}

// A Codec encodes the arguments of jobs in place of JSON: as protocol buffers, compressed, encrypted. scheduler.Config.Codec
// is the one that a scheduler encodes with. worker.Config.Codecs are those that a worker can decode, beside JSON. A job's record names the
// codec. A worker that hasn't that codec puts the job back, as it does with a job of an unknown kind: no attempt is used. So give a codec
// to all workers before a scheduler uses it.
//
// A Codec is safe for concurrent use. The text of its errors goes into logs and records: it must not quote arguments.
type Codec interface {
	// Encoding is the name of what Encode makes: 1 to 200 bytes of printable ASCII without spaces and braces. "json" is JSON's. A codec
	// that makes something else later needs another name.
	Encoding() string
	// Encode returns the payload of the job with these arguments. job has all but Payload and times. Encode must not change it.
	Encode(job *Job, args any) ([]byte, error)
	// Decode decodes job.Payload, or what another codec has made of it, into args, which is a pointer. If it can't do that because it lacks a
	// key, it returns an error that wraps [ErrUnknownEncoding]: then the job is put back, too. Any other error refuses the payload,
	// as with JSON that doesn't fit: see [PayloadError].
	Decode(job *Job, payload []byte, args any) error
}

// ErrUnknownEncoding says that a payload can't be decoded here, and may be elsewhere: no codec has the name of its encoding, or the codec
// lacks a key. The job is put back, and no attempt is used.
var ErrUnknownEncoding = errors.New("unknown encoding of the payload")

// JSON is the default codec, for codecs that compress or encrypt what it makes.
type JSON struct{}

// Encoding returns "json".
func (JSON) Encoding() string { return "json" }

// Encode returns args as [json.Marshal] does.
func (JSON) Encode(_ *Job, args any) ([]byte, error) { return json.Marshal(args) }

// Decode decodes as [json.Unmarshal] does.
func (JSON) Decode(_ *Job, payload []byte, args any) error { return json.Unmarshal(payload, args) }
