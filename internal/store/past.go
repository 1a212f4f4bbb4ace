package store

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// A PastKind says what a [Past] is of.
type PastKind string

// What a queue knows of the past, beside its jobs, its settings and its statistics.
const (
	PastOutbox PastKind = "outbox" // the last batch of a shard of an outbox
	PastCron   PastKind = "cron"   // a cron entry: its last tick, its plans, its jobs, whether it is paused
	PastUnique PastKind = "unique" // a unique key that the record of its job doesn't say all of: a window, or that of a throttled job that waits
	PastDeath  PastKind = "death"  // a dead job that is still to be copied to another queue
)

// A Past is one thing that a queue knows of the past: without it something would happen again.
type Past struct {
	Kind  PastKind
	Name  string    // the ID of the outbox, the entry, the unique key, or the ID of the dead job
	Shard int       // of the outbox
	Value string    // what Redis has for it; not of an entry
	Entry EntryPast // of an entry
}

// An EntryPast is what Redis has of a cron entry: the values of its fields, "" for those that aren't there.
type EntryPast struct{ Last, Plans, Jobs, Paused, Spec, Job, Seen, Quiet string }

func (e *EntryPast) values() []string {
	return []string{e.Last, e.Plans, e.Jobs, e.Paused, e.Spec, e.Job, e.Seen, e.Quiet}
}

// Bounds of a Past.
const (
	maxLaneText  = 1 << 20  // bytes of the text of an outbox's lane
	maxEntryText = 2 << 20  // bytes of a field of an entry: it may have an envelope
	maxPasts     = 250      // items of a call of past.lua
	maxPastLooks = 25_000   // about the most looks of a call whether a session runs a job
	maxPastBytes = MaxBytes // about the most bytes of a call
)

var (
	outboxText  = regexp.MustCompile(`^[1-9][0-9]{0,14} [0-9a-z]{1,65} [pv][0-9A-Za-z]*( [!-~]+)*$`)
	planText    = regexp.MustCompile(`^[0-9a-f]+( [0-9]+){3}(,[0-9a-f]+( [0-9]+){3})*$`)
	seenText    = regexp.MustCompile(`^[0-9]+ [0-9a-f]{40}( [0-9a-f]*)?$`)
	quietText   = regexp.MustCompile(`^[0-9]* [0-9]*$`)
	listText    = regexp.MustCompile(`^[!-~]+( [!-~]+)*$`)
	numberText  = regexp.MustCompile(`^[0-9]{1,16}$`)
	uniqueText  = regexp.MustCompile(`^(t|[0-9]{1,16}) [!-~]{1,200}$`)
	uniqueName  = regexp.MustCompile(`^[!-~]{1,200} [ak][!-~]{1,200}$`)
	outboxShard = regexp.MustCompile(`^(.+):([0-9]{1,4})$`)
)

// Validate returns an error that wraps signalbox.ErrInvalid if no queue can know such a thing. The error names fields, and never quotes their values.
func (p *Past) Validate() error {
	ok, field := true, "value"
	name := func(err error) bool {
		if err != nil {
			ok, field = false, "name"
		}
		return err == nil
	}
	switch p.Kind {
	case PastOutbox:
		if name(layout.ValidateID(p.Name)) {
			ok = p.Shard >= 0 && p.Shard < 10_000 && len(p.Value) <= maxLaneText && outboxText.MatchString(p.Value)
		}
	case PastCron:
		if !name(layout.ValidateEntry(p.Name)) {
			break
		}
		e := &p.Entry
		for _, f := range []struct {
			name, value string
			form        *regexp.Regexp
		}{
			{"last", e.Last, numberText},
			{"plans", e.Plans, planText},
			{"jobs", e.Jobs, listText},
			{"paused", e.Paused, numberText},
			{"spec_base64", e.Spec, nil},
			{"job_base64", e.Job, nil},
			{"seen", e.Seen, seenText},
			{"quiet", e.Quiet, quietText},
		} {
			if len(f.value) > maxEntryText || f.value != "" && f.form != nil && !f.form.MatchString(f.value) {
				ok, field = false, f.name
			}
		}
		if ok && strings.Join(e.values(), "") == "" {
			ok, field = false, "entry"
		}
	case PastUnique:
		if ok = uniqueName.MatchString(p.Name); !ok {
			field = "name"
			break
		}
		ok = uniqueText.MatchString(p.Value)
	case PastDeath:
		if name(layout.ValidateID(p.Name)) {
			ok = numberText.MatchString(p.Value)
		}
	default:
		ok, field = false, "past"
	}
	if !ok {
		return fmt.Errorf("%w %s: it is not that of a file of this release", signalbox.ErrInvalid, field)
	}
	return nil
}

// Pasts yields what the queue knows of the past: first of outboxes, then of cron entries, then of the windows of unique keys. It leaves out what is of single jobs, which [Transfer.JobPasts] has.
// An error is yielded last. No key lists the outboxes of a queue, so Pasts goes through the names of all keys of the server. What is added meanwhile may be missing.
func (t *Transfer) Pasts(ctx context.Context) iter.Seq2[Past, error] {
	return func(yield func(Past, error) bool) {
		put := func(p Past) bool { return yield(p, nil) }
		windows := func(ctx context.Context, yield func(Past) bool) (more bool, err error) {
			return t.uniquePasts(ctx, false, yield)
		}
		for _, part := range []func(context.Context, func(Past) bool) (more bool, err error){t.outboxPasts, t.cronPasts, windows} {
			more, err := part(ctx, put)
			if err != nil {
				yield(Past{}, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

func (t *Transfer) outboxPasts(ctx context.Context, yield func(Past) bool) (more bool, err error) {
	prefix := t.q.keys.Prefix + "outbox:"
	keys, err := t.q.Site().KeysLike(ctx, facts.Escaped(prefix)+"*")
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		parts := outboxShard.FindStringSubmatch(strings.TrimPrefix(key, prefix))
		if parts == nil {
			continue // the doctor reports it
		}
		text, err := t.q.rdb.Get(ctx, key).Result()
		if err == redis.Nil {
			continue
		}
		if err != nil {
			return false, err
		}
		shard, _ := strconv.Atoi(parts[2])
		if !yield(Past{Kind: PastOutbox, Name: parts[1], Shard: shard, Value: text}) {
			return false, nil
		}
	}
	return true, nil
}

func (t *Transfer) cronPasts(ctx context.Context, yield func(Past) bool) (more bool, err error) {
	names := make(map[string]bool)
	for _, hash := range []struct{ key, pattern, before string }{
		{t.q.keys.Cron, "*", ""}, {t.q.keys.Cron, "plan *", "plan "}, {t.q.keys.Settings, pausedEntry + "*", pausedEntry}, {t.q.keys.Entries, specField + "*", specField},
	} {
		for cursor := uint64(0); ; {
			fields, next, err := t.q.rdb.HScan(ctx, hash.key, cursor, hash.pattern, 1000).Result()
			if err != nil {
				return false, t.q.Cron().badEntries(err)
			}
			for i := 0; i < len(fields); i += 2 { // names and values
				if name := strings.TrimPrefix(fields[i], hash.before); !strings.Contains(name, " ") {
					names[name] = true
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var ticks, paused, described *redis.SliceCmd
		_, err := t.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			ticks = p.HMGet(ctx, t.q.keys.Cron, name, "plan "+name, "jobs "+name)
			paused = p.HMGet(ctx, t.q.keys.Settings, pausedEntry+name)
			described = p.HMGet(ctx, t.q.keys.Entries, specField+name, jobField+name, seenField+name, quietTicks+name)
			return nil
		})
		if err != nil {
			return false, t.q.Cron().badEntries(err)
		}
		var text []string
		for _, v := range slices.Concat(ticks.Val(), paused.Val(), described.Val()) {
			s, _ := v.(string)
			text = append(text, s)
		}
		if len(text) != 8 || strings.Join(text, "") == "" {
			continue // it was forgotten meanwhile
		}
		if !yield(Past{Kind: PastCron, Name: name, Entry: EntryPast{text[0], text[1], text[2], text[3], text[4], text[5], text[6], text[7]}}) {
			return false, nil
		}
	}
	return true, nil
}

// uniquePasts yields windows that are open, or the keys of throttled jobs that wait.
func (t *Transfer) uniquePasts(ctx context.Context, throttled bool, yield func(Past) bool) (more bool, err error) {
	now, err := t.q.Now(ctx)
	if err != nil {
		return false, err
	}
	for cursor := uint64(0); ; {
		fields, next, err := t.q.rdb.HScan(ctx, t.q.keys.Unique, cursor, "", 1000).Result()
		if err != nil {
			return false, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			scope, _, _ := strings.Cut(fields[i+1], " ")
			if (scope == "t") != throttled || !throttled && micros(scope) <= now.UnixMicro() {
				continue // the record of its job says all of it, or it is over
			}
			if !yield(Past{Kind: PastUnique, Name: fields[i], Value: fields[i+1]}) {
				return false, nil
			}
		}
		if cursor = next; cursor == 0 {
			return true, nil
		}
	}
}

// JobPasts yields what the queue knows of the past of single jobs: the keys of throttled ones that wait, and the dead ones that are still to be copied to another
// queue. An error is the last that is yielded. Read them behind the jobs, and put them in behind these: such a key is nobody's without its job, and a worker forgets a death whose job isn't dead.
func (t *Transfer) JobPasts(ctx context.Context) iter.Seq2[Past, error] {
	return func(yield func(Past, error) bool) {
		more, err := t.uniquePasts(ctx, true, func(p Past) bool { return yield(p, nil) })
		if err != nil {
			yield(Past{}, err)
		}
		if err != nil || !more {
			return
		}
		for cursor := uint64(0); ; {
			notes, next, err := t.q.rdb.HScan(ctx, t.q.keys.Notes, cursor, settings.DeathNote+"*", 1000).Result()
			if err != nil {
				yield(Past{}, err)
				return
			}
			for i := 0; i+1 < len(notes); i += 2 {
				if !yield(Past{Kind: PastDeath, Name: strings.TrimPrefix(notes[i], settings.DeathNote), Value: notes[i+1]}, nil) {
					return
				}
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}

// PutPasts puts in what another queue knew, all of one kind, that Validate has accepted. It returns for each whether it was put in: false if the queue knows the same or
// something later. If it fails, it has put in those that it returns. It may be called again. With dry set nothing is changed.
func (t *Transfer) PutPasts(ctx context.Context, pasts []Past, dry bool) (done []bool, err error) {
	var sessions []string // those that may run a job that is to get a key
	inflight := ""
	look := func() (err error) {
		inflight = t.q.keys.Inflight("")
		sessions, err = t.q.rdb.ZRange(ctx, t.q.keys.Sessions, 0, -1).Result()
		if err == nil && len(sessions) > facts.MaxActSessions {
			err = fmt.Errorf("store: queue %q has %d sessions; keys can be given to its jobs with at most %d", t.q.name, len(sessions), facts.MaxActSessions)
		}
		return err
	}
	if slices.ContainsFunc(pasts, func(p Past) bool { return p.Kind == PastUnique && strings.HasPrefix(p.Value, "t ") }) {
		if err := look(); err != nil {
			return nil, err
		}
	}
	for tries := 0; len(done) < len(pasts); {
		most := min(maxPasts, max(1, maxPastLooks/max(1, len(sessions))))
		part, bytes := pasts[len(done):], 0
		var items []any
		for i := range part {
			p := &part[i]
			item := []string{p.Name, p.Value}
			switch p.Kind {
			case PastOutbox:
				item = item[1:]
			case PastCron:
				item = append(item[:1], p.Entry.values()...)
			case PastUnique, PastDeath:
			}
			for _, text := range item {
				bytes += len(text)
			}
			if i > 0 && (p.Kind == PastOutbox || i == most || bytes > maxPastBytes) {
				part = part[:i]
				break
			}
			for _, text := range item {
				items = append(items, text)
			}
		}
		lane := t.q.keys.Outbox(part[0].Name, part[0].Shard)
		if part[0].Kind != PastOutbox {
			lane = t.q.keys.Lane("past")
		}
		args := append(scripts.Past.Args(len(items), scripts.Arg("protocol", layout.Protocol), scripts.Arg("dry", scripts.Flag(dry)), scripts.Arg("inflight", inflight), scripts.Arg("kind", string(part[0].Kind))), items...)
		keys := scripts.Past.Keys(&t.q.keys, lane)
		for _, session := range sessions {
			keys = append(keys, t.q.keys.Inflight(session))
		}
		r, err := scripts.Past.Run(ctx, t.q.rdb, keys, args)
		if err == nil {
			err = r.Status("ok", "again")
		}
		if err != nil {
			return done, err
		}
		if r.Str(0) == "again" { // a session was opened meanwhile
			if tries++; tries == facts.MaxTries {
				return done, facts.ErrMoving
			}
			if err := look(); err != nil {
				return done, err
			}
			continue
		}
		tries = 0
		words := r.Strs(2)
		if r.Err == nil && len(words) != len(part) {
			r.Fail(2, fmt.Sprintf("%d answers for %d items", len(words), len(part)))
		}
		for _, word := range words {
			if word != "done" && word != "there" {
				r.Fail(2, fmt.Sprintf("%.40q", word))
				break
			}
			done = append(done, word == "done")
		}
		if r.Err != nil {
			return done, r.Err
		}
	}
	return done, nil
}
