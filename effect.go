package signalbox

import (
	"encoding/binary"
	"encoding/hex"
)

// EffectKey returns the key under which to record the effect of the job, so that the effect happens once. Insert the
// key in the transaction of the effect, into a column with a unique index. If the key is there already, an earlier
// delivery had the effect: roll back. If the effect is a call of an API, pass the key as the idempotency key.
//
// The key is the same in every delivery of a job, after retries and after crashes. A later job with the same ID has
// another key. The copy of a dead job has the key of that job: see CopyDead of worker.Queue. The key stays the same wherever a job is moved, so a [Codec] can bind a
// payload to it and to the kind. Then the payload of one job can't be put into another one. The key is one of
//
//   - the key that the producer gave with scheduler.EffectKey, as it is
//   - {queue}id, for an ID that the producer drew at random
//   - {queue}id{incarnation}, for an ID that the caller chose: 16 hexadecimal digits, drawn once for each Enqueue
//   - {queue}entry{@time}, for the tick of a cron entry: µs since the Unix epoch
//
// In a namespace other than the default one, {namespace:queue} replaces {queue}.
//
// The key has 1 to 622 bytes of printable ASCII without spaces. Keys that Signalbox makes begin with a brace. Keys of
// callers have no braces.
func (j *Job) EffectKey() string {
	if j.Effect != "" {
		return j.Effect
	}
	key := make([]byte, 0, len(j.Namespace)+len(j.Queue)+len(j.ID)+21)
	key = append(key, '{')
	if j.Namespace != "" {
		key = append(key, j.Namespace...)
		key = append(key, ':')
	}
	key = append(key, j.Queue...)
	key = append(key, '}')
	key = append(key, j.ID...)
	if j.Incarnation != 0 {
		key = append(key, '{')
		key = hex.AppendEncode(key, binary.BigEndian.AppendUint64(nil, j.Incarnation))
		key = append(key, '}')
	}
	return string(key)
}
