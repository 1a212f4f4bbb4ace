package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The markers that a client leaves on each node: of the run and the memory in which the
// locks are, and one that lives as long as the node doesn't count.
const (
	runMarker   = "signalbox:redlock:run"
	freshMarker = "signalbox:redlock:fresh"
)

// A memory is what a node remembers its locks by. A node that restarted, or was flushed, may
// have forgotten locks that are held, and would grant them again. So it
// doesn't count until all of them would have expired: the recipe's delayed restart.
type memory struct {
	delay time.Duration // 0: no delay

	run    string    // the server's run_id when it was joined
	marker string    // as it is on the node; empty: unknown
	name   string    // the random part of the last marker known
	rests  time.Time // the node doesn't count before
}

// join learns the marker, or leaves one. lasting tells that by its settings the server
// remembers all after its end.
func (n *node) join(ctx context.Context, rdb redis.Scripter, run string, lasting bool) error {
	n.mu.Lock()
	m := n.memory
	n.mu.Unlock()
	if m.delay == 0 || m.marker != "" && m.run == run {
		return nil
	}
	reply, err := redlockJoinScript.Run(ctx, rdb, []string{runMarker, freshMarker},
		run, newValue(), m.delay.Milliseconds(), boolInt(lasting)).Result()
	if isWrongType(err) {
		return fmt.Errorf("%w: %s or %s holds something else: %w", ErrInvalid, runMarker, freshMarker, err)
	}
	if err != nil {
		return fmt.Errorf("leaving a marker of its memory: %w", err)
	}
	marker, rest, err := parseJoined(reply)
	if err != nil {
		return err
	}
	fields := strings.Fields(marker)
	if m.name != "" && m.name != fields[1] {
		// We knew it with another memory. For how long the marker of the new one has been
		// there is told by a clock that may step, and ours we can trust.
		rest = m.delay
	}
	if rest > 0 {
		rest += rest/100 + 2*time.Millisecond // as a lease's drift
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.memory.run, n.memory.marker, n.memory.name = run, marker, fields[1]
	if end := time.Now().Add(rest); rest > 0 && end.After(n.memory.rests) {
		n.memory.rests = end
	}
	return nil
}

// forgot notes that the node's marker is no more.
func (n *node) forgot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.memory.marker = ""
	n.known = false
}

var errForgot = errors.New("it lost its memory")

// resting is why the node doesn't count yet, if so.
func (m *memory) resting() error {
	left := time.Until(m.rests)
	if m.rests.IsZero() || left <= 0 {
		return nil
	}
	return fmt.Errorf("new here, restarted or lost its memory: it counts in %v, when all locks that it may have forgotten have expired", left.Round(100*time.Millisecond))
}

// parseJoined reads a reply of redlock_join.lua.
func parseJoined(reply any) (marker string, rest time.Duration, err error) {
	fields, _ := reply.([]any)
	if len(fields) == 2 {
		marker, _ := fields[0].(string)
		ms, ok := fields[1].(int64)
		if ok && ms >= 0 && len(strings.Fields(marker)) == 3 {
			return marker, time.Duration(ms) * time.Millisecond, nil
		}
	}
	return "", 0, unexpected(reply)
}
