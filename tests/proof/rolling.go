package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// The nodes of a Redlock are restarted one after the other, as docs/locks/redlock.md says, under holders that extend and under contenders. Each
// process holds one lock for several restarts. The rule that is checked: no such lock is lost.
const (
	rollingNodes = 3
	// rollingTTL is the TTL and the MaxTTL. It is long enough for a busy machine.
	rollingTTL     = time.Second
	rollingTimeout = 200 * time.Millisecond
	// restartPause is how long after one restart the next may come: MaxTTL, with its drift, and a TTL.
	restartPause = rollingTTL + rollingTTL/100 + rollingTTL
	// A process holds each lock for this long: over four restarts.
	holdTime = 5 * restartPause
	// Between two tries, a contender waits for half of this to all of it.
	contenderPause = 200 * time.Millisecond
	// A holder is late if the next extension begins later than this after the last one. lock.Do extends after a third of the TTL.
	lateAfter = rollingTTL * 2 / 3
	// bareFor is for how long a new lock may be on a bare majority of the nodes: for two tries of contenders to end on a busy machine.
	bareFor = rollingTTL / 4
	// overRestarts is the least number of restarts under one holding that counts. Of three nodes, the second restart in a row takes the majority
	// of a lock that is not set again.
	overRestarts = rollingNodes/2 + 1
)

// restartFault is the name of the windows of this history.
const restartFault = "restart of a node"

// roll works until ctx ends. The first worker of a process holds locks. The next two want the locks that others hold. The rest do nothing.
func (w *worker) roll(ctx context.Context, i int) error {
	for ctx.Err() == nil && i < 3 {
		place := (w.client.task.ID + int64(i)) % processes
		now := monotonic() + place*int64(holdTime)/processes // the places don't begin at the same time
		span := now / int64(holdTime)
		key, end := fmt.Sprintf("rolling:%d:%d", place, span), time.Duration((span+1)*int64(holdTime)-now)
		var err error
		if i == 0 {
			err = w.holdOver(ctx, key, end)
		} else {
			err = w.contend(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holdOver holds a lock for a while, and extends it as lock.Do does.
func (w *worker) holdOver(ctx context.Context, key string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	l, id, err := w.ask(ctx, key, w.locker.Acquire)
	if err != nil {
		return err
	}
	if l == nil { // at the start, the nodes don't count yet
		w.wait(ctx, contenderPause)
		return nil
	}
	for {
		w.wait(ctx, rollingTTL/3)
		if ctx.Err() != nil {
			return w.release(context.WithoutCancel(ctx), l, id)
		}
		if err := w.extend(ctx, l, id); err != nil {
			return err
		}
		if l.Context().Err() != nil { // it is lost
			w.wait(ctx, d)
			return nil
		}
	}
}

// contend tries to get a lock once. If it gets it, the lock is free, and it releases it.
func (w *worker) contend(ctx context.Context, key string) error {
	l, id, err := w.ask(ctx, key, w.locker.TryAcquire)
	if err == nil && l != nil {
		err = w.release(context.WithoutCancel(ctx), l, id)
	}
	w.wait(ctx, contenderPause/2+w.upTo(contenderPause/2))
	return err
}

// A rolling is a bound of the history of rolling restarts: it lasts until there were that many restarts and that many holdings which count.
type rolling struct {
	restarts, holdings int
}

// rolling returns the bound for the history of rolling restarts.
func (f flags) rolling() rolling {
	if f.quick {
		return rolling{8, 10}
	}
	return rolling{30, 60}
}

// recordRolling runs servers and clients, and restarts the servers. When it returns, none of them is left.
func recordRolling(ctx context.Context, restarts int, seed uint64) (h history, err error) {
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.close()
		}
	}()
	var addrs []string
	for range rollingNodes {
		s, err := startServer(ctx)
		if err != nil {
			return h, err
		}
		servers = append(servers, s)
		addrs = append(addrs, s.addr)
	}
	began := time.Now()
	c, err := newCrew(task{Addrs: addrs, Seed: seed, Rolling: true})
	if c != nil {
		defer c.kill()
	}
	if err != nil {
		return h, err
	}

	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	clock := make(chan error, 1)
	go func() { defer cancel(); clock <- watchWallClock(inner) }()
	var windows []window
	wait(inner, restartPause+rollingTTL) // the nodes are new, and don't count at first
	for i := 0; i < restarts && inner.Err() == nil; i++ {
		s := servers[i%len(servers)]
		w := window{name: restartFault, begin: monotonic()}
		s.process.kill()
		w.forgot = monotonic()
		if err = s.run(context.WithoutCancel(ctx), fromNothing); err != nil {
			break
		}
		w.end = monotonic()
		windows = append(windows, w)
		wait(inner, restartPause)
		if err = c.broken(); err != nil {
			break
		}
	}
	cancel()
	err = errors.Join(err, <-clock, ctx.Err())
	ops, err2 := c.stop()
	return history{ops, windows, time.Since(began), c.started}, errors.Join(err, err2)
}

// A holdings has what became of the locks that were held over restarts.
type holdings struct {
	kept    int // over overRestarts restarts or more
	excused int // lost, and that was permitted
	lost    int // lost, though no rule permits it

	examples []string
}

// checkHoldings checks that no lock was lost in a rolling restart. A lock that is extended may be lost only if a restart began before restartPause
// had passed since the one before; if one came right after it was acquired, since it may have no more than a majority for a moment, if another try had a
// node; or if the holder was late: it began an extension too late, or waited for an answer for as long as a
// node may take. Else the process, or a majority of the nodes, had no time to run.
func checkHoldings(ops []operation, windows []window) (h holdings) {
	byKey := map[string][]operation{}
	for _, o := range ops {
		byKey[o.key] = append(byKey[o.key], o)
	}
	for key, ops := range byKey {
		for _, l := range leasesOf(ops) {
			h.check(key, holdingOf(l, ops), windows)
		}
	}
	return h
}

// holdingOf returns the grant of a lease and its extensions and release, in their order.
func holdingOf(l lease, ops []operation) []operation {
	own := slices.DeleteFunc(slices.Clone(ops), func(o operation) bool {
		return o.process != l.grant.process || o.lease != l.grant.lease || o.back == never
	})
	slices.SortFunc(own, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	return own
}

func (h *holdings) check(key string, own []operation, windows []window) {
	grant, last := own[0], own[len(own)-1]
	i := slices.IndexFunc(own, func(o operation) bool { return o.result == lost })
	if i >= 0 {
		own, last = own[:i+1], own[i]
	}
	var under []window
	for _, w := range windows {
		if w.begin > grant.back && w.begin < last.call {
			under = append(under, w)
		}
	}
	switch {
	case i < 0 && len(under) >= overRestarts:
		h.kept++
	case i < 0:
	case late(own) || tooSoon(under) || i == 1 && len(under) > 0 && under[0].begin < grant.back+int64(bareFor):
		h.excused++
	default:
		h.lost++
		if h.lost <= maxExamples {
			h.examples = append(h.examples, fmt.Sprintf("%s: the lock with token %d was lost after %d restarts:%s", key, grant.token, len(under), listing(own)))
		}
	}
}

// late reports whether a holder began an extension too late, or waited too long for its end.
func late(own []operation) bool {
	for i, o := range own[1:] {
		if o.call-own[i].back > int64(lateAfter) || o.back-o.call >= int64(rollingTimeout) {
			return true
		}
	}
	return false
}

// tooSoon reports whether a restart began before the last one was over by restartPause.
func tooSoon(windows []window) bool {
	for i := range windows[:max(0, len(windows)-1)] {
		if windows[i+1].begin < windows[i].end+int64(restartPause) {
			return true
		}
	}
	return false
}

// plantLost makes the last extension of a lock that was kept fail, as if the lock was lost.
func plantLost(ops []operation, windows []window) ([]operation, bool) {
	ops = slices.Clone(ops)
	for i := len(ops) - 1; i >= 0; i-- {
		o := ops[i]
		ops[i].result = lost
		if o.do == extend && o.result == done && checkHoldings(ops, windows).lost > 0 {
			return ops, true
		}
		ops[i] = o
	}
	return nil, false
}

// proveRolling records a history of rolling restarts, checks it and prints the results. It returns an error if a promise was broken, and if
// the history or the checks prove nothing.
func proveRolling(ctx context.Context, b rolling, seed uint64, out io.Writer) (v verdict, err error) {
	fmt.Fprintf(out, "Rolling restarts of Redlock on %d masters: %d client processes hold locks for %v, TTL and MaxTTL %v, %d restarts %v apart\n",
		rollingNodes, processes, holdTime, rollingTTL, b.restarts, restartPause)
	h, err := recordRolling(ctx, b.restarts, seed)
	if err != nil {
		return v, fmt.Errorf("rolling restarts: %w", err)
	}
	v = check(h.ops, nil, patience)
	held := checkHoldings(h.ops, h.windows)
	h.print(out, []string{restartFault})
	v.print(out)
	fmt.Fprintf(out, "  %d locks were held over %d restarts or more; lost: %d, and %d by holders that were late\n", held.kept, overRestarts, held.lost, held.excused)
	for _, e := range held.examples {
		fmt.Fprintf(out, "  VIOLATION: %s\n", e)
	}
	if !v.ok() || held.lost > 0 {
		err = errors.New("the lock broke a promise, or it isn't known whether it did")
	}
	if held.kept < b.holdings {
		err = errors.Join(err, fmt.Errorf("%d locks were held over %d restarts or more; with less than %d the run is invalid", held.kept, overRestarts, b.holdings))
	}
	if _, ok := plantLost(h.ops, h.windows); !ok && held.kept > 0 {
		err = errors.Join(err, errors.New("a lost lock was planted, and the check doesn't see it: it is blind"))
	}
	if err != nil {
		err = fmt.Errorf("rolling restarts: %w", err)
	}
	return v, err
}
