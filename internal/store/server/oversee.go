package server

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// OverseeEvery is how often Oversee inspects the servers.
const OverseeEvery = 5 * time.Minute

// overseeAgain is the time until the next try if Oversee could not inspect the servers: Redis was away, or in a failover.
const overseeAgain = 5 * time.Second

// Oversee inspects the servers every OverseeEvery, and each time it receives from again, until ctx ends. found has the results of the last
// inspection, and gets those of each later one. First Oversee logs the doubts that
// are in found. Then it logs what has changed since the last look. It never stops its caller: a configuration can change at any time.
// If a server is away, or is still a replica in a failover, Oversee tries again after overseeAgain.
func Oversee(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger, found *atomic.Pointer[Findings], again <-chan struct{}, keys []string, roles ...Role) {
	before := found.Load()
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
		now, err := Inspect(ctx, rdb, keys, roles...)
		if err != nil || now.Passing {
			next.Reset(overseeAgain)
			continue // the calls that matter report it
		}
		next.Reset(OverseeEvery)
		now.follows(before)
		found.Store(now)
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
