package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// keyTypes are the types of keys, by the scripts' names for them.
var keyTypes = map[string]string{
	"JOBS": "hash", "DUE": "zset", "IDLE": "zset", "STATS": "hash", "CRON": "hash", "SESSIONS": "zset", "FENCE": "string",
	"DEAD": "zset", "CANCELLED": "zset", "COMPLETED": "zset", "HIGH": "list", "NORMAL": "list", "LOW": "list", "SUSPECT": "list",
	"NOTES": "hash", "CANCELS": "hash", "REPORTER": "string", "SETTINGS": "hash", "HISTORY": "hash", "ENTRIES": "hash",
	"LINED": "zset", "TURNS": "zset", "GROUPS": "hash", "RUNNING": "hash", "LIMITS": "hash", "RATES": "zset", "PARKED": "zset",
	"UNIQUE": "hash", "WINDOWS": "zset", "EXPIRES": "zset", "RECEIPTS": "zset",
}

// keys looks for keys that a queue doesn't have, and for keys of another type. It finds the sessions that have deliveries.
func (d *doctor) keys(ctx context.Context) error {
	var server redis.Cmdable = d.q.Client
	if cluster, ok := server.(*redis.ClusterClient); ok { // all keys of the queue are on one master
		master, err := cluster.MasterForKey(ctx, d.q.Keys.Jobs)
		if err != nil {
			return err
		}
		server = master
	}
	for next, begun := uint64(0), false; !begun || next != 0; begun = true {
		start := time.Now()
		var keys []string
		var err error
		if keys, next, err = server.Scan(ctx, next, d.q.Pattern(), facts.MaxScanned).Result(); err != nil {
			return err
		}
		for _, key := range keys {
			switch kind, session := d.q.KindOf(key); kind {
			case "inflight":
				d.others = append(d.others, session)
			case "":
				d.find(facts.StrayKey, "", fmt.Sprintf("key %.500q belongs to nothing", key), false)
			}
		}
		if err := d.rest(ctx, start); err != nil {
			return err
		}
	}
	slices.Sort(d.others)
	d.others = slices.Compact(d.others)
	return d.types(ctx)
}

// types reports keys that have another type than they should. It returns errUnfit if the doctor's scripts read one of them: they would fail.
func (d *doctor) types(ctx context.Context) error {
	needed := slices.Concat(scripts.Examine.KeyNames, scripts.Mend.KeyNames, scripts.Sum.KeyNames, scripts.Groups.KeyNames, scripts.Running.KeyNames)
	want, beside := make(map[string]string), make(map[string]bool)
	for name, key := range d.q.Keys.Named {
		if keyTypes[name] != "" {
			want[key] = keyTypes[name]
			beside[key] = !slices.Contains(needed, name)
		}
	}
	for _, session := range d.others {
		want[d.q.Keys.Inflight(session)] = "hash"
	}
	wrong := false
	for some := range slices.Chunk(slices.Sorted(maps.Keys(want)), facts.MaxScanned) {
		cmds, err := d.q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range some {
				p.Type(ctx, key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, cmd := range cmds {
			if got := cmd.(*redis.StatusCmd).Val(); got != "none" && got != want[some[i]] {
				text := fmt.Sprintf("key %.500q is a %s, not a %s", some[i], got, want[some[i]])
				if !beside[some[i]] {
					wrong = true
					text += ": nothing else can be checked"
				}
				d.find(facts.WrongType, "", text, false)
			}
		}
	}
	if wrong {
		return errUnfit
	}
	return nil
}

// settings looks for settings that can't be read.
func (d *doctor) settings(ctx context.Context) error {
	fields, err := d.q.Client.HGetAll(ctx, d.q.Keys.Settings).Result()
	if err != nil {
		return err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if value := fields[field]; !d.q.Readable(field, value) {
			d.find(facts.BadSetting, "", fmt.Sprintf("the setting %.200q is %.40q, which can't be read", field, value), false)
		}
	}
	return nil
}

// sums compares the counted bytes of jobs that have ended with their records.
func (d *doctor) sums(ctx context.Context) error {
	for _, state := range facts.EndedStates {
		if err := d.sum(ctx, string(state)); err != nil {
			return err
		}
	}
	return nil
}

// A total is what the records of a terminal state add up to.
type total struct {
	counter, ended string // what stats has: the bytes, and how many jobs came into the state
	members, bytes int64
	digest         string // of all IDs and sizes
}

// counted returns the bytes that are counted.
func (t total) counted() int64 {
	n, _ := strconv.ParseInt(t.counter, 10, 64)
	return n
}

// sum proves the count of one state. If all records fit in a call, that call does. Else the calls must all find the state unchanged,
// and for a finding once more, with the same jobs and sizes.
func (d *doctor) sum(ctx context.Context, state string) error {
	var before *total
	for range sumTries {
		t, still, err := d.total(ctx, state)
		if err != nil {
			return err
		}
		if !still {
			before = nil
			continue
		}
		if t.counted() == t.bytes {
			return nil
		}
		if t.members > MaxSum && (before == nil || *before != t) {
			before = &t
			continue
		}
		done, err := d.mend(ctx, nil, Step{Verb: "bytes", A: state, B: fmt.Sprintf("%s %d %s %d", t.counter, t.members, t.ended, t.bytes)})
		if err != nil {
			return err
		}
		if d.Repair && !done {
			continue
		}
		d.find(facts.WrongBytes, "", fmt.Sprintf("%d bytes of %s jobs are counted, there are %d", t.counted(), state, t.bytes), done)
		return nil
	}
	d.Unproved = append(d.Unproved, fmt.Sprintf("the counted bytes of %s jobs: they change too fast", state))
	return nil
}

// total adds up the records of a state. still is false if the state has changed meanwhile.
func (d *doctor) total(ctx context.Context, state string) (t total, still bool, err error) {
	for first := int64(0); ; first += MaxSum {
		began := time.Now()
		r, err := scripts.Sum.Run(ctx, d.q.Client, scripts.Sum.Keys(&d.q.Keys), scripts.Sum.Args(0,
			scripts.Arg("name", state), scripts.Arg("first", first), scripts.Arg("last", first+MaxSum-1)))
		if err != nil {
			return total{}, false, err
		}
		if err := r.Status("ok"); err != nil {
			return total{}, false, err
		}
		part := total{counter: r.Str(1), members: r.Int(2), ended: r.Str(3), bytes: t.bytes + r.Int(4), digest: t.digest + r.Str(5)}
		if r.Err != nil {
			return total{}, false, r.Err
		}
		if first > 0 && (part.counter != t.counter || part.members != t.members || part.ended != t.ended) {
			return total{}, false, nil
		}
		t = part
		if first+MaxSum >= t.members {
			return t, true, nil
		}
		if err := d.rest(ctx, began); err != nil {
			return total{}, false, err
		}
	}
}
