package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// ForgetAfter is for how long Redis keeps what it knows of an outbox that it is to forget. That is longer than the longest window of a relay: so a relay that runs when it ends
// has nothing left in its database that it would send again.
const ForgetAfter = 25 * time.Hour

// reportedWithin is how recent the last report of an outbox must be for its relays to count as running. It is by two clocks: that of the database, and that of Redis.
const reportedWithin = 5 * time.Minute

// A Forgotten says what became of an outbox that was to be forgotten.
type Forgotten int

// What becomes of it.
const (
	OutboxUnknown   Forgotten = iota // the queue knows of no batch of it
	OutboxLives                      // a relay of it has reported the queue: nothing was changed
	OutboxForgotten                  // what Redis knows of it ends after ForgetAfter
)

// Forget has what the queue knows of an outbox end after ForgetAfter, unless a relay has reported the queue. A relay that sends a batch of a shard before that
// has the shard's lane stay for good again: the script sets it without an expiry. It may be called again.
func (ob *Outboxes) Forget(ctx context.Context, outbox string) (Forgotten, error) {
	text, err := ob.q.rdb.HGet(ctx, ob.q.keys.Outboxes, outbox).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	if err == nil {
		now, err := ob.q.Now(ctx)
		if err != nil {
			return 0, err
		}
		var s OutboxState // one of a later release says nothing that is older than a minute
		if json.Unmarshal([]byte(text), &s) != nil || now.Sub(time.UnixMicro(s.At)) < reportedWithin {
			return OutboxLives, nil
		}
	}
	prefix := ob.q.keys.Prefix + "outbox:"
	keys, err := ob.q.Site().KeysLike(ctx, facts.Escaped(prefix+outbox)+":*")
	if err != nil {
		return 0, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		parts := outboxShard.FindStringSubmatch(strings.TrimPrefix(key, prefix))
		if parts == nil || parts[1] != outbox {
			return true
		}
		shard, err := strconv.Atoi(parts[2])
		return err != nil || ob.q.keys.Outbox(outbox, shard) != key
	})
	if len(keys) == 0 {
		return OutboxUnknown, nil
	}
	_, err = ob.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.PExpire(ctx, key, ForgetAfter)
		}
		return nil
	})
	return OutboxForgotten, err
}

// lasting leaves out the keys that expire by themselves.
func lasting(ctx context.Context, rdb redis.UniversalClient, keys []NamedKey) ([]NamedKey, error) {
	ttls := make([]*redis.DurationCmd, len(keys))
	if _, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			ttls[i] = p.PTTL(ctx, k.Key)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var left []NamedKey
	for i, k := range keys {
		if ttl := ttls[i].Val(); ttl != -2 && ttl <= 0 { // -2: it is gone; -1: it doesn't expire
			left = append(left, k)
		}
	}
	return left, nil
}
