package scheduler

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
)

// noticeAgain is the time until the next try if entries could not be announced.
const noticeAgain = 5 * time.Second

// notices are what tools are told of a loop's entries: a description of each when the loop begins with it, and from then on
// every store.NoticeEvery that this process still has it. Ticks don't depend on it.
type notices struct {
	all    []store.Notice
	fresh  []store.Notice // to be announced
	rest   []store.Notice // to be reminded of, in this round
	flying bool           // a call is in flight
	said   bool           // the log says that calls fail
	behind bool           // the last call was to announce, and failed: if there are reminders, one of them is next
	next   time.Time      // the earliest next call, by our clock
	round  time.Time      // when the next round of reminders begins, by our clock
}

func (n *notices) add(notice store.Notice) {
	n.all, n.fresh = append(n.all, notice), append(n.fresh, notice)
}

// take returns the first notices of a list, as many as go into one call, and the others.
func take(list []store.Notice) (some, rest []store.Notice) {
	size := 0
	for i := range list {
		size += list[i].Size()
		if i == store.MaxNotices || i > 0 && size > bytesPerCall {
			return list[:i:i], list[i:]
		}
	}
	return list, nil
}

// announce makes the next call about entries, if it is time. It returns the time until then.
func (l *loop) announce(ctx context.Context, now time.Time) time.Duration {
	n := &l.notices
	if n.flying {
		return longestSleep
	}
	if due := n.next.Sub(now); due > 0 {
		return due
	}
	if n.round.IsZero() {
		n.round = now.Add(store.NoticeEvery)
	}
	if due := n.round.Sub(now); len(n.rest) == 0 && due <= 0 {
		n.rest, n.round = n.all, now.Add(store.NoticeEvery)
	} else if len(n.rest) == 0 && len(n.fresh) == 0 {
		return due
	}
	n.flying = true
	whole := len(n.fresh) > 0 && !(n.behind && len(n.rest) > 0)
	var some []store.Notice
	if whole {
		some, n.fresh = take(n.fresh)
	} else {
		some, n.rest = take(n.rest)
	}
	l.call(ctx, func(ctx context.Context) func() {
		var lacking []string
		var err error
		if whole {
			err = l.server.Announce(ctx, some)
		} else {
			lacking, err = l.server.Remind(ctx, some)
		}
		got := l.s.now()
		return func() {
			n.flying, n.behind = false, whole && err != nil
			if err != nil {
				l.unannounced(some, whole, got, err)
				return
			}
			if whole { // a reminder says nothing of the layout
				l.fits()
			}
			n.said = n.said && len(n.fresh) > 0
			for i := range some {
				name := some[i].Name()
				waits := slices.ContainsFunc(n.fresh, func(f store.Notice) bool { return f.Name() == name })
				if slices.Contains(lacking, name) && !waits {
					n.fresh = append(n.fresh, some[i])
				}
			}
		}
	})
	return longestSleep
}

// unannounced handles a call about entries that failed. If Redis can't be reached, or if this release doesn't know the queue's layout, the log has
// another line for it.
func (l *loop) unannounced(some []store.Notice, whole bool, at time.Time, err error) {
	n := &l.notices
	var refused redis.Error
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	if layout := misfit(err); layout != nil {
		l.fitsNot(layout)
	} else if !n.said && (late || errors.As(err, &refused)) {
		n.said = true
		l.s.log.Warn("scheduler: cron: entries could not be described to tools; it is tried again, and ticks go on",
			"queue", l.queue, "entries", len(some), "error", explain(err))
	}
	n.next = at.Add(noticeAgain)
	if whole {
		n.fresh = append(n.fresh, some...)
	} else { // the round begins anew
		n.rest, n.round = nil, n.next
	}
}
