package wire

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Saved is what the handler of a job has saved for later deliveries.
type Saved struct {
	Checkpoint []byte // nil: none; it may be empty
	Steps      []Step // in the order in which they have finished
}

// A Step is one that has finished.
type Step struct {
	Name  string
	Value []byte
}

// The fields of what is saved.
const (
	savedCheckpoint protowire.Number = 1 // bytes
	savedStep       protowire.Number = 2 // repeated Step

	stepName  protowire.Number = 1 // string
	stepValue protowire.Number = 2 // bytes
)

// Append appends it, as the field of a record has it. Nothing is nothing.
func (s *Saved) Append(b []byte) []byte {
	if s.Checkpoint != nil {
		b = protowire.AppendTag(b, savedCheckpoint, protowire.BytesType)
		b = protowire.AppendBytes(b, s.Checkpoint)
	}
	for _, step := range s.Steps {
		var message []byte
		message = protowire.AppendTag(message, stepName, protowire.BytesType)
		message = protowire.AppendString(message, step.Name)
		message = protowire.AppendTag(message, stepValue, protowire.BytesType)
		message = protowire.AppendBytes(message, step.Value)
		b = protowire.AppendTag(b, savedStep, protowire.BytesType)
		b = protowire.AppendBytes(b, message)
	}
	return b
}

// DecodeSaved reads what Append has written. It copies what it keeps. The error wraps ErrCorrupt.
func DecodeSaved(b []byte) (s Saved, err error) {
	err = eachField(b, func(num protowire.Number, typ protowire.Type, _, value []byte) {
		switch {
		case typ != protowire.BytesType:
		case num == savedCheckpoint:
			s.Checkpoint = append([]byte{}, value...)
		case num == savedStep:
			var step Step
			if eachField(value, func(num protowire.Number, typ protowire.Type, _, value []byte) {
				switch {
				case typ != protowire.BytesType:
				case num == stepName:
					step.Name = string(value)
				case num == stepValue:
					step.Value = slices.Clone(value)
				}
			}) == nil {
				s.Steps = append(s.Steps, step)
			}
		}
	})
	if err != nil {
		return Saved{}, fmt.Errorf("what the job has saved: %w", err)
	}
	return s, nil
}

// WithSaved returns a copy of the record that has this saved, in place of what it had. The error wraps ErrCorrupt.
func WithSaved(record, saved []byte) ([]byte, error) {
	out, err := without(record, fieldSaved)
	if err != nil {
		return nil, err
	}
	return AppendSaved(out, saved), nil
}

// AppendSaved appends the field of what is saved to a record. Of several in a record the last one counts.
func AppendSaved(b, saved []byte) []byte {
	b = protowire.AppendTag(b, fieldSaved, protowire.BytesType)
	return protowire.AppendBytes(b, saved)
}
