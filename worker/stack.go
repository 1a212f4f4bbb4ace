package worker

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox/internal/store"
)

// maxGoroutines is from how many goroutines on no stacks are taken: all of them stop meanwhile, for some 10 µs each.
const maxGoroutines = 10_000

// maxStacks bounds the memory for the stacks of all goroutines, in bytes. Those that don't fit are left out.
const maxStacks = 64 << 20

// goroutineID returns the number of the goroutine that calls it, as it stands in a stack.
func goroutineID() uint64 {
	var buf [64]byte
	id, _ := idOf(buf[:runtime.Stack(buf[:], false)])
	return id
}

// idOf returns the number of the goroutine at the beginning of a stack.
func idOf(stack []byte) (uint64, bool) {
	rest, found := bytes.CutPrefix(stack, []byte("goroutine "))
	digits, _, _ := bytes.Cut(rest, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	return id, found && err == nil
}

// stacksOf returns the stacks of the deliveries' goroutines, by their numbers. It stops the program for some 10 µs for each goroutine that there is,
// and returns nothing if there are too many.
func stacksOf(deliveries []*delivery) map[uint64]string {
	if runtime.NumGoroutine() > maxGoroutines {
		return nil
	}
	wanted := make(map[uint64]bool, len(deliveries))
	for _, d := range deliveries {
		if id := d.slot.goroutine.Load(); id != 0 {
			wanted[id] = true
		}
	}
	stacks := make(map[uint64]string, len(wanted))
	for stack := range bytes.SplitSeq(allStacks(), []byte("\n\n")) {
		if id, ok := idOf(stack); ok && wanted[id] {
			stacks[id] = tidy(string(stack))
		}
	}
	return stacks
}

// allStacks returns the stacks of all goroutines.
func allStacks() []byte {
	for size := 1 << 20; ; size *= 4 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= maxStacks {
			return buf[:n]
		}
	}
}

// tidy returns the beginning of a stack, of whole lines. The arguments of calls are left out: a number among them may be a
// job's.
func tidy(stack string) string {
	var b strings.Builder
	first, rest, _ := strings.Cut(stack, "\n")
	b.WriteString(tidyFirst(first) + "\n")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "created by ") {
			if i := strings.LastIndex(line, "("); i >= 0 {
				line = line[:i] + "(...)\n"
			}
		}
		if b.Len()+len(line) > store.MaxStuckStack {
			break
		}
		b.WriteString(line)
	}
	return strings.TrimSpace(b.String())
}

// tidyFirst returns the number and the state of a goroutine from the first line of its stack: "goroutine 7 [select, 2 minutes]:". What
// else is there, such as labels for profilers, may have data of users.
func tidyFirst(line string) string {
	id, ok := idOf([]byte(line + " "))
	if !ok {
		return "goroutine"
	}
	line, _, _ = strings.Cut(line, " labels:")
	_, state, _ := strings.Cut(line, "[")
	state, _, _ = strings.Cut(state, "]")
	if state == "" {
		return fmt.Sprintf("goroutine %d:", id)
	}
	return fmt.Sprintf("goroutine %d [%s]:", id, state)
}

// labels are the contexts of profiler labels.
type labels struct {
	none  context.Context            // the labels that Run's context has
	kinds map[string]context.Context // and those of a kind
}

// newLabels returns the labels of a queue's handlers: "queue" and "kind".
func newLabels(base context.Context, queue string, kinds map[string]*kind) labels {
	l := labels{none: pprof.WithLabels(base, pprof.Labels()), kinds: make(map[string]context.Context, len(kinds))}
	for name := range kinds {
		l.kinds[name] = pprof.WithLabels(base, pprof.Labels("queue", queue, "kind", name))
	}
	return l
}
