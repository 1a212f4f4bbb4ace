package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// reasons returns in words what keeps a queue, and what to do about each.
func (i *Inspector) reasons(ctx context.Context, queue string, found []store.Reason) (words []string) {
	var workers, settings, unknown []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, r := range found {
		at := r.Time.UTC().Format(time.RFC3339)
		switch r.What {
		case store.KeptByLive:
			add("jobs that haven't ended, %s: wait for workers, or delete those that wait (signalbox queue delete-waiting %s --scheduled)", r.Detail, queue)
		case store.KeptByDead, store.KeptByCancelled:
			add("%s jobs, %s: retry or delete them (signalbox job rm %s --state %s)", r.What, r.Detail, queue, r.What)
		case store.KeptByCompleted:
			add("completed jobs that are kept, %s: let the queue keep none (signalbox queue set %s --keep-completed=false), and its workers drop them within minutes", r.Detail, queue)
		case store.KeptBySession:
			workers = append(workers, (&looks.Situation{Sessions: []string{r.Detail}}).Workers()...)
		case store.KeptByEntries:
			add("%s", i.entriesReason(ctx, queue))
		case store.KeptByOutbox:
			add("an outbox whose relay has reported rows of the queue within a minute (signalbox outbox ls): wait until no program puts rows of the queue into it any more")
		case store.KeptByUnique:
			add("a unique key with a window that is open: wait until %s", at)
		case store.KeptByReceipt:
			add("a receipt of a move, without which a late mover would put its job there once more: wait until %s", at)
		case store.KeptByFlow:
			add("batches that aren't over, or whose IDs are remembered, %s: list them (signalbox flow ls %s), and wait until they are forgotten, a day after they are over", r.Detail, queue)
		case store.KeptByPause:
			add("a pause: resume the queue (signalbox queue resume %s)", queue)
		case store.KeptByGroup:
			add("paused groups, %s: list and resume them (signalbox queue hold %s, signalbox queue resume %s --group KEY)", r.Detail, queue, queue)
		case store.KeptByQuiet:
			add("worker %s was asked to take no jobs or to end: take it back (signalbox worker unquiet), or wait for a day", r.Detail)
		case store.KeptByHold:
			add("jobs are held back until %s: wait, or end that (signalbox queue hold %s --lift, of a group with --group KEY)", at, queue)
		case store.KeptByRate:
			add("a rate counts jobs that have started: wait until %s", at)
		case store.KeptBySetting:
			settings = append(settings, settingName(r.Detail))
		case store.KeptByUnknown:
			unknown = append(unknown, r.Detail)
		case store.KeptByFence:
			add("the last fencing token is ahead of Redis' clock: set the clock right, or wait until %s", at)
		case store.KeptByUse:
			add("a worker had the queue at %s, which is not long enough ago: wait, or ask for a shorter time without use", at)
		default:
			unknown = append(unknown, string(r.What))
		}
	}
	if len(workers) > 0 {
		slices.Sort(workers)
		add("worker %s works the queue: stop it, or take the queue out of its configuration", some(slices.Compact(workers)))
	}
	if len(settings) > 0 {
		slices.Sort(settings)
		add("settings, %s: remove them, too (signalbox queue rm %s --settings)", some(slices.Compact(settings)), queue)
	}
	if len(unknown) > 0 {
		add("something that this release doesn't know, %s: use a newer release", some(unknown))
	}
	return words
}

// settingName returns in words what a field of the settings says.
func settingName(field string) string {
	switch field {
	case "keep":
		return "what is kept of dead and cancelled jobs"
	case "keep_completed":
		return "what is kept of completed jobs"
	case "copy_dead":
		return "copies of dead jobs"
	case "limits":
		return "limits of the queue"
	case "group_limits":
		return "limits of all groups"
	case "max_length":
		return "a maximum length"
	}
	return field // "slots", "limits of groups"
}

// entriesReason says which cron entries keep a queue.
func (i *Inspector) entriesReason(ctx context.Context, queue string) string {
	names, err := i.store(queue).Cron().EntryNames(ctx)
	if err != nil || len(names) == 0 {
		return "ticks of cron entries that no scheduler has described: when no process has these entries any more, delete the queue's keys cron and entries"
	}
	return fmt.Sprintf("cron entries, %s: take them out of all processes, and forget each three minutes later (signalbox cron rm %s --queue %s)", some(names), names[0], queue)
}

// namedReasons returns in words which of a queue's keys with names of their own keep it.
func namedReasons(queue string, keys []store.NamedKey) (words []string) {
	of := make(map[string][]string) // by the kind
	for _, k := range keys {
		switch k.Kind {
		case "":
			of[""] = append(of[""], k.Key)
		default:
			of[k.Kind] = append(of[k.Kind], k.Of)
		}
	}
	if boxes := slices.Compact(of["outbox"]); len(boxes) > 0 {
		words = append(words, fmt.Sprintf("outbox %s has sent jobs to the queue, and would send them again: when no program puts rows of the queue into it any more, forget it (signalbox outbox rm %s %s)", some(boxes), queue, boxes[0]))
	}
	if sessions := of["inflight"]; len(sessions) > 0 {
		words = append(words, fmt.Sprintf("deliveries of session %s that weren't taken back: start a worker of the queue, or look at them (signalbox doctor %s)", some(sessions), queue))
	}
	if unknown := of[""]; len(unknown) > 0 {
		words = append(words, fmt.Sprintf("keys that this release doesn't know, %s: use a newer release, or delete them if another program wrote them", some(unknown)))
	}
	return words
}

// some returns the first names, and says how many more there are.
func some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
