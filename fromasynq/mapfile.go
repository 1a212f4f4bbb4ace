package fromasynq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/signalbox-go/signalbox"
)

// A mapFile is a file of ReadMap.
type mapFile struct {
	Queues map[string]string   `json:"queues"`
	Kinds  map[string]*mapKind `json:"kinds"`
	Others string              `json:"others"`
}

type mapKind struct {
	Kind     string            `json:"kind"`
	Queue    string            `json:"queue"`
	Priority string            `json:"priority"`
	Encoding string            `json:"encoding"`
	Rename   map[string]string `json:"rename"`
	Stay     bool              `json:"stay"`
}

// maxMapFile is the most bytes of a file of ReadMap.
const maxMapFile = 1 << 20

// ReadMap reads a [Config.Map] from a JSON object with these fields, each of which may be left out:
//
//	"queues"  an object: the name that a queue has here, by that in asynq
//	"kinds"   an object with one of these for each type of tasks:
//	            "kind"      its name here
//	            "queue"     the queue here; it comes before "queues"
//	            "priority"  "high", "normal" or "low"
//	            "encoding"  the name of the codec of its payload, if that isn't JSON
//	            "rename"    an object: the new names of fields of the payload, by the old ones
//	            "stay"      true leaves its tasks in asynq
//	"others"  "stay" leaves the tasks of all types that aren't listed
//
// A field that isn't listed is an error, which wraps [signalbox.ErrInvalid].
func ReadMap(r io.Reader) (func(t *Task, job *Job) error, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("fromasynq: %w map: %w", signalbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	text, err := io.ReadAll(io.LimitReader(r, maxMapFile+1))
	if err != nil {
		return nil, fmt.Errorf("fromasynq: %w", err)
	}
	if len(text) > maxMapFile {
		return nil, wrong("it has more than %d bytes", maxMapFile)
	}
	var f mapFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, wrong("%w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, wrong("more follows behind the object")
	}
	if f.Others != "" && f.Others != "stay" {
		return nil, wrong(`others: want "stay", or leave it out`)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Kinds)) {
		k := f.Kinds[name]
		if k == nil {
			return nil, wrong("kinds: want an object for %.60q", name)
		}
		if _, ok := priorities[k.Priority]; !ok {
			return nil, wrong(`kinds: priority of %.60q: want "high", "normal" or "low"`, name)
		}
	}
	return f.apply, nil
}

var priorities = map[string]signalbox.Priority{"": signalbox.PriorityNormal, "normal": signalbox.PriorityNormal, "high": signalbox.PriorityHigh, "low": signalbox.PriorityLow}

// apply changes the job as the file says.
func (f *mapFile) apply(t *Task, job *Job) error {
	if to := f.Queues[t.Queue]; to != "" {
		job.Queue = to
	}
	k := f.Kinds[t.Type]
	switch {
	case k == nil && f.Others == "stay", k != nil && k.Stay:
		return ErrStay
	case k == nil:
		return nil
	}
	if k.Kind != "" {
		job.Kind = k.Kind
	}
	if k.Queue != "" {
		job.Queue = k.Queue
	}
	job.Priority, job.Encoding = priorities[k.Priority], k.Encoding
	if len(k.Rename) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(job.Payload, &fields) != nil || fields == nil {
		return reason("its payload isn't a JSON object: no field can be renamed")
	}
	renamed := make(map[string]json.RawMessage, len(fields))
	for name, value := range fields {
		to, is := k.Rename[name]
		if !is {
			to = name
		}
		if _, twice := renamed[to]; twice {
			return reason("two fields of its payload would have one name")
		}
		renamed[to] = value
	}
	var err error
	job.Payload, err = json.Marshal(renamed)
	return err
}
