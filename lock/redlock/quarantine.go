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

// The two markers that clients leave on each node. One names the run of the server and the memory that has the
// locks. The other lives as long as the node doesn't count.
const (
	runMarker   = "signalbox:redlock:run"
	freshMarker = "signalbox:redlock:fresh"
)

// A memory is what a node has remembered without a break: its locks and votes. A new one begins with each start of
// the server, and when the server is flushed. Data from an earlier memory may be older than what the
// server did last, whatever its persistence says. A snapshot is older. An append-only file may lack its
// end. And settings change while a server runs. So two things are not believed:
//
//   - Locks. The server may have forgotten one that is held, and would grant it again. So the node
//     doesn't count until all of them would have expired. This is Redlock's delayed restart.
//   - Token registers. A register may be older than the last vote. So each counts for no less than the
//     memory's floor: the server's clock when the node begins to count, plus 2 s. All votes of
//     an earlier memory are less, if the clocks of the nodes agree to within the delay.
//
// Each memory has a marker on the node, with the memory's name, the run_id of the server and the floor. Each
// acquire names the marker that it expects. The node does nothing if it has another. A snapshot may bring an
// old marker back. That one has another run_id than the server. No client believes it: each client reads the run_id
// first on every new connection, and no connection outlives the server's process. (So no proxy may stand between
// that keeps a client's connection and makes a new one to the server.)
type memory struct {
	delay time.Duration // 0: no delay, and memories are not told apart

	marker string    // as it is on the node; empty: unknown
	name   string    // the random part of the last known marker
	rests  time.Time // the node doesn't count before that

	markerArg, floorArg any // arguments of the scripts
}

// join reads the marker of the server's memory, or leaves a new one. rdb must be the connection that answered with
// this run_id.
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
		// We knew the node with another memory. The server says since when the new marker is there, by a clock that
		// may step. Our own clock can be trusted.
		rest = m.delay
	}
	if rest > 0 {
		rest += rest/100 + 2*time.Millisecond // the drift that a lease allows for
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

// forgot notes that the node's marker is gone.
func (n *node) forgot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.memory.marker = ""
	n.known = false
}

var errForgot = errors.New("it lost its memory")

// resting returns why the node doesn't count yet; nil: it counts.
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
