// Package layout says where the data of a queue are: what may be a name, the keys, and the number of the layout. It knows no script and no record.
package layout

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

// ValidateFlow returns an error that wraps signalbox.ErrInvalid unless name can name a flow.
func ValidateFlow(name string) error { return validateName("flow ID", name) }

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

// Keys are the keys of one queue. They share a hash tag, so that all of them are in one
// slot of a Redis Cluster: all but the registry, which is the namespace's.
type Keys struct {
	Prefix   string
	Registry string // of the namespace; in another slot than the queue

	Jobs, Due, Idle, Stats           string
	History, Cron, Entries           string
	Sessions, Fence, Dead, Cancelled string
	Completed                        string
	ReadyHigh, ReadyNormal, ReadyLow string
	ReadySuspect, Notes, Reporter    string
	Cancels                          string
	Lined, Turns, Groups             string
	Running, Limits, Rates, Parked   string
	Expires, Settings                string
	Unique, Windows                  string
	Outboxes, Receipts               string
	Flows, Awaiting, FlowNotes       string
	FlowTimes, Added                 string

	Named map[string]string // the queue's own keys by the names that the scripts give them
}

// Reads are the commands by which check_keys reads the keys, which have these names in the scripts. They cost little, and fail if the key is of
// another type.
var Reads = map[string]string{
	"JOBS": "HLEN", "STATS": "HLEN", "HISTORY": "HLEN", "CRON": "HLEN", "ENTRIES": "HLEN", "NOTES": "HLEN", "CANCELS": "HLEN", "SETTINGS": "HLEN",
	"FLOWS": "HLEN", "FLOWNOTES": "HLEN", "ADDED": "HLEN", "AWAITING": "ZCARD", "FLOWTIMES": "ZCARD",
	"GROUPS": "HLEN", "RUNNING": "HLEN", "LIMITS": "HLEN", "UNIQUE": "HLEN", "OUTBOXES": "HLEN", "INFLIGHT": "HLEN",
	"SESSIONS": "ZCARD", "DUE": "ZCARD", "IDLE": "ZCARD", "DEAD": "ZCARD", "CANCELLED": "ZCARD", "COMPLETED": "ZCARD", "LINED": "ZCARD", "TURNS": "ZCARD",
	"RATES": "ZCARD", "PARKED": "ZCARD", "WINDOWS": "ZCARD", "EXPIRES": "ZCARD", "RECEIPTS": "ZCARD",
	"HIGH": "LLEN", "NORMAL": "LLEN", "LOW": "LLEN", "SUSPECT": "LLEN",
	"FENCE": "GET", "REPORTER": "GET", "LANE": "GET",
}

func KeysOf(namespace, queue string) Keys {
	if namespace == "" {
		namespace = DefaultNamespace
	}
	p := "signalbox:{" + namespace + ":" + queue + "}:"
	k := Keys{
		Prefix:       p,
		Registry:     "signalbox:{" + namespace + ":}:queues", // set: the names of the namespace's queues
		Jobs:         p + "jobs",                              // hash: id -> record
		Due:          p + "due",                               // zset: class and id, by time in us
		Idle:         p + "idle",                              // zset: address of an idle session, by the time since when in us
		Stats:        p + "stats",                             // hash: counters
		History:      p + "history",                           // hash: what the counters were, by the minute and by the hour, and times
		Cron:         p + "cron",                              // hash: entry -> last tick enqueued in us
		Entries:      p + "entries",                           // hash: descriptions of cron entries
		Sessions:     p + "sessions",                          // zset: session, by expiry in us
		Fence:        p + "fence",                             // string: last token granted
		Dead:         p + "dead",                              // zset: id, by when it goes: see the chapter retention of the scripts
		Cancelled:    p + "cancelled",                         // zset: id, by when it goes: see the chapter retention of the scripts
		Completed:    p + "completed",                         // zset: id, by when it goes: see the chapter retention of the scripts
		ReadyHigh:    p + "ready:high",                        // list: ids, first in first out
		ReadyNormal:  p + "ready:normal",                      // list
		ReadyLow:     p + "ready:low",                         // list
		ReadySuspect: p + "ready:suspect",                     // list: ids of jobs that crashed twice
		Reporter:     p + "reporter",                          // string: client that reports the depths
		Settings:     p + "settings",                          // hash: what holds for all who use the queue
		Notes:        p + "notes",                             // hash: id -> token and span context of the last attempt that is known; "dead " and id -> when it died in us
		Cancels:      p + "cancels",                           // hash: id of a running job that is cancelled -> its mark
		Unique:       p + "unique",                            // hash: unique key -> scope, or the end of its window in us, and id
		Windows:      p + "windows",                           // zset: unique key, by the end of its window in us
	}
	k.Lined = p + "lined"         // zset, scores 0: class, group, place and id of jobs that wait in the line of a group
	k.Turns = p + "turns"         // zset: class and group of a line that may go on, by class and turn
	k.Groups = p + "groups"       // hash: group -> states of its lines, and how many jobs hold it
	k.Running = p + "running"     // hash: session -> how many jobs it runs, if the queue has a limit of those
	k.Limits = p + "limits"       // hash: group -> its limits, of those that have limits of their own; "h" and group -> by which job it is held back; "p" and group -> since when it is paused, and when the job is due that waits for its end, and its id; "d" and group -> when the job is due that holds it and waits for its rate, and its id
	k.Rates = p + "rates"         // zset: group, or "" for the queue, by the time when its next job would start if jobs came evenly, in us
	k.Parked = p + "parked"       // zset: class and group of a line that waits for the group's rate, by the time when it may go on in us
	k.Expires = p + "expires"     // zset: id of a job that hasn't started, by the time when it expires in us
	k.Outboxes = p + "outboxes"   // hash: ID of an outbox -> what its relays say of it, as JSON
	k.Receipts = p + "receipts"   // zset: name of a move, by the time in us when its copy was let go here, or its original deleted; with a '-' before it: or it wasn't
	k.Flows = p + "flows"         // hash: batch -> what is counted of it
	k.Awaiting = p + "awaiting"   // zset, scores 0: batch, "{", what is waited for and id of a job that waits for it; with "c" in place of that: of one that was cancelled since the batch failed, and waits again if it is repaired
	k.FlowNotes = p + "flownotes" // hash: batch, "{" -> since when (us) more jobs that wait for it are to be looked at; batch, "{x" -> how far the pass is that ends its members
	k.FlowTimes = p + "flowtimes" // zset: batch, by the time in us when it is to be looked at
	k.Added = p + "added"         // hash: id -> how many jobs this member has added to its batch, a space, batch
	k.Named = map[string]string{
		"FLOWS": k.Flows, "AWAITING": k.Awaiting, "FLOWNOTES": k.FlowNotes, "FLOWTIMES": k.FlowTimes, "ADDED": k.Added,
		"EXPIRES": k.Expires, "RECEIPTS": k.Receipts, "OUTBOXES": k.Outboxes,
		"RUNNING": k.Running, "LIMITS": k.Limits, "RATES": k.Rates, "PARKED": k.Parked,
		"LINED": k.Lined, "TURNS": k.Turns, "GROUPS": k.Groups,
		"JOBS": k.Jobs, "DUE": k.Due, "IDLE": k.Idle, "STATS": k.Stats, "HISTORY": k.History, "CRON": k.Cron, "ENTRIES": k.Entries,
		"SESSIONS": k.Sessions, "FENCE": k.Fence, "DEAD": k.Dead, "CANCELLED": k.Cancelled, "COMPLETED": k.Completed,
		"HIGH": k.ReadyHigh, "NORMAL": k.ReadyNormal, "LOW": k.ReadyLow, "SUSPECT": k.ReadySuspect,
		"NOTES": k.Notes, "CANCELS": k.Cancels, "REPORTER": k.Reporter, "SETTINGS": k.Settings,
		"UNIQUE": k.Unique, "WINDOWS": k.Windows,
	}
	return k
}

func (k Keys) Inflight(session string) string { return k.Prefix + "inflight:" + session } // hash: id -> token
func (k Keys) Stuck(session string) string    { return k.Prefix + "stuck:" + session }    // string: stuck handlers of a session, as JSON
func (k Keys) Progress(session string) string { return k.Prefix + "progress:" + session } // string: how far jobs of a session are, as JSON
func (k Keys) Lane(id string) string          { return k.Prefix + "lane:" + id }          // string: last call and its outcome
func (k Keys) Outbox(id string, shard int) string { // string: last batch of a shard of an outbox, and its outcome
	return fmt.Sprintf("%soutbox:%s:%d", k.Prefix, id, shard)
}

// Control is the channel of what concerns all workers of the queue; channel is that of one session, for wake-ups; end is that of the end of one job.
func (k Keys) Control() string               { return k.Prefix + "control" }
func (k Keys) Channel(session string) string { return k.Prefix + "session:" + session }
func (k Keys) End(id string) string          { return k.Jobs + ":" + id }

// Ready returns the lists of ready jobs by class: the first byte of a member of due, and a byte of the record.
func (k Keys) Ready() map[string]string {
	return map[string]string{"0": k.ReadyHigh, "1": k.ReadyNormal, "2": k.ReadyLow, "s": k.ReadySuspect}
}

// Fixed returns the keys of a queue, without those of sessions and lanes.
func (k Keys) Fixed() map[string]bool {
	fixed := make(map[string]bool, len(k.Named))
	for _, key := range k.Named {
		fixed[key] = true
	}
	return fixed
}
