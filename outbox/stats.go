package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// publish counts what waits, and writes it into Redis for tools, once for all relays in statsEvery. If Redis fails, it counts all the same: the metrics should
// say so just then.
func (r *Relay) publish(whole context.Context) error {
	ctx, cancel := context.WithTimeout(whole, callTimeout)
	defer cancel()
	t := r.plain()
	type numbers struct {
		shard
		store.OutboxState
	}
	queues := make(map[string]*numbers)
	of := func(name string) *numbers {
		s, ok := parseShard(name)
		if !ok {
			return nil
		}
		key := s.namespace + ":" + s.queue
		if queues[key] == nil {
			queues[key] = &numbers{shard: s}
		}
		return queues[key]
	}
	var now int64
	err := t.each(ctx, "SELECT shard, {now} FROM signalbox_outbox_shard", nil, func(scan func(...any) error) (bool, error) {
		var name string
		err := scan(&name, &now)
		if err == nil {
			of(name)
		}
		return true, err
	})
	if err == nil && now == 0 { // no relay has taken a row yet, and some may wait
		err = t.scan(ctx, "SELECT {now}", nil, &now)
	}
	if err != nil {
		return err
	}
	fresh, strays := make(map[string]store.OutboxState), int64(0)
	var failed error // of Redis
	for key, n := range queues {
		all, err := r.queue(ctx, n.shard).Outboxes().All(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
			if !answered(err) {
				break // the others would have to wait as long
			}
			continue
		}
		var said store.OutboxState
		if json.Unmarshal([]byte(all[r.box]), &said) == nil && said.At > now-statsEvery.Microseconds()*4/5 && said.At <= now {
			fresh[key], strays = said, said.Strays
		}
	}
	if len(fresh) < len(queues) || len(queues) == 0 {
		counting, cancel := context.WithTimeout(whole, callTimeout) // Redis may have taken all of the time
		defer cancel()
		strays, err = r.count(counting, t, now, func(name string) *store.OutboxState {
			if n := of(name); n != nil {
				return &n.OutboxState
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	depths := make(map[string]telemetry.OutboxDepth)
	for key, n := range queues {
		state, known := fresh[key]
		if !known {
			state = n.OutboxState
			state.At, state.Strays = now, strays
			text, err := json.Marshal(state)
			if err != nil {
				return err
			}
			if failed == nil || answered(failed) {
				if err := r.queue(ctx, n.shard).Outboxes().Set(ctx, r.box, string(text), statsTTL); err != nil {
					failed = errors.Join(failed, err)
				}
			}
		}
		depths[key] = telemetry.OutboxDepth{Namespace: n.namespace, Queue: n.queue, Backlog: state.Backlog, Dead: state.Dead, Lag: time.Duration(state.Lag(now)) * time.Microsecond}
	}
	if strays > 0 {
		depths[""] = telemetry.OutboxDepth{Dead: strays}
	}
	r.mu.Lock()
	r.depths = depths
	r.mu.Unlock()
	if outage, over := r.troubles.forget(time.Now()); over {
		r.again(ctx, outage)
	}
	return failed
}

// count counts the rows that wait and those that are dead, by shard. of returns nil for a shard that is none: the dead rows of these are the strays.
func (r *Relay) count(ctx context.Context, t dbTx, now int64, of func(shard string) *store.OutboxState) (strays int64, err error) {
	err = t.waiting(ctx, func(name string) error {
		to := of(name)
		if to == nil {
			return nil // it is about to be dead
		}
		n, err := t.rowsOf(ctx, name)
		if err != nil {
			return err
		}
		unsent, born, err := t.unsent(ctx, name)
		if err != nil {
			return err
		}
		if unsent > 0 && (to.Oldest == 0 || born < to.Oldest) {
			to.Oldest = min(born, now)
		}
		to.Backlog += n + unsent
		to.More = to.More || n == countedMost
		err = t.scan(ctx, "SELECT born FROM signalbox_outbox WHERE batch = 0 AND shard = ? ORDER BY pos LIMIT 1", []any{name}, &born)
		if err == nil && (to.Oldest == 0 || born < to.Oldest) {
			to.Oldest = min(born, now)
		}
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = t.each(ctx, "SELECT shard, COUNT(*) FROM signalbox_outbox_dead GROUP BY shard", nil, func(scan func(...any) error) (bool, error) {
		var name string
		var n int64
		err := scan(&name, &n)
		if to := of(name); to != nil {
			to.Dead += n
		} else {
			strays += n
		}
		return true, err
	})
	return strays, err
}

// waiting calls do for each shard that has rows that wait, or are in a batch that Redis isn't known to have.
func (t dbTx) waiting(ctx context.Context, do func(shard string) error) error {
	seen := make(map[string]bool)
	once := func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		return do(name)
	}
	if err := t.shards(ctx, once); err != nil {
		return err
	}
	var names []string
	err := t.each(ctx, "SELECT DISTINCT shard FROM signalbox_outbox_batch WHERE sent = 0", nil, func(scan func(...any) error) (bool, error) {
		var name string
		err := scan(&name)
		names = append(names, name)
		return true, err
	})
	for _, name := range names {
		if err == nil {
			err = once(name)
		}
	}
	return err
}

// unsent counts the rows of a shard's batches that Redis isn't known to have: such a batch waits while the queue has no room. It returns when the oldest
// row was born (us), 0 if there is none.
func (t dbTx) unsent(ctx context.Context, shard string) (n, born int64, err error) {
	err = t.scan(ctx, "SELECT COUNT(*), COALESCE(MIN(born), 0) FROM signalbox_outbox WHERE shard = ? AND batch IN (SELECT seq FROM signalbox_outbox_batch WHERE shard = ? AND sent = 0)",
		[]any{shard, shard}, &n, &born)
	return n, born, err
}

// rowsOf counts the rows of a shard that are in no batch, up to countedMost.
func (t dbTx) rowsOf(ctx context.Context, shard string) (n int64, err error) {
	err = t.scan(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM signalbox_outbox WHERE batch = 0 AND shard = ? LIMIT %d) AS waiting", countedMost), []any{shard}, &n)
	return n, err
}

// backlog counts all rows that wait. If more is set, there are more.
func (r *Relay) backlog(ctx context.Context) (n int64, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t := r.plain()
	err = t.waiting(ctx, func(name string) error {
		of, err := t.rowsOf(ctx, name)
		if err != nil {
			return err
		}
		unsent, _, err := t.unsent(ctx, name)
		n += of + unsent
		more = more || of == countedMost
		return err
	})
	return n, more, err
}

// observed returns the numbers for the metrics.
func (r *Relay) observed() []telemetry.OutboxDepth {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]telemetry.OutboxDepth, 0, len(r.depths))
	for _, d := range r.depths {
		all = append(all, d)
	}
	return all
}
