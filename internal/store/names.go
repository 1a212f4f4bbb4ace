package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Queues returns the names of the queues that a namespace is known to have, sorted.
func Queues(ctx context.Context, rdb redis.UniversalClient, namespace string) ([]string, error) {
	names, err := rdb.SMembers(ctx, layout.KeysOf(namespace, "").Registry).Result()
	if err != nil {
		scripts.SeekMaster(ctx, rdb, err)
	}
	slices.Sort(names)
	return names, err
}

// QueuesThere returns the queues that masters of a Cluster have keys of, sorted, after Queues has failed with err: the list of queues is on one master, and the
// others may be there. It goes through the names of all keys of these. silent says of each master that it couldn't ask why. It returns no names if rdb is no
// Cluster, if a server has refused the call, or if no slot is served.
func QueuesThere(ctx context.Context, rdb redis.UniversalClient, namespace string, err error) (names []string, silent []error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || ctx.Err() != nil || refused(err) {
		return nil, nil
	}
	head, _, _ := strings.Cut(layout.KeysOf(namespace, "").Prefix, "}")
	var mu sync.Mutex
	found := make(map[string]bool)
	add := func(key string) {
		name, kind, ok := strings.Cut(strings.TrimPrefix(key, head), "}:")
		switch kind {
		case "jobs", "stats", "sessions", "settings", "entries", "outboxes": // of a queue that is removed there is none
			if ok && layout.ValidateQueue(name) == nil {
				mu.Lock()
				found[name] = true
				mu.Unlock()
			}
		}
	}
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		keys := master.Scan(ctx, 0, facts.Escaped(head)+"*", 1000).Iterator()
		for keys.Next(ctx) {
			add(keys.Val())
		}
		if err := keys.Err(); err != nil {
			mu.Lock()
			defer mu.Unlock()
			silent = append(silent, fmt.Errorf("%s: %w", master.Options().Addr, err))
		}
		return nil
	})
	if err != nil {
		return nil, nil
	}
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, silent
}

// refused reports whether a server has answered a call with an error that isn't about the master being away.
func refused(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	return !slices.ContainsFunc([]string{"CLUSTERDOWN Hash slot not served", "LOADING ", "MASTERDOWN ", "READONLY ", "MOVED ", "ASK "}, func(sign string) bool {
		return strings.HasPrefix(answer.Error(), sign)
	})
}
