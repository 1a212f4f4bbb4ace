package store

import (
	"fmt"

	"github.com/signalbox-go/signalbox"
)

// MaxName is the longest queue name, and the longest ID, in bytes.
const MaxName = 200

// ValidateQueue returns an error that wraps signalbox.ErrInvalid unless name can name a queue.
func ValidateQueue(name string) error { return validateName("queue", name) }

// ValidateID returns an error that wraps signalbox.ErrInvalid unless id can be a job's ID.
func ValidateID(id string) error { return validateName("job ID", id) }

// ValidateKind returns an error that wraps signalbox.ErrInvalid unless kind can be a job's kind.
func ValidateKind(kind string) error { return validateName("kind", kind) }

// ValidateEntry returns an error that wraps signalbox.ErrInvalid unless name can name a cron entry.
func ValidateEntry(name string) error { return validateName("entry name", name) }

// A name is printable ASCII without space and braces: it stands in keys, logs and hash tags.
func validateName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w %s: it is empty", signalbox.ErrInvalid, what)
	}
	if len(name) > MaxName {
		return fmt.Errorf("%w %s: %d bytes, at most %d are allowed", signalbox.ErrInvalid, what, len(name), MaxName)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return fmt.Errorf("%w %s %q: byte %d is %q; printable ASCII without spaces and braces is allowed",
				signalbox.ErrInvalid, what, name, i, c)
		}
	}
	return nil
}

// keys are the keys of one queue. They share a hash tag, so that all of them are in one
// slot of a Redis Cluster.
type keys struct {
	prefix string

	jobs, due, wake, stats, cron     string
	sessions, fence, dead, cancelled string
	readyHigh, readyNormal, readyLow string
	readySuspect, spans, reporter    string
}

func newKeys(queue string) keys {
	p := "signalbox:{" + queue + "}:"
	return keys{
		prefix:       p,
		jobs:         p + "jobs",          // hash: id -> record
		due:          p + "due",           // zset: class and id, by time in us
		wake:         p + "wake",          // list: at most a few wake-up tokens
		stats:        p + "stats",         // hash: counters
		cron:         p + "cron",          // hash: entry -> last tick enqueued in us
		sessions:     p + "sessions",      // zset: session, by expiry in us
		fence:        p + "fence",         // string: last token granted
		dead:         p + "dead",          // zset: id, by time in us
		cancelled:    p + "cancelled",     // zset: id, by time in us
		readyHigh:    p + "ready:high",    // list: ids, first in first out
		readyNormal:  p + "ready:normal",  // list
		readyLow:     p + "ready:low",     // list
		readySuspect: p + "ready:suspect", // list: ids of jobs that crashed twice
		reporter:     p + "reporter",      // string: client that reports the depths
		spans:        p + "spans",         // hash: id -> token and span context of the last attempt that is known
	}
}

func (k keys) inflight(session string) string { return k.prefix + "inflight:" + session } // hash: id -> token
func (k keys) lane(id string) string          { return k.prefix + "lane:" + id }          // string: last call and its outcome
func (k keys) bell(id string) string          { return k.prefix + "bell:" + id }          // list: ends one worker's blocking pop

// ready are the lists of ready jobs by class: what the scripts call the first byte of a due
// member, and the byte in the record.
func (k keys) ready() map[string]string {
	return map[string]string{"0": k.readyHigh, "1": k.readyNormal, "2": k.readyLow, "s": k.readySuspect}
}

// fixed are the keys of a queue but those of sessions, lanes and bells.
func (k keys) fixed() map[string]bool {
	return map[string]bool{
		k.jobs: true, k.due: true, k.wake: true, k.stats: true, k.cron: true, k.sessions: true,
		k.fence: true, k.dead: true, k.cancelled: true,
		k.readyHigh: true, k.readyNormal: true, k.readyLow: true, k.readySuspect: true, k.spans: true, k.reporter: true,
	}
}
