package signalbox

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// MaxProgressNote is the longest note of [Progress], in bytes. The rest of a longer one is cut off.
const MaxProgressNote = 100

// Progress says how far the job is that a handler works on: done units of work of total, and a note for people, such as "rows". Package inspect, signalbox job
// show, worker ls and top show it while the job runs. A total of 0 means that it isn't known. Numbers below 0 count as 0.
//
// Progress never blocks, and can be called for each unit. The worker keeps the last call of each job, and writes those of all its jobs to Redis about once a
// second, in one command for each of its sessions, of which it has one with each queue. It does so for up to 1,000 jobs of a session, those that run for longest. So what is shown is up to a
// second old, and is for people: it may be lost, and the next delivery of the job begins without it.
//
// ctx is the handler's context, or one that was made from it, or the one of a job in a call of worker.HandleMany. For any other context, and once the delivery has ended, Progress does
// nothing.
func Progress[N int | int64](ctx context.Context, done, total N, note string) {
	if d, ok := ctx.Value(handlerctx.ReporterKey{}).(handlerctx.Reporter); ok {
		d.Report(handlerctx.Report{Done: max(int64(done), 0), Total: max(int64(total), 0), Note: cutNote(note)})
	}
}

// cutNote returns a note in valid UTF-8, and at most as long as is allowed.
func cutNote(note string) string {
	if len(note) > MaxProgressNote {
		end := MaxProgressNote
		for end > 0 && !utf8.RuneStart(note[end]) {
			end--
		}
		note = note[:end]
	}
	return strings.ToValidUTF8(note, "?")
}
