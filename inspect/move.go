package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// ErrTaken is wrapped by the error of a [Move] to a queue that has another job of the same ID. Nothing was changed.
var ErrTaken = errors.New("inspect: the ID is taken")

// Move moves a job that is scheduled, ready, dead or cancelled to another queue of the namespace. A job that runs isn't moved: cancel it, or
// wait. One that has completed, and is kept, isn't either.
//
// The job keeps its ID, its state, and all that its record says: arguments, headers, priority, attempts, crashes, errors and times. A ready job goes
// behind those that are ready there. A dead one stays dead, with the time of its end: retry it there to run it. It is dropped there if it
// ended before the time that the queue keeps such jobs for. The effect key goes along: it is the one
// that the job had in its first queue, so an effect that was recorded isn't had again. The fencing tokens don't: those of the other queue are a sequence of
// their own. They are larger than the job's earlier ones unless that queue's Redis has a clock that is behind. The span of the last attempt is forgotten.
// A job of a group doesn't hold it any more, and waits in the line of its group there, at the place of the time when it was due.
// In the statistics the job counts as deleted here, and as enqueued there.
//
// The queues may be on two servers of a Cluster, so a move has several steps. Between them the job is held in both queues: no worker gets
// it, nothing else can be done to it, and it counts as scheduled. If the process dies meanwhile, or Redis doesn't answer, the job may stay
// held. Its Waits says so. Then do the same Move again: it ends what was begun, and afterwards the job is in one queue. It never runs because of both: however often and wherever a
// Move was stopped, and also if others do the same Move at the same time. This rests on Redis keeping what it acknowledged. A failover loses
// no job that the first queue still knows, or that the other queue has a copy of. One that forgets that the job was held may have it run in both, with the same effect key.
//
// [Inspector.DoAll] first ends the moves to the same queue of jobs in the filter's state that were not finished, whatever their ages.
//
// The error wraps [ErrKeyTaken] if another job of the other queue has the job's unique key, [ErrTaken] if the other queue has a job of the same ID, also one
// that has ended and is kept, and [ErrNoQueue] if nobody has used the other queue.
type Move struct {
	To string // the other queue
}

func (a Move) validate() error {
	if err := layout.ValidateQueue(a.To); err != nil {
		return fmt.Errorf("%w Move.To: %s", signalbox.ErrInvalid, strings.TrimPrefix(err.Error(), signalbox.ErrInvalid.Error()+" "))
	}
	return nil
}

func (a Move) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	answers, err := q.Transfer().Move(ctx, a.To, ids, states...)
	_ = q.Sibling(a.To).Presence().Register(ctx) // it may have been removed since reaches did so
	if err != nil {
		return answers, err
	}
	var failed failures
	for i, answer := range answers {
		switch answer.Acted {
		case store.Failed:
			failed.add(fmt.Errorf("job %s: its record can't be read", ids[i]))
		case store.Occupied:
			failed.add(fmt.Errorf("job %s: %w: queue %s has a job of this ID", ids[i], ErrTaken, a.To))
		case store.KeyTaken:
			failed.add(fmt.Errorf("job %s: %w in queue %s", ids[i], ErrKeyTaken, a.To))
		case store.InFlow:
			failed.add(fmt.Errorf("job %s: %w move: all jobs of a batch are of its queue", ids[i], ErrInBatch))
		case store.Done, store.Gone, store.Wrong, store.Changed, store.Lost:
		}
	}
	return answers, failed.err()
}

func (Move) done(_ *Job) bool                   { return false }
func (Move) about() (string, []signalbox.State) { return "Move", store.MoveStates() }

// reaches returns an error if an action on jobs of a queue concerns another queue that isn't there.
func (i *Inspector) reaches(ctx context.Context, queue string, a Action) error {
	move, ok := a.(Move)
	if !ok {
		return nil
	}
	if move.To == queue {
		return fmt.Errorf("inspect: %w Move.To: the jobs are in queue %q already", signalbox.ErrInvalid, queue)
	}
	return i.listed(ctx, move.To)
}

// found yields the jobs for an action: first those that it had begun with, then those of the filter.
func (i *Inspector) found(ctx context.Context, queue string, f Filter, a Action) iter.Seq2[Job, error] {
	move, ok := a.(Move)
	if !ok {
		return i.list(ctx, queue, f, true)
	}
	return func(yield func(Job, error) bool) {
		if err := i.known(ctx, queue); err != nil {
			yield(Job{}, err)
			return
		}
		for view, err := range i.store(queue).Transfer().Unmoved(ctx, move.To, f.State, f.IDPrefix) {
			if err != nil {
				yield(Job{}, fmt.Errorf("inspect: the jobs of queue %s that are held: %w", queue, err))
				return
			}
			if !yield(jobOf(&view, &looks.Situation{}), nil) {
				return
			}
		}
		for job, err := range i.list(ctx, queue, f, true) {
			if err == nil && job.held {
				continue
			}
			if !yield(job, err) {
				return
			}
		}
	}
}

// heldFor says why a job is held.
func heldFor(h *store.Held) string {
	if h.Copy {
		return fmt.Sprintf("it is held: a copy of the job in queue %s, from which it is being moved; if no move is under way, move it from there once more", h.Peer)
	}
	return fmt.Sprintf("it is held: it is being moved to queue %s, and was %s; if no move is under way, move it there once more", h.Peer, h.State)
}
