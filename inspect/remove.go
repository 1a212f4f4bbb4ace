package inspect

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// ErrInUse is wrapped by the [InUseError] of a queue that isn't removed.
var ErrInUse = errors.New("inspect: the queue is in use")

// An InUseError says why a queue isn't removed. Nothing was changed. It wraps [ErrInUse].
type InUseError struct {
	Queue string
	// Reasons has each thing that keeps the queue, and what to do about it, in the words of the command signalbox. There is one at least.
	Reasons []string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("inspect: queue %s isn't removed, because of: %s", e.Queue, strings.Join(e.Reasons, "; "))
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// Removal says how [Inspector.RemoveQueue] and [Inspector.RemoveQueues] go about it. The zero value removes a queue without jobs that nothing keeps.
type Removal struct {
	// UnusedFor keeps a queue in which a job has started, or which a worker has had, more recently than this, by the clock of Redis. 0 to 720 h; 0: it doesn't matter.
	UnusedFor time.Duration
	// Settings has settings go with the queue that otherwise keep it: its retention, limits, maximum length, slots, and where its dead jobs are copied to. Workers whose
	// Config has such settings write them again when they use the queue. A pause, what is held back, and a rate that still counts keep the queue all the same.
	Settings bool
	// DryRun looks, and changes nothing.
	DryRun bool
}

func (r Removal) validate() error {
	if longest := ByHour.Window(); r.UnusedFor < 0 || r.UnusedFor > longest {
		return fmt.Errorf("inspect: %w Removal.UnusedFor: %v; 0 to %.0fh is allowed", signalbox.ErrInvalid, r.UnusedFor, longest.Hours())
	}
	return nil
}

// RemoveQueue removes a queue that is empty and unused, with its statistics. Its name is no longer among those of [Inspector.Queues]. A later enqueue or worker
// makes the queue anew, and it is listed again.
//
// A queue is not removed if work would be lost or repeated without it, or a setting of an operator forgotten. The error is an [*InUseError] then, and names each reason. These are the reasons:
//
//   - jobs, also those that have ended and are kept;
//   - a worker, or deliveries of one that died;
//   - cron entries, or what is known of their last ticks: [Inspector.ForgetEntry];
//   - an outbox that has sent jobs to it: without what is kept of the last batches, a relay would send rows again: [Inspector.ForgetOutbox];
//   - unique keys with a window that is open;
//   - receipts of a [Move], which are kept for 30 days;
//   - settings, unless Removal.Settings is set; a pause of the queue or of a group; what is held back; a rate that counts jobs which have started; a worker that was asked to be quiet;
//   - another queue that copies its dead jobs to it: [Inspector.SetCopyDead];
//   - anything that this release doesn't know.
//
// Producers and workers may go on meanwhile. Redis decides and deletes in one step: a call that comes at that moment keeps the queue, or makes it anew. Keys that expire by
// themselves within an hour stay until then. A queue that is made anew has larger fencing tokens than before, unless Redis' clock was set back since.
//
// RemoveQueue goes through the names of all keys of the server, and needs the right SCAN for that. After an error it may be called again. The error wraps
// [ErrNoQueue] if nobody has used the queue, and [signalbox.ErrInvalid] if the queue's name or r makes no sense.
func (i *Inspector) RemoveQueue(ctx context.Context, queue string, r Removal) error {
	if err := r.validate(); err != nil {
		return err
	}
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	_, kept, err := i.remove(ctx, []string{queue}, r, true)
	if err == nil && len(kept) > 0 {
		return kept[0]
	}
	return err
}

// RemoveQueues removes those queues of the namespace that match a pattern and that [Inspector.RemoveQueue] would remove. In a pattern * is any text, ? one character, and
// [a-z] one of these. Called from time to time, as by the handler of a cron entry, it has queues go by themselves that a service names at run time: one for each tenant, say.
// Give UnusedFor then: otherwise a queue goes whenever it is empty and has no worker, and its statistics begin anew with its next job.
//
// It returns the names of those that were removed, sorted, with DryRun of those that would be, and the others that match with the reasons. If it returns an error, those that it returns are
// removed all the same. It may be called again, and by several processes at a time. The error wraps [signalbox.ErrInvalid] if the pattern or r makes no sense.
func (i *Inspector) RemoveQueues(ctx context.Context, pattern string, r Removal) (removed []string, kept []*InUseError, err error) {
	if err := r.validate(); err != nil {
		return nil, nil, err
	}
	slashes := strings.NewReplacer("/", "\x00") // to package path they are more than other characters
	if _, err := path.Match(slashes.Replace(pattern), ""); err != nil || pattern == "" {
		return nil, nil, fmt.Errorf("inspect: %w pattern %.200q: want a name in which * is any text, ? one character, and [a-z] one of these", signalbox.ErrInvalid, pattern)
	}
	names, err := store.Queues(ctx, i.rdb, i.cfg.Namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("inspect: the names of the queues: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		ok, err := path.Match(slashes.Replace(pattern), slashes.Replace(name))
		return err != nil || !ok
	})
	return i.remove(ctx, names, r, false)
}

// remove removes those of the queues that nothing keeps. With all set it looks for all reasons, also if there is one already.
func (i *Inspector) remove(ctx context.Context, names []string, r Removal, all bool) (removed []string, kept []*InUseError, err error) {
	how := store.Removal{Settings: r.Settings, Unused: r.UnusedFor, DryRun: true}
	reasons := make(map[string][]string)
	var left []string // those that nothing keeps so far
	for _, name := range names {
		found, err := i.store(name).Presence().Remove(ctx, how)
		if err != nil {
			return nil, nil, fmt.Errorf("inspect: remove queue %s: %w", name, err)
		}
		if reasons[name] = i.reasons(ctx, name, found); all || len(found) == 0 {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		named, err := store.Named(ctx, i.rdb, i.cfg.Namespace, left...)
		if err != nil {
			return nil, nil, fmt.Errorf("inspect: remove queues: the names of their keys: %w", err)
		}
		copies, err := store.CopiesTo(ctx, i.rdb, i.cfg.Namespace)
		if err != nil {
			return nil, nil, fmt.Errorf("inspect: remove queues: which queues copy dead jobs to them: %w", err)
		}
		for _, name := range left {
			reasons[name] = append(reasons[name], namedReasons(name, named[name])...)
			if from := copies[name]; len(from) > 0 {
				reasons[name] = append(reasons[name], fmt.Sprintf(`copies of the dead jobs of queue %s come here: end that (signalbox queue set %s --copy-dead "")`, some(from), from[0]))
			}
		}
	}
	how.DryRun = false
	for _, name := range names {
		if len(reasons[name]) == 0 && !r.DryRun {
			found, err := i.store(name).Presence().Remove(ctx, how)
			if err != nil {
				return removed, kept, fmt.Errorf("inspect: remove queue %s: %w", name, err)
			}
			if reasons[name] = i.reasons(ctx, name, found); len(found) == 0 {
				if err := i.store(name).Presence().Unlist(ctx); err != nil {
					return removed, kept, fmt.Errorf("inspect: queue %s is removed, and its name may still be listed; remove it again: %w", name, err)
				}
			}
		}
		if len(reasons[name]) > 0 {
			kept = append(kept, &InUseError{Queue: name, Reasons: reasons[name]})
		} else {
			removed = append(removed, name)
		}
	}
	return removed, kept, nil
}
