package signalbox

import (
	"encoding/json"
	"errors"
)

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
