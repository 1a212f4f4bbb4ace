package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

const (
	// lookAgain is how often a node that is in use is checked.
	lookAgain = 30 * time.Second
	// lookUnfit is how often an unfit node is checked, while locks are asked for.
	lookUnfit = 200 * time.Millisecond
)

// look asks the server what it is, loads our scripts into it, and joins its memory. It fails if
// the server doesn't answer. What it finds goes into the node's state.
func (n *node) look(ctx context.Context, rdb redis.Cmdable) error {
	pipe := rdb.Pipeline()
	info := pipe.Info(ctx)
	for _, s := range []*nodeScript{acquireScript, extendScript, releaseScript} {
		pipe.Do(ctx, "script", "load", s.source)
	}
	sent := time.Now()
	_, _ = pipe.Exec(ctx) // some commands may be forbidden; none of them is needed
	text, err := info.Result()
	if err != nil && !lua.IsAnswer(err) {
		return err
	}
	if err != nil {
		n.judged(fmt.Errorf("%w: %s: INFO is refused (%w); Redlock must see that the server is a master by itself", lock.ErrInvalid, n.name(), err))
		return nil
	}
	fields := parseServerInfo(text)
	if !n.judge(fields, sent) {
		return nil
	}
	err = n.join(ctx, rdb, fields["run_id"])
	if errors.Is(err, lock.ErrInvalid) {
		n.judged(fmt.Errorf("%s: %w", n.name(), err))
		return nil
	}
	return err
}

// judge reports whether the server is fit, and notes its clock.
func (n *node) judge(fields map[string]string, sent time.Time) bool {
	if now, err := strconv.ParseInt(fields["server_time_usec"], 10, 64); err == nil {
		n.setClock(now, sent)
	}
	err := n.fault(fields)
	n.judged(err)
	return err == nil
}

func (n *node) judged(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unfit = err
	n.known = n.known && err == nil
	n.looked = time.Now()
	n.looks++
}

// fault returns what makes Redlock unsafe on this server; nil: nothing.
func (n *node) fault(fields map[string]string) error {
	run, role, policy := fields["run_id"], fields["role"], fields["maxmemory_policy"]
	switch {
	case run == "" || role == "":
		return fmt.Errorf("%w: %s: INFO has no run_id or no role; Redlock must see that the server is a master by itself", lock.ErrInvalid, n.name())
	case role != "master":
		return fmt.Errorf("%w: %s is a replica of %s:%s: its locks are its master's, and so no vote of its own; name masters that have nothing to do with each other",
			lock.ErrInvalid, n.name(), fields["master_host"], fields["master_port"])
	case fields["cluster_enabled"] == "1":
		return fmt.Errorf("%w: %s is a node of a Redis Cluster: a failover there may forget locks, and it serves only a part of the keys; use lock.New on the Cluster, or masters by themselves for Redlock", lock.ErrInvalid, n.name())
	case fields["maxmemory"] != "0" && policy != "noeviction" && policy != "":
		return fmt.Errorf("%w: %s has a memory limit and maxmemory-policy %s, by which it may evict a lock that is held; set it to noeviction", lock.ErrInvalid, n.name(), policy)
	}
	if twin := n.locker.enlist(run, n); twin != nil {
		return fmt.Errorf("%w: %s is the same server as %s: it would vote twice; name each server once", lock.ErrInvalid, n.name(), twin.name())
	}
	return n.clockFault()
}

// clockFault returns an error if the node's clock is far ahead of the other known clocks. They are estimated from
// replies and the time since. That is right to within some seconds.
func (n *node) clockFault() error {
	clocks := n.locker.clocks()
	now, far := newest(clocks)
	if own := clocks[n.index]; far && own > now {
		return fmt.Errorf("%s: %w", n.name(), clockAhead(own, now))
	}
	return nil
}

// parseServerInfo reads a reply of INFO.
func parseServerInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
