package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// A snapshot is all that a queue has in Redis, at one moment.
type snapshot struct {
	jobs      map[string]string
	ready     map[string][]string // by the class that stands for the list: '0', '1', '2', 's'
	due       []redis.Z
	sessions  []redis.Z
	inflight  map[string]map[string]string // by session
	ended     map[Outcome][]redis.Z        // terminal jobs, by their state
	now       int64                        // the server's clock, in us
	fence     string                       // "" if there is none
	stats     map[string]string
	idle      []string // addresses
	spans     []string // ids
	cancels   map[string]string
	expires   []redis.Z
	lined     []string
	parked    []string
	counted   map[string]string // what RUNNING has
	limits    signalbox.Limits  // of the queue
	turns     []redis.Z
	groups    map[string]string
	paused    map[string]bool // keys of groups
	unique    map[string]string
	windows   []redis.Z
	flows     map[string]string
	awaiting  []string
	flownotes map[string]string
	flowtimes []string
	stray     []string // keys that no queue has
}

// errMoving: the sessions changed each time between looking for them and reading them.
var errMoving = errors.New("store: the queue changes too fast to be read; try again when it is quieter")

// snapshot reads the queue in one transaction. Which sessions there are has to be known before,
// so it looks again if there are others by then.
func (q *Queue) snapshot(ctx context.Context) (*snapshot, error) {
	for range 10 {
		sessions, stray, err := q.findSessions(ctx)
		if err != nil {
			return nil, err
		}
		s, err := q.readAll(ctx, sessions)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(s.sessions, func(z redis.Z) bool { return s.inflight[z.Member.(string)] == nil }) {
			s.stray = stray
			return s, nil
		}
	}
	return nil, errMoving
}

// findSessions returns the sessions that are registered or have deliveries, and the keys
// that don't belong.
func (q *Queue) findSessions(ctx context.Context) (sessions, stray []string, err error) {
	registered, err := q.rdb.ZRange(ctx, q.keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, nil, err
	}
	found := make(map[string]bool)
	for _, id := range registered {
		found[id] = true
	}
	keys, err := q.scan(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		switch kind, session := q.kindOf(key); kind {
		case "inflight":
			found[session] = true
		case "":
			stray = append(stray, key)
		}
	}
	for id := range found {
		sessions = append(sessions, id)
	}
	slices.Sort(sessions)
	return sessions, stray, nil
}

// pattern is what the names of the queue's keys match.
func (q *Queue) pattern() string { return escaped(q.keys.Prefix) + "*" }

// escaped returns the pattern that fits a text alone.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// scan returns the names of all keys of the queue.
func (q *Queue) scan(ctx context.Context) ([]string, error) { return q.scanFor(ctx, q.pattern()) }

// scanFor returns the names of all keys that fit a pattern. In a Cluster it asks each master, so that
// it doesn't matter which of them has the queue's slot.
func (q *Queue) scanFor(ctx context.Context, pattern string) ([]string, error) {
	var mu sync.Mutex
	found := make(map[string]bool) // SCAN may name a key twice
	scan := func(ctx context.Context, c redis.Cmdable) error {
		it := c.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			found[it.Val()] = true
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	if cluster, ok := q.rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return scan(ctx, c) })
	} else {
		err = scan(ctx, q.rdb)
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, err
}

func (q *Queue) readAll(ctx context.Context, sessions []string) (*snapshot, error) {
	k := &q.keys
	tx := q.rdb.TxPipeline()
	now, jobs, stats := tx.Time(ctx), tx.HGetAll(ctx, k.Jobs), tx.HGetAll(ctx, k.Stats)
	fence, idle, spans := tx.Get(ctx, k.Fence), tx.ZRange(ctx, k.Idle, 0, -1), tx.HKeys(ctx, k.Notes)
	cancels := tx.HGetAll(ctx, k.Cancels)
	lined, turns, groups := tx.ZRange(ctx, k.Lined, 0, -1), tx.ZRangeWithScores(ctx, k.Turns, 0, -1), tx.HGetAll(ctx, k.Groups)
	counted, settings, parked := tx.HGetAll(ctx, k.Running), tx.HGetAll(ctx, k.Settings), tx.ZRange(ctx, k.Parked, 0, -1)
	unique, windows := tx.HGetAll(ctx, k.Unique), tx.ZRangeWithScores(ctx, k.Windows, 0, -1)
	expires, bounds := tx.ZRangeWithScores(ctx, k.Expires, 0, -1), tx.HKeys(ctx, k.Limits)
	flows, awaiting := tx.HGetAll(ctx, k.Flows), tx.ZRange(ctx, k.Awaiting, 0, -1)
	flownotes, flowtimes := tx.HGetAll(ctx, k.FlowNotes), tx.ZRange(ctx, k.FlowTimes, 0, -1)
	due, live := tx.ZRangeWithScores(ctx, k.Due, 0, -1), tx.ZRangeWithScores(ctx, k.Sessions, 0, -1)
	ended := make(map[Outcome]*redis.ZSliceCmd)
	for _, state := range terminalStates {
		ended[state.outcome] = tx.ZRangeWithScores(ctx, k.Named[state.key], 0, -1)
	}
	ready := make(map[string]*redis.StringSliceCmd)
	for class, key := range k.Ready() {
		ready[class] = tx.LRange(ctx, key, 0, -1)
	}
	inflight := make(map[string]*redis.MapStringStringCmd)
	for _, id := range sessions {
		inflight[id] = tx.HGetAll(ctx, k.Inflight(id))
	}
	cmds, err := tx.Exec(ctx)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("store: read %v: %w", cmd.Args(), err)
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	// The note of a death is about no job that is there. Its name has a space.
	running := slices.DeleteFunc(spans.Val(), func(name string) bool { return strings.Contains(name, " ") })
	s := &snapshot{
		now: now.Val().UnixMicro(), jobs: jobs.Val(), stats: stats.Val(), fence: fence.Val(), idle: idle.Val(), spans: running, cancels: cancels.Val(),
		due: due.Val(), sessions: live.Val(), ended: make(map[Outcome][]redis.Z),
		ready: make(map[string][]string), inflight: make(map[string]map[string]string),
	}
	s.expires, s.paused = expires.Val(), make(map[string]bool)
	for _, field := range bounds.Val() {
		if key, is := strings.CutPrefix(field, pauseField); is {
			s.paused[key] = true
		}
	}
	s.lined, s.turns, s.groups = lined.Val(), turns.Val(), groups.Val()
	s.counted, s.parked, s.limits = counted.Val(), parked.Val(), limitsOf(settings.Val()[limitsField])
	s.flows, s.awaiting, s.flownotes, s.flowtimes = flows.Val(), awaiting.Val(), flownotes.Val(), flowtimes.Val()
	s.unique, s.windows = unique.Val(), windows.Val()
	for state, cmd := range ended {
		s.ended[state] = cmd.Val()
	}
	for class, cmd := range ready {
		s.ready[class] = cmd.Val()
	}
	for id, cmd := range inflight {
		s.inflight[id] = cmd.Val()
	}
	return s, nil
}
