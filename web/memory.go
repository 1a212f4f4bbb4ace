package web

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// memoryTTL is how long the memory of a queue counts. It is read by a command for each key.
const memoryTTL = 15 * time.Second

// memory says how much of Redis' memory a queue takes.
func (v *visit) memory(queue string) fact {
	f := fact{Name: "Memory in Redis"}
	m, err := v.readMemory(queue)
	if err != nil {
		f.Value = memoryUnknown(v, err)
		return f
	}
	var parts []string
	for _, part := range []struct {
		what  string
		bytes int64
	}{{"records of jobs", m.Records}, {"where they are", m.Places}, {"groups", m.Groups}, {"unique keys", m.Unique}, {"batches", m.Batches}, {"statistics", m.Statistics}, {"other", m.Other}} {
		if part.bytes > 0 {
			parts = append(parts, part.what+" "+size(part.bytes))
		}
	}
	f.Value = "about " + size(m.Total()) + ": " + cmp.Or(strings.Join(parts, ", "), "nothing")
	return f
}

// memoryUnknown says why the memory of a queue isn't known.
func memoryUnknown(v *visit, err error) string {
	if errors.Is(err, inspect.ErrNotKnown) {
		return "not known: Redis doesn't say, or its user may not call MEMORY USAGE"
	}
	return "could not be read. " + v.reason(err)
}

// readMemory reads how much memory a queue takes.
func (v *visit) readMemory(queue string) (inspect.Memory, error) {
	return read(v.Context(), v.looks, "memory\x00"+queue, memoryTTL, func(ctx context.Context) (inspect.Memory, error) {
		return v.ins.Memory(ctx, queue)
	})
}
