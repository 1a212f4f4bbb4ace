package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// The markers that a client leaves on each node: of the run and the memory in which the
// locks are, and one that lives as long as the node doesn't count.
const (
	runMarker   = "signalbox:redlock:run"
	freshMarker = "signalbox:redlock:fresh"
)

// A memory is what a node remembers its locks and votes by. It begins with each start of the
// server, and when it was flushed. What it brings along from an earlier one may be older than
// what the server did last, whatever its persistence says: a snapshot is, an append-only file
// may lack its end, and settings change while a server runs. So two things are not believed:
//
//   - Locks. The server may have forgotten one that is held, and would grant it again. So the node
//     doesn't count until all would have expired: the recipe's delayed restart.
//   - Token registers. One may be older than the last vote. So each counts for no less than the
//     memory's floor: the server's clock when the node begins to count, and 2 s. What was voted for
//     in an earlier memory is less, if the clocks of the nodes agree to within the delay.
//
// Each memory has a marker on the node, with its name, the run_id of the server and the floor. Each
// acquire says the marker that it expects, and does nothing where there is another. One that
// a snapshot brings back has another run_id than the server has by then. No client takes it for the
// present one: each looks at the run_id on every new connection, before all else, and no connection outlives
// the server's process. (So nothing may stand between, that keeps a client's connection
// and makes a new one to the server.)
type memory struct {
	delay time.Duration // 0: no delay, and memories are not told apart

	marker string    // as it is on the node; empty: unknown
	name   string    // the random part of the last marker known
	rests  time.Time // the node doesn't count before

	markerArg, floorArg any // for the script
}

// join learns the marker of the memory that the server has now, or leaves one. rdb must be the connection on
// which the run_id was asked for.
func (n *node) join(ctx context.Context, rdb redis.Scripter, run string) error {
	n.mu.Lock()
	m := n.memory
	n.mu.Unlock()
	if m.delay == 0 {
		return nil
	}
	reply, err := joinScript.Run(ctx, rdb, []string{runMarker, freshMarker}, run, spec.NewValue(), m.delay.Milliseconds()).Result()
	if lua.IsWrongType(err) {
		return fmt.Errorf("%w: %s holds something else: %w", lock.ErrInvalid, runMarker, err)
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
	if n.memory.marker != marker {
		n.memory.marker, n.memory.name = marker, fields[1]
		n.memory.markerArg, n.memory.floorArg = marker, fields[2]
	}
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

// parseJoined reads a reply of join.lua.
func parseJoined(reply any) (marker string, rest time.Duration, err error) {
	fields, _ := reply.([]any)
	if len(fields) == 2 {
		marker, _ := fields[0].(string)
		ms, ok := fields[1].(int64)
		if ok && ms >= 0 && len(strings.Fields(marker)) == 3 {
			return marker, time.Duration(ms) * time.Millisecond, nil
		}
	}
	return "", 0, lua.Unexpected(reply)
}
