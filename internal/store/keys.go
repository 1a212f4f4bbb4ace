package store

import (
	"fmt"
	"strings"

	"github.com/signalbox-go/signalbox"
)

// MaxName is the longest queue name, and the longest ID, in bytes.
const MaxName = 200

// DefaultNamespace is the namespace of whoever names none.
const DefaultNamespace = "default"

// ValidateNamespace returns an error that wraps signalbox.ErrInvalid unless name can name a namespace. "" is
// DefaultNamespace.
func ValidateNamespace(name string) error {
	if name == "" {
		return nil
	}
	if err := validateName("namespace", name); err != nil {
		return err
	}
	if i := strings.IndexByte(name, ':'); i >= 0 {
		return fmt.Errorf("%w namespace %q: byte %d is a colon, which ends a namespace in the names of keys; use another character", signalbox.ErrInvalid, name, i)
	}
	return nil
}

// ValidateQueue returns an error that wraps signalbox.ErrInvalid unless name can name a queue.
func ValidateQueue(name string) error { return validateName("queue", name) }

// ValidateID returns an error that wraps signalbox.ErrInvalid unless id can be a job's ID.
func ValidateID(id string) error { return validateName("job ID", id) }

// ValidateKind returns an error that wraps signalbox.ErrInvalid unless kind can be a job's kind.
func ValidateKind(kind string) error { return validateName("kind", kind) }

// ValidateCodec returns an error that wraps signalbox.ErrInvalid unless codec has an encoding that can stand in a record.
func ValidateCodec(codec signalbox.Codec) error {
	if codec == nil {
		return fmt.Errorf("%w codec: it is nil", signalbox.ErrInvalid)
	}
	name := codec.Encoding()
	if _, plain := codec.(signalbox.JSON); name == (signalbox.JSON{}).Encoding() && !plain {
		return fmt.Errorf("%w encoding: json is that of signalbox.JSON; %T needs another name", signalbox.ErrInvalid, codec)
	}
	return validateName("encoding", name)
}

// ValidateEntry returns an error that wraps signalbox.ErrInvalid unless name can name a cron entry.
func ValidateEntry(name string) error { return validateName("entry name", name) }

// ValidateEffectKey returns an error that wraps signalbox.ErrInvalid unless key can be a caller's effect key.
func ValidateEffectKey(key string) error { return validateName("effect key", key) }

// ValidateGroup returns an error that wraps signalbox.ErrInvalid unless key can be that of a group.
func ValidateGroup(key string) error { return validateName("group", key) }

// ValidateUnique returns an error that wraps signalbox.ErrInvalid unless key can be a caller's unique key.
func ValidateUnique(key string) error { return validateName("unique key", key) }

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
// slot of a Redis Cluster: all but the registry, which is the namespace's.
type keys struct {
	prefix   string
	registry string // of the namespace; in another slot than the queue

	jobs, due, idle, stats           string
	history, cron, entries           string
	sessions, fence, dead, cancelled string
	completed                        string
	readyHigh, readyNormal, readyLow string
	readySuspect, notes, reporter    string
	cancels                          string
	lined, turns, groups             string
	running, limits, rates, parked   string
	expires, settings                string
	unique, windows                  string
	outboxes, receipts               string

	named map[string]string // the queue's own keys by the names that the scripts give them
}

// keyReads are the commands by which check_keys reads the keys, which have these names in the scripts. They cost little, and fail if the key is of
// another type.
var keyReads = map[string]string{
	"JOBS": "HLEN", "STATS": "HLEN", "HISTORY": "HLEN", "CRON": "HLEN", "ENTRIES": "HLEN", "NOTES": "HLEN", "CANCELS": "HLEN", "SETTINGS": "HLEN",
	"GROUPS": "HLEN", "RUNNING": "HLEN", "LIMITS": "HLEN", "UNIQUE": "HLEN", "OUTBOXES": "HLEN", "INFLIGHT": "HLEN",
	"SESSIONS": "ZCARD", "DUE": "ZCARD", "IDLE": "ZCARD", "DEAD": "ZCARD", "CANCELLED": "ZCARD", "COMPLETED": "ZCARD", "LINED": "ZCARD", "TURNS": "ZCARD",
	"RATES": "ZCARD", "PARKED": "ZCARD", "WINDOWS": "ZCARD", "EXPIRES": "ZCARD", "RECEIPTS": "ZCARD",
	"HIGH": "LLEN", "NORMAL": "LLEN", "LOW": "LLEN", "SUSPECT": "LLEN",
	"FENCE": "GET", "REPORTER": "GET", "LANE": "GET",
}

func newKeys(namespace, queue string) keys {
	if namespace == "" {
		namespace = DefaultNamespace
	}
	p := "signalbox:{" + namespace + ":" + queue + "}:"
	k := keys{
		prefix:       p,
		registry:     "signalbox:{" + namespace + ":}:queues", // set: the names of the namespace's queues
		jobs:         p + "jobs",                              // hash: id -> record
		due:          p + "due",                               // zset: class and id, by time in us
		idle:         p + "idle",                              // zset: address of an idle session, by the time since when in us
		stats:        p + "stats",                             // hash: counters
		history:      p + "history",                           // hash: what the counters were, by the minute and by the hour, and times
		cron:         p + "cron",                              // hash: entry -> last tick enqueued in us
		entries:      p + "entries",                           // hash: descriptions of cron entries
		sessions:     p + "sessions",                          // zset: session, by expiry in us
		fence:        p + "fence",                             // string: last token granted
		dead:         p + "dead",                              // zset: id, by time in us
		cancelled:    p + "cancelled",                         // zset: id, by time in us
		completed:    p + "completed",                         // zset: id, by time in us
		readyHigh:    p + "ready:high",                        // list: ids, first in first out
		readyNormal:  p + "ready:normal",                      // list
		readyLow:     p + "ready:low",                         // list
		readySuspect: p + "ready:suspect",                     // list: ids of jobs that crashed twice
		reporter:     p + "reporter",                          // string: client that reports the depths
		settings:     p + "settings",                          // hash: what holds for all who use the queue
		notes:        p + "notes",                             // hash: id -> token and span context of the last attempt that is known; "dead " and id -> when it died in us
		cancels:      p + "cancels",                           // hash: id of a running job that is cancelled -> its mark
		unique:       p + "unique",                            // hash: unique key -> scope, or the end of its window in us, and id
		windows:      p + "windows",                           // zset: unique key, by the end of its window in us
	}
	k.lined = p + "lined"       // zset, scores 0: class, group, place and id of jobs that wait in the line of a group
	k.turns = p + "turns"       // zset: class and group of a line that may go on, by class and turn
	k.groups = p + "groups"     // hash: group -> states of its lines, and how many jobs hold it
	k.running = p + "running"   // hash: session -> how many jobs it runs, if the queue has a limit of those
	k.limits = p + "limits"     // hash: group -> its limits, of those that have limits of their own; "h" and group -> by which job it is held back; "p" and group -> since when it is paused, and when the job is due that waits for its end, and its id; "d" and group -> when the job is due that holds it and waits for its rate, and its id
	k.rates = p + "rates"       // zset: group, or "" for the queue, by the time when its next job would start if jobs came evenly, in us
	k.parked = p + "parked"     // zset: class and group of a line that waits for the group's rate, by the time when it may go on in us
	k.expires = p + "expires"   // zset: id of a job that hasn't started, by the time when it expires in us
	k.outboxes = p + "outboxes" // hash: ID of an outbox -> what its relays say of it, as JSON
	k.receipts = p + "receipts" // zset: name of a move, by the time in us when its copy was let go here, or its original deleted; with a '-' before it: or it wasn't
	k.named = map[string]string{
		"EXPIRES": k.expires, "RECEIPTS": k.receipts, "OUTBOXES": k.outboxes,
		"RUNNING": k.running, "LIMITS": k.limits, "RATES": k.rates, "PARKED": k.parked,
		"LINED": k.lined, "TURNS": k.turns, "GROUPS": k.groups,
		"JOBS": k.jobs, "DUE": k.due, "IDLE": k.idle, "STATS": k.stats, "HISTORY": k.history, "CRON": k.cron, "ENTRIES": k.entries,
		"SESSIONS": k.sessions, "FENCE": k.fence, "DEAD": k.dead, "CANCELLED": k.cancelled, "COMPLETED": k.completed,
		"HIGH": k.readyHigh, "NORMAL": k.readyNormal, "LOW": k.readyLow, "SUSPECT": k.readySuspect,
		"NOTES": k.notes, "CANCELS": k.cancels, "REPORTER": k.reporter, "SETTINGS": k.settings,
		"UNIQUE": k.unique, "WINDOWS": k.windows,
	}
	return k
}

func (k keys) inflight(session string) string { return k.prefix + "inflight:" + session } // hash: id -> token
func (k keys) stuck(session string) string    { return k.prefix + "stuck:" + session }    // string: stuck handlers of a session, as JSON
func (k keys) lane(id string) string          { return k.prefix + "lane:" + id }          // string: last call and its outcome
func (k keys) outbox(id string, shard int) string { // string: last batch of a shard of an outbox, and its outcome
	return fmt.Sprintf("%soutbox:%s:%d", k.prefix, id, shard)
}

// control is the channel of what concerns all workers of the queue; channel is that of one session, for wake-ups.
func (k keys) control() string               { return k.prefix + "control" }
func (k keys) channel(session string) string { return k.prefix + "session:" + session }

// ready returns the lists of ready jobs by class: the first byte of a member of due, and a byte of the record.
func (k keys) ready() map[string]string {
	return map[string]string{"0": k.readyHigh, "1": k.readyNormal, "2": k.readyLow, "s": k.readySuspect}
}

// fixed returns the keys of a queue, without those of sessions and lanes.
func (k keys) fixed() map[string]bool {
	fixed := make(map[string]bool, len(k.named))
	for _, key := range k.named {
		fixed[key] = true
	}
	return fixed
}
