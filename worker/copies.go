package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A copier copies jobs that died to the queue that the settings name. Its goroutine waits for nobody but Redis, and nobody waits for it. What it
// doesn't copy now, it or another worker copies within a minute or two: Redis has a note of each death until then. While the other queue is full, it
// asks more often whether there is room.
type copier struct {
	q    *queue
	news chan struct{} // there is something to do
	on   bool          // the settings name a queue; guarded by the queue's mu, as are the next two
	dead []string      // jobs that died, as far as they were heard of
	all  bool          // it looks for all notes
}

// maxHeard is how many deaths are kept until they are copied. If there are more, all notes are looked for.
const maxHeard = 10_000

// died has jobs copied that are dead now, if the queue's dead jobs are copied. It doesn't block.
func (c *copier) died(ids ...string) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.on || len(ids) == 0 {
		return
	}
	if c.all = c.all || len(c.dead)+len(ids) > maxHeard; !c.all {
		c.dead = append(c.dead, ids...)
	}
	c.begin()
}

// diedOf has the jobs of settlements copied that Redis was asked to bury. The notes say which of them have died.
func (c *copier) diedOf(batch []store.Settlement) {
	var ids []string
	for i := range batch {
		if batch[i].Outcome == store.Dead {
			ids = append(ids, batch[i].ID)
		}
	}
	if len(ids) > 0 {
		c.died(ids...)
	}
}

// copyAll has all jobs copied whose deaths are noted: those that a worker left when it was killed, or when a call failed.
func (c *copier) copyAll(on bool) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.on = on; on {
		c.all = true
		c.begin()
	}
}

// begin wakes the goroutine. The queue's mu is held.
func (c *copier) begin() {
	select {
	case c.news <- struct{}{}:
	default: // it is about to look
	}
}

// run copies jobs that died, until ctx ends.
func (c *copier) run(ctx context.Context) {
	from := c.q.store.Transfer().NewCopier()
	var room <-chan time.Time // the other queue was full: ask again
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-c.news:
		case <-room:
			again = true
		}
		c.q.mu.Lock()
		dead, all := c.dead, c.all
		c.dead, c.all = nil, false
		c.q.mu.Unlock()
		var err error
		began := time.Now()
		if all || again {
			err = c.copyNoted(ctx, from, !all)
		} else {
			err = c.copySome(ctx, from, dead, nil)
		}
		switch {
		case errors.Is(err, signalbox.ErrQueueFull):
			room = time.After(roomAfter())
		case all || again: // else others may wait for room
			room = nil
		}
		if err != nil && ctx.Err() == nil {
			c.notCopied(began, err)
		}
	}
}

// roomAfter returns how long after the other queue was full it is asked again: 1 to 5 s, so that many workers don't ask together.
func roomAfter() time.Duration { return time.Second + rand.N(4*time.Second) }

// copyNoted copies all jobs whose deaths are noted. Once the other queue refuses copies, it only removes the notes of jobs that need none. If it only
// asks for room, it ends with the first refusal.
func (c *copier) copyNoted(ctx context.Context, from *store.Copier, forRoom bool) error {
	var refused *store.CopyError
	for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
		ids, next, err := from.Noted(ctx, cursor)
		if err == nil {
			err = c.copySome(ctx, from, ids, refused)
		}
		if err != nil && (!errors.As(err, &refused) || forRoom) || ctx.Err() != nil {
			return err
		}
		cursor = next
	}
	if refused != nil {
		return refused
	}
	return nil
}

// copySome copies some jobs whose deaths are noted, unless the other queue has refused copies.
func (c *copier) copySome(ctx context.Context, from *store.Copier, ids []string, refused *store.CopyError) error {
	copyThem := from.Copy
	if refused != nil {
		copyThem = func(ctx context.Context, ids []string) (store.Copied, error) { return from.Tidy(ctx, ids, refused) }
	}
	done, err := copyThem(ctx, ids)
	if done.Jobs > 0 {
		c.q.log.Debug("signalbox: dead jobs were copied", "to", done.To, "jobs", done.Jobs)
	}
	for _, u := range done.Unfit {
		c.q.log.Error("signalbox: a dead job can't be copied, and stays where it is", "to", done.To, "job", u.ID, "error", brief(u.Err))
	}
	return err
}

// notCopied says why dead jobs are not copied yet. They are tried again within a minute or so.
func (c *copier) notCopied(began time.Time, err error) {
	refused, theirs := errors.AsType[*store.CopyError](err)
	if !theirs {
		c.q.contact.failed("copy", began, err)
		c.q.hint(true) // a lane's call says when Redis is back
		return
	}
	c.q.warn("copy:"+refused.To+":"+errorKind(err), "signalbox: dead jobs can't be copied, and are tried again; they stay where they are", "to", refused.To, "error", refused.Err)
}
