package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// The fields of the hash entries: one of these, and an entry's name.
const (
	specField  = "spec:"  // kind, spec and time zone: a wire.Entry
	jobField   = "job:"   // class, extras and envelope of its jobs
	seenField  = "seen:"  // when a scheduler last said that it has the entry, in us, and the digest of the description
	quietTicks = "quiet:" // see entry.lua
)

// pausedEntry is before an entry's name in the name of the field of the settings that says since when it is paused, in us.
const pausedEntry = "cron:"

// An Entry is what Redis knows of a cron entry.
type Entry struct {
	Name             string
	Kind, Spec, Zone string
	Missed           string    // what happens to missed ticks, in words
	Overlap          string    // what happens to a tick while a job of the entry is live: "", "skip", "queue", "cancel"
	Jitter           string    // by how much its ticks are delayed at most, as a duration of Go; "": they aren't
	Start, End       string    // the bounds of its ticks in RFC 3339; "": there is none
	Last             time.Time // the last tick whose job was enqueued, or left out by its overlap policy; zero: there was none
	Paused           bool
	PausedSince      time.Time
	Seen             time.Time // when a scheduler last said that it has the entry
	Err              error     // why the description can't be read
}

// entriesPerCall bounds the entries that one call reads.
const entriesPerCall = 250

// EntryNames returns the names of the cron entries that schedulers have described, sorted.
func (c *Cron) EntryNames(ctx context.Context) ([]string, error) {
	names := make(map[string]bool) // a scan may return a field twice
	for cursor := uint64(0); ; {
		fields, next, err := c.q.rdb.HScan(ctx, c.q.keys.Entries, cursor, seenField+"*", 1000).Result()
		if err != nil {
			return nil, c.badEntries(err)
		}
		for i := 0; i < len(fields); i += 2 { // names and values
			names[strings.TrimPrefix(fields[i], seenField)] = true
		}
		if cursor = next; cursor == 0 {
			return slices.Sorted(maps.Keys(names)), nil
		}
	}
}

// Entries returns what Redis knows of cron entries. Those that no scheduler has described are left out.
func (c *Cron) Entries(ctx context.Context, names []string) ([]Entry, error) {
	entries := make([]Entry, 0, len(names))
	for some := range slices.Chunk(names, entriesPerCall) {
		fields, pauses := make([]string, 0, 3*len(some)), make([]string, len(some))
		for i, name := range some {
			fields = append(fields, specField+name, seenField+name, quietTicks+name)
			pauses[i] = pausedEntry + name
		}
		var described, last, paused *redis.SliceCmd
		_, err := c.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			described, last, paused = p.HMGet(ctx, c.q.keys.Entries, fields...), p.HMGet(ctx, c.q.keys.Cron, some...), p.HMGet(ctx, c.q.keys.Settings, pauses...)
			return nil
		})
		if err != nil {
			return nil, c.badEntries(err)
		}
		if len(described.Val()) != len(fields) || len(last.Val()) != len(some) || len(paused.Val()) != len(some) {
			return nil, errors.New("store: HMGET has returned another number of values than fields")
		}
		for i, name := range some {
			e, known := c.entryOf(name, described.Val()[3*i:3*i+3], last.Val()[i], paused.Val()[i])
			if known {
				entries = append(entries, e)
			}
		}
	}
	return entries, nil
}

// badEntries adds the keys to an error of Redis.
func (c *Cron) badEntries(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("one of the keys %s, %s and %s is no hash; is another program writing to them? %w", c.q.keys.Entries, c.q.keys.Cron, c.q.keys.Settings, err)
	}
	return err
}

// entryOf reads an entry from the values of its fields in the hashes entries, cron and settings. known is false if there is no
// description.
func (c *Cron) entryOf(name string, described []any, last, paused any) (e Entry, known bool) {
	spec, known := described[0].(string)
	seen, _ := described[1].(string)
	quiet, _ := described[2].(string)
	if !known {
		return Entry{}, false
	}
	e = Entry{Name: name}
	bad := func(key, field, what string) {
		e.Err = errors.Join(e.Err, fmt.Errorf("field %s of key %s: %s; is another program writing to it?", field, key, what))
	}
	if d, err := wire.DecodeEntry([]byte(spec)); err != nil {
		bad(c.q.keys.Entries, specField+name, err.Error())
	} else {
		e.Kind, e.Spec, e.Zone, e.Missed = d.Kind, d.Spec, d.Zone, d.Missed
		e.Overlap, e.Jitter, e.Start, e.End = d.Overlap, d.Jitter, d.Start, d.End
	}
	number := func(key, field, text string) time.Time {
		us, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			bad(key, field, "it holds no time")
			return time.Time{}
		}
		return time.UnixMicro(us)
	}
	us, _, _ := strings.Cut(seen, " ")
	e.Seen = number(c.q.keys.Entries, seenField+name, us)
	if text, ok := last.(string); ok {
		from, to, _ := strings.Cut(quiet, " ")
		switch a, b := micros(text), micros(to); {
		case quiet == "", to == "" && paused == nil, to != "" && a > b: // its job was enqueued
			e.Last = number(c.q.keys.Cron, name, text)
		case from != "":
			e.Last = number(c.q.keys.Entries, quietTicks+name, from)
		}
	}
	if text, ok := paused.(string); ok {
		e.Paused, e.PausedSince = true, number(c.q.keys.Settings, pausedEntry+name, text)
	}
	return e, true
}

// micros returns the number of microseconds in a text, or 0.
func micros(text string) int64 {
	us, _ := strconv.ParseInt(text, 10, 64)
	return us
}

// A Verdict says what became of a change to a cron entry.
type Verdict int

// What became of it.
const (
	EntryAsItWas Verdict = iota // there was nothing to do
	EntryChanged
	EntryUnknown // no scheduler has described the entry
	EntryLives   // a scheduler has the entry
)

// PauseEntry has the ticks of a cron entry pass without jobs.
func (c *Cron) PauseEntry(ctx context.Context, name string) (Verdict, error) {
	return c.changeEntry(ctx, name, "pause")
}

// ResumeEntry ends the pause of a cron entry.
func (c *Cron) ResumeEntry(ctx context.Context, name string) (Verdict, error) {
	return c.changeEntry(ctx, name, "resume")
}

// ForgetEntry deletes what Redis has of a cron entry, unless a scheduler has the entry.
func (c *Cron) ForgetEntry(ctx context.Context, name string) (Verdict, error) {
	return c.changeEntry(ctx, name, "forget")
}

func (c *Cron) changeEntry(ctx context.Context, name, verb string) (Verdict, error) {
	r, err := scripts.Entry.Run(ctx, c.q.rdb, scripts.Entry.Keys(&c.q.keys), scripts.Entry.Args(0,
		scripts.Arg("protocol", layout.Protocol), scripts.Arg("entry", name), scripts.Arg("verb", verb), scripts.Arg("patience", NoticePatience.Microseconds())))
	if err != nil {
		return 0, c.badEntries(err)
	}
	if err := r.Status("ok", "unknown", "lives"); err != nil {
		return 0, err
	}
	switch r.Str(0) {
	case "unknown":
		return EntryUnknown, nil
	case "lives":
		return EntryLives, nil
	}
	if r.Int(1) == 1 {
		return EntryChanged, r.Err
	}
	return EntryAsItWas, r.Err
}

// ErrSealed says that the jobs of a cron entry can be made by its schedulers only.
var ErrSealed = errors.New("store: the entry's job is encoded by its schedulers")

// An UnsureError is the error of a call that may have enqueued its job.
type UnsureError struct{ err error }

func (e *UnsureError) Error() string { return e.err.Error() }
func (e *UnsureError) Unwrap() error { return e.err }

// appendTemplate appends what the field of an entry has of its jobs behind the class: of jobs with extras '+', their flags, the length of the
// extras in 2 bytes, big endian, and the extras; then the envelope. No envelope begins with '+'.
func appendTemplate(b []byte, job *signalbox.Job) []byte {
	if flags, extras := wire.Extras(job); flags != 0 {
		b = binary.BigEndian.AppendUint16(append(b, '+', flags), uint16(len(extras)))
		b = append(b, extras...)
	}
	return wire.AppendEnvelope(b, job)
}

// readTemplate reads the field of an entry, which isn't empty: the class of its jobs, as that of an Item, and their envelope.
func readTemplate(text string) (class string, envelope []byte) {
	class, rest := text[:1], []byte(text[1:])
	const head = 4
	if len(rest) < head || rest[0] != '+' || rest[1] == 0 {
		return class, rest
	}
	end := head + int(binary.BigEndian.Uint16(rest[2:]))
	if len(rest) < end {
		return class, rest
	}
	return withExtras(class, rest[1], rest[head:end]), rest[end:]
}

// RunEntry enqueues a job as a tick of the entry would, with the ID, due now. Its effect key is made from the ID. The entry's last tick
// stays as it is, and its policy for jobs that overlap counts. known is false if no scheduler has described the entry. The error wraps
// ErrSealed if Redis doesn't have the job. It is a LiveError if the policy leaves the job out, and an UnsureError if the job may be enqueued.
func (c *Cron) RunEntry(ctx context.Context, name, id string) (known bool, err error) {
	fields, err := c.q.rdb.HMGet(ctx, c.q.keys.Entries, specField+name, jobField+name).Result()
	if err != nil {
		return false, c.badEntries(err)
	}
	if len(fields) < 2 || fields[0] == nil {
		return false, nil
	}
	text, _ := fields[1].(string)
	if text == "" {
		return true, ErrSealed
	}
	class, envelope := readTemplate(text)
	job := &signalbox.Job{ID: id, Namespace: c.q.namespace, Queue: c.q.name}
	if err := wire.Decode(newRecord(class, 0, 0, envelope), job); err != nil {
		return true, fmt.Errorf("field %s of key %s holds no job: %w; is another program writing to it?", jobField+name, c.q.keys.Entries, err)
	}
	item, overlap := Item{id: id, class: class, envelope: envelope}, OverlapAllow
	if spec, ok := fields[0].(string); ok {
		if d, err := wire.DecodeEntry([]byte(spec)); err == nil {
			overlap = overlapOf(d.Overlap)
		}
	}
	if overlap != OverlapAllow {
		item.when = "&" + name + " " + string(overlap)
	}
	lane := c.q.NewLane()
	lane.Next()
	fates, err := c.q.Enqueue(ctx, lane, []Item{item})
	if err == nil && fates.Anew() {
		_ = c.q.Presence().Register(ctx) // for tools; a user may lack the right
	}
	var refused redis.Error // before the first write, as this is the lane's first call
	switch {
	case err == nil && fates.Of(0) == Overlapped:
		live, _ := c.EntryJobs(ctx, name) // they are for the error's text
		err = &LiveError{live}
	case err == nil && fates.Of(0) == Full:
		err = c.q.FullError(fates.Full())
	case err == nil && overlap == OverlapCancel:
		if _, err = c.CancelOverlapped(ctx, name); err != nil {
			err = &UnsureError{err}
		}
	case err == nil && !fates.Of(0).In():
		err = fmt.Errorf("store: there is a job %s already", id)
	case err != nil && (lane.Writes() > 1 || lane.Writes() == 1 && !errors.As(err, &refused)):
		err = &UnsureError{err}
	}
	return true, err
}
