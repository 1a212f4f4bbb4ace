package store

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// OverseeEvery is how often Oversee looks.
const OverseeEvery = 5 * time.Minute

// overseeAgain is how soon it looks again where it could not see: Redis was away, or in a failover.
const overseeAgain = 5 * time.Second

// Oversee inspects the servers every OverseeEvery, and when again has a value, until ctx ends. First it logs the
// doubts of before. Then it logs what has changed since the last look. It stops nobody: a configuration can change at
// any time. A server that is away, or still a replica in a failover, is looked at again after overseeAgain.
func Oversee(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger, before *Findings, again <-chan struct{}, queues []*Queue, roles ...Role) {
	for _, doubt := range before.Doubts {
		log.Warn("signalbox: about this Redis: " + doubt)
	}
	next := time.NewTimer(OverseeEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-next.C:
		}
		now, err := Inspect(ctx, rdb, queues, roles...)
		if err != nil || now.Passing {
			next.Reset(overseeAgain)
			continue // the calls that matter say so
		}
		next.Reset(OverseeEvery)
		for _, wrong := range now.Wrong {
			if !slices.Contains(before.Wrong, wrong) {
				log.Error("signalbox: this Redis should not be used any more: " + wrong)
			}
		}
		for _, doubt := range now.Doubts {
			if !slices.Contains(before.Doubts, doubt) {
				log.Warn("signalbox: about this Redis: " + doubt)
			}
		}
		if len(now.Wrong)+len(now.Doubts) == 0 && len(before.Wrong)+len(before.Doubts) > 0 {
			log.Info("signalbox: this Redis is set up well again", "eviction", now.Eviction)
		}
		before = now
	}
}
