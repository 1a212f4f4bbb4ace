package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

const (
	maxFlowLooked    = 10_000 // how many jobs of a state [Inspector.FlowJobs] looks at
	maxFailedMembers = 100    // how many failed members it returns
)

// FlowJobs are the jobs of a batch that say how it goes: those that wait for it, and the members that have failed.
type FlowJobs struct {
	// Callbacks are in this order of states: awaiting, running, ready, scheduled, dead, cancelled, completed.
	Callbacks []Callback
	// Failed are the members that are dead, or cancelled, and have a record: the members that were cancelled with their batch have none. Largest groups come first. State of a group's Filter says which of both they are. The Filter may name jobs of other batches, too.
	Failed []ErrorGroup
	// FailedMembers are the first 100 of these members to end, without their Payload, Headers, Result and Cursor. The groups in Failed count all of them.
	FailedMembers []Job
	// Partial says that a state has more than 10,000 jobs, and the others weren't looked at. Jobs of the batch may be missing.
	Partial bool
}

// A Callback is a job that waits for a batch, or has waited for it.
type Callback struct {
	Job           // without its Payload, its Headers, its Result and its Cursor
	Awaits string // what it waits for: "success", "end" or "failure" of the batch
	// Released says that it waits no more, since what it waits for has come. It is false for a job that was cancelled while it waited, such as that of OnSuccess when a member has failed.
	Released bool
}

// FlowJobs looks for the callbacks of a batch and for its failed members. Redis has no list of them: it reads the jobs of the queue that wait for batches, and those that died or were cancelled since the batch was made. If a callback that hasn't ended is not among these, it also
// reads the jobs that run, that are ready and that are scheduled; if the batch is over, also those that have completed since and are kept. Of each state it reads 10,000 records at most, in short calls. So it finds no callback that has completed and wasn't kept, or was deleted.
//
// The error wraps [ErrNoFlow] if nothing is known of the batch, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) FlowJobs(ctx context.Context, queue, id string) (FlowJobs, error) {
	return i.flowJobs(ctx, queue, id, maxFlowLooked)
}

func (i *Inspector) flowJobs(ctx context.Context, queue, id string, most int) (FlowJobs, error) {
	if err := errors.Join(layout.ValidateQueue(queue), store.ValidateFlow(id)); err != nil {
		return FlowJobs{}, fmt.Errorf("inspect: %w", err)
	}
	q := i.store(queue)
	f, found, err := q.Flows().Get(ctx, id)
	if err != nil {
		return FlowJobs{}, fmt.Errorf("inspect: batch %s of queue %s: %w", id, queue, err)
	}
	if !found {
		return FlowJobs{}, i.noFlow(ctx, queue, id)
	}
	var jobs FlowJobs
	groups := make(map[errorKey]*ErrorGroup)
	look := func(state signalbox.State, from time.Time) error {
		looked := 0
		for v, err := range q.Looks().Jobs(ctx, looks.Listing{State: state, From: from}) {
			if err != nil {
				return fmt.Errorf("inspect: the %s jobs of batch %s of queue %s: %w", state, id, queue, err)
			}
			if looked++; looked > most {
				jobs.Partial = true
				return nil
			}
			if v.Flow != f.Name || v.FlowMark != f.Mark {
				continue
			}
			if awaits := awaitsOf(v.FlowRole); awaits != "" {
				jobs.Callbacks = append(jobs.Callbacks, callbackOf(&v, awaits))
			} else if state == signalbox.StateDead || state == signalbox.StateCancelled {
				addTo(groups, &v)
				jobs.FailedMembers = append(jobs.FailedMembers, withoutPayload(&v))
				if len(jobs.FailedMembers) >= 2*maxFailedMembers {
					jobs.FailedMembers = firstToEnd(jobs.FailedMembers)
				}
			}
		}
		return nil
	}
	err = look(signalbox.StateAwaiting, time.Time{})
	for _, state := range []signalbox.State{signalbox.StateRunning, signalbox.StateReady, signalbox.StateScheduled} {
		if err == nil && int64(len(jobs.Callbacks)) < f.Waiters {
			err = look(state, time.Time{})
		}
	}
	for _, state := range []signalbox.State{signalbox.StateDead, signalbox.StateCancelled} {
		if err == nil {
			err = look(state, f.Created)
		}
	}
	if err == nil && f.Over {
		err = look(signalbox.StateCompleted, f.Since)
	}
	if err != nil {
		return FlowJobs{}, err
	}
	jobs.Failed, jobs.FailedMembers = largestFirst(groups), firstToEnd(jobs.FailedMembers)
	return jobs, nil
}

// awaitsOf returns what a job waits for that has a link of a role, or "" if it waits for nothing.
func awaitsOf(role byte) string {
	switch role | 0x20 { // in lower case
	case store.AwaitsSuccess:
		return "success"
	case store.AwaitsEnd:
		return "end"
	case store.AwaitsFailure:
		return "failure"
	}
	return ""
}

// firstToEnd returns the jobs that ended first, at most maxFailedMembers of them.
func firstToEnd(jobs []Job) []Job {
	slices.SortStableFunc(jobs, func(a, b Job) int { return a.EndedAt.Compare(b.EndedAt) })
	return jobs[:min(len(jobs), maxFailedMembers)]
}

// withoutPayload returns a job of a list, without what is long or is of the list.
func withoutPayload(v *looks.View) Job {
	job := jobOf(v, &looks.Situation{})
	job.Payload, job.Headers, job.Result, job.Cursor = nil, nil, nil, ""
	return job
}

func callbackOf(v *looks.View, awaits string) Callback {
	c := Callback{withoutPayload(v), awaits, v.FlowRole&0x20 == 0}
	if c.State != signalbox.StateAwaiting {
		c.Waits = "" // what else keeps it from running wasn't read
	}
	return c
}
