package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A Snapshot is all that a queue has in Redis, at one moment.
type Snapshot struct {
	Jobs      map[string]string
	Ready     map[string][]string // by the class that stands for the list: '0', '1', '2', 's'
	Due       []redis.Z
	Sessions  []redis.Z
	Inflight  map[string]map[string]string  // by session
	Ended     map[signalbox.State][]redis.Z // terminal jobs, by their state
	now       int64                         // the server's clock, in us
	Fence     string                        // "" if there is none
	stats     map[string]string
	idle      []string // addresses
	spans     []string // ids
	cancels   map[string]string
	expires   []redis.Z
	Lined     []string
	parked    []string
	counted   map[string]string // what RUNNING has
	limited   bool              // the queue has a limit of running jobs
	turns     []redis.Z
	groups    map[string]string
	paused    map[string]bool // keys of groups
	unique    map[string]string
	windows   []redis.Z
	Flows     map[string]string
	Awaiting  []string
	flownotes map[string]string
	flowtimes []string
	stray     []string // keys that no queue has
}

// Read reads the queue in one transaction. Which sessions there are has to be known before,
// so it looks again if there are others by then.
func Read(ctx context.Context, q *facts.Site) (*Snapshot, error) {
	for range 10 {
		sessions, stray, err := findSessions(ctx, q)
		if err != nil {
			return nil, err
		}
		s, err := readAll(ctx, q, sessions)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(s.Sessions, func(z redis.Z) bool { return s.Inflight[z.Member.(string)] == nil }) {
			s.stray = stray
			return s, nil
		}
	}
	return nil, facts.ErrMoving
}

// findSessions returns the sessions that are registered or have deliveries, and the keys
// that don't belong.
func findSessions(ctx context.Context, q *facts.Site) (sessions, stray []string, err error) {
	registered, err := q.Client.ZRange(ctx, q.Keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, nil, err
	}
	found := make(map[string]bool)
	for _, id := range registered {
		found[id] = true
	}
	keys, err := q.AllKeys(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		switch kind, session := q.KindOf(key); kind {
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

func readAll(ctx context.Context, q *facts.Site, sessions []string) (*Snapshot, error) {
	k := &q.Keys
	tx := q.Client.TxPipeline()
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
	ended := make(map[signalbox.State]*redis.ZSliceCmd)
	for _, state := range facts.EndedStates {
		ended[state] = tx.ZRangeWithScores(ctx, k.Named[facts.EndedKey(state)], 0, -1)
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
	s := &Snapshot{
		now: now.Val().UnixMicro(), Jobs: jobs.Val(), stats: stats.Val(), Fence: fence.Val(), idle: idle.Val(), spans: running, cancels: cancels.Val(),
		Due: due.Val(), Sessions: live.Val(), Ended: make(map[signalbox.State][]redis.Z),
		Ready: make(map[string][]string), Inflight: make(map[string]map[string]string),
	}
	s.expires, s.paused = expires.Val(), make(map[string]bool)
	for _, field := range bounds.Val() {
		if key, is := strings.CutPrefix(field, "p"); is {
			s.paused[key] = true
		}
	}
	s.Lined, s.turns, s.groups = lined.Val(), turns.Val(), groups.Val()
	s.counted, s.parked, s.limited = counted.Val(), parked.Val(), !strings.HasPrefix(cmp.Or(settings.Val()["limits"], "0 "), "0 ")
	s.Flows, s.Awaiting, s.flownotes, s.flowtimes = flows.Val(), awaiting.Val(), flownotes.Val(), flowtimes.Val()
	s.unique, s.windows = unique.Val(), windows.Val()
	for state, cmd := range ended {
		s.Ended[state] = cmd.Val()
	}
	for class, cmd := range ready {
		s.Ready[class] = cmd.Val()
	}
	for id, cmd := range inflight {
		s.Inflight[id] = cmd.Val()
	}
	return s, nil
}
