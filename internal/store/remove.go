package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// A Removal says how a queue is removed.
type Removal struct {
	DryRun   bool          // nothing is changed
	Settings bool          // settings that people and workers have made go, too. A pause, a hold, and a rate that counts keep the queue all the same
	Unused   time.Duration // for how long no job must have started and no worker have had the queue; 0: for any time
}

// A Reason is one thing that keeps a queue from being removed.
type Reason struct {
	What   ReasonKind
	Detail string    // a number, a name or a field: see remove.lua
	Time   time.Time // by the server's clock; of those kinds that have one
}

// A ReasonKind says what keeps a queue.
type ReasonKind string

// What keeps a queue.
const (
	KeptByLive      ReasonKind = "live"
	KeptByDead      ReasonKind = "dead"
	KeptByCancelled ReasonKind = "cancelled"
	KeptByCompleted ReasonKind = "completed"
	KeptBySession   ReasonKind = "session" // Detail is its name
	KeptByEntries   ReasonKind = "entries"
	KeptByOutbox    ReasonKind = "outbox"
	KeptByUnique    ReasonKind = "unique"  // until Time
	KeptByReceipt   ReasonKind = "receipt" // until Time
	KeptByFlow      ReasonKind = "flow"
	KeptByPause     ReasonKind = "paused" // since Time
	KeptByGroup     ReasonKind = "group"
	KeptByQuiet     ReasonKind = "quiet"   // Detail is the ID of the worker
	KeptByHold      ReasonKind = "held"    // until Time
	KeptByRate      ReasonKind = "rate"    // until Time
	KeptBySetting   ReasonKind = "setting" // Detail is the field
	KeptByUnknown   ReasonKind = "unknown" // Detail is the field
	KeptByFence     ReasonKind = "fence"   // until Time
	KeptByUse       ReasonKind = "used"    // at Time
)

// Remove removes the queue, unless there are reasons against it: all its keys but those that [Named] finds. The registry of queues keeps its name until
// Unlist. Redis decides and deletes in one step. So a call that comes at that moment either is a reason, or makes the queue anew. It may be called again.
func (pr *Presence) Remove(ctx context.Context, r Removal) ([]Reason, error) {
	reply, err := scripts.Remove.Run(ctx, pr.q.rdb, scripts.Remove.Keys(&pr.q.keys), scripts.Remove.Args(0, scripts.Arg("protocol", layout.Protocol),
		scripts.Arg("dry", scripts.Flag(r.DryRun)), scripts.Arg("loose", scripts.Flag(r.Settings)), scripts.Arg("unused", r.Unused.Microseconds())))
	if err == nil {
		err = reply.Status("ok")
	}
	if err != nil {
		return nil, err
	}
	texts := reply.Strs(2)
	if reply.Err == nil && len(texts)%2 != 0 {
		reply.Fail(2, "a list of half a reason")
	}
	if reply.Err != nil {
		return nil, reply.Err
	}
	var reasons []Reason
	for i := 0; i < len(texts); i += 2 {
		reason := Reason{What: ReasonKind(texts[i]), Detail: texts[i+1]}
		switch reason.What {
		case KeptByUnique, KeptByReceipt, KeptByPause, KeptByHold, KeptByRate, KeptByFence, KeptByUse:
			if us, err := strconv.ParseInt(reason.Detail, 10, 64); err == nil { // another program may have written the time of a pause
				reason.Time = time.UnixMicro(us)
			}
		default:
		}
		reasons = append(reasons, reason)
	}
	return reasons, nil
}

// A NamedKey is a key of a queue that has the name of something in it. Removing a queue leaves them alone.
type NamedKey struct {
	Key  string
	Kind string // "outbox" or "inflight"; "" for one that no release up to this one has
	Of   string // the ID of the outbox, or the session
}

// Named returns the keys of queues that have the name of something in them, and that count, by the queue. They don't expire by themselves, as those of lanes, of
// stuck handlers, of progress and of outboxes that were forgotten do. It goes through the names of all keys of the server.
func Named(ctx context.Context, rdb redis.UniversalClient, namespace string, queues ...string) (map[string][]NamedKey, error) {
	wanted := make(map[string]*Queue, len(queues))
	for _, name := range queues {
		wanted[name] = New(rdb, namespace, name)
	}
	head, _, _ := strings.Cut(layout.KeysOf(namespace, "").Prefix, "}")
	pattern := facts.Escaped(head) + "*"
	if len(queues) == 1 {
		pattern = wanted[queues[0]].Site().Pattern()
	}
	keys, err := New(rdb, namespace, "").Site().KeysLike(ctx, pattern)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]NamedKey)
	var outboxes []NamedKey // those that are to be forgotten expire
	for _, key := range keys {
		name, rest, _ := strings.Cut(strings.TrimPrefix(key, head), "}:")
		q := wanted[name]
		if q == nil {
			continue
		}
		kind, session := q.Site().KindOf(key)
		named := NamedKey{Key: key, Kind: kind}
		switch kind {
		case "inflight":
			named.Of = session
		case "outbox":
			named.Of = strings.TrimPrefix(rest, "outbox:")
			if parts := outboxShard.FindStringSubmatch(named.Of); parts != nil {
				named.Of = parts[1]
			}
			outboxes = append(outboxes, named)
			continue
		case "":
		default:
			continue // it is deleted, or expires
		}
		found[name] = append(found[name], named)
	}
	if outboxes, err = lasting(ctx, rdb, outboxes); err != nil {
		return nil, err
	}
	for _, named := range outboxes {
		name, _, _ := strings.Cut(strings.TrimPrefix(named.Key, head), "}:")
		found[name] = append(found[name], named)
	}
	return found, nil
}

// CopiesTo returns the queues of a namespace whose dead jobs are copied, by the queue that gets the copies.
func CopiesTo(ctx context.Context, rdb redis.UniversalClient, namespace string) (map[string][]string, error) {
	names, err := Queues(ctx, rdb, namespace)
	if err != nil {
		return nil, err
	}
	named := make([]*redis.StringCmd, len(names))
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			named[i] = p.HGet(ctx, layout.KeysOf(namespace, name).Settings, settings.CopyField)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	to := make(map[string][]string)
	for i, name := range names {
		if text, err := named[i].Result(); err == nil && text != "" {
			to[text] = append(to[text], name)
		} else if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("settings of queue %s: %w", name, err)
		}
	}
	return to, nil
}

// unlistWithin is how long a call that takes a queue out of the registry counts. A copy of it that comes later does nothing: the queue may be there anew.
const unlistWithin = 2 * time.Second

// A counted argument knows how often the client has written the call.
type counted struct {
	text   string
	writes atomic.Int32
}

func (c *counted) MarshalBinary() ([]byte, error) { c.writes.Add(1); return []byte(c.text), nil }
func (c *counted) String() string                 { return c.text }

// Unlist takes the queue out of the registry after it was removed, and puts it in again if it is there anew. It may be called again.
func (pr *Presence) Unlist(ctx context.Context) error {
	unlist := func(most *counted) (status string, now int64, err error) {
		r, err := scripts.Unlist.Run(ctx, pr.q.rdb, scripts.Unlist.Keys(&pr.q.keys, pr.q.keys.Registry), scripts.Unlist.Args(0, scripts.Arg("queue", pr.q.name), scripts.Arg("most", most)))
		if err == nil {
			err = r.Status("ok", "late")
		}
		if err != nil {
			return "", 0, err
		}
		status, now = r.Str(0), r.Int(1)
		return status, now, r.Err
	}
	for {
		_, now, err := unlist(&counted{text: "0"})
		if err != nil {
			return err
		}
		most := &counted{text: strconv.FormatInt(now+unlistWithin.Microseconds(), 10)}
		status, _, err := unlist(most)
		if most.writes.Load() > 1 || err != nil {
			// A copy may still be on its way. When none counts any more, it is known what it did.
			select {
			case <-time.After(unlistWithin + unlistWithin/4):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return errors.Join(err, pr.relist(ctx))
		}
		if status == "ok" {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return pr.relist(ctx)
}

// relist registers the queue if it has any key.
func (pr *Presence) relist(ctx context.Context) error {
	keys := make([]string, 0, len(pr.q.keys.Named))
	for name, key := range pr.q.keys.Named {
		if name != "REPORTER" { // a client that reports depths doesn't use the queue; it expires
			keys = append(keys, key)
		}
	}
	n, err := pr.q.rdb.Exists(ctx, keys...).Result()
	if err != nil || n == 0 {
		return err
	}
	return pr.Register(ctx)
}
