package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// An Overlap says what happens to a job of a cron entry that comes while another job of the entry is live: it is scheduled, ready or
// running.
type Overlap byte

// The policies.
const (
	OverlapAllow  Overlap = 0   // it is put in
	OverlapSkip   Overlap = 's' // it is left out
	OverlapQueue  Overlap = 'q' // it is put in unless another one has not begun. The entry's jobs are of one serial group
	OverlapCancel Overlap = 'c' // it is put in, and the others are cancelled: see CancelOverlapped
)

// String returns what a description says of the policy: "" for OverlapAllow.
func (o Overlap) String() string {
	switch o {
	case OverlapSkip:
		return "skip"
	case OverlapQueue:
		return "queue"
	case OverlapCancel:
		return "cancel"
	}
	return ""
}

// overlapOf returns the policy of that name.
func overlapOf(text string) Overlap {
	for _, o := range []Overlap{OverlapSkip, OverlapQueue, OverlapCancel} {
		if text == o.String() {
			return o
		}
	}
	return OverlapAllow
}

// A LiveError says that a job of a cron entry was left out, since others of the entry are live.
type LiveError struct{ IDs []string }

func (e *LiveError) Error() string {
	return "store: the entry has a live job: " + strings.Join(e.IDs, ", ")
}

// entryJobs is before an entry's name in the name of the field of the hash cron that has the IDs of its newest jobs.
const entryJobs = "jobs "

// EntryJobs returns the newest jobs of a cron entry that has a policy other than OverlapAllow, at most eight: the newest first. Some may have ended.
func (c *Cron) EntryJobs(ctx context.Context, entry string) ([]string, error) {
	list, err := c.q.rdb.HGet(ctx, c.q.keys.Cron, entryJobs+entry).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		scripts.SeekMaster(ctx, c.q.rdb, err)
		return nil, err
	}
	return strings.Fields(list), nil
}

// CancelOverlapped cancels the jobs of a cron entry except the newest, those of them that are live. It may be called again. It returns how many
// were live.
func (c *Cron) CancelOverlapped(ctx context.Context, entry string) (live int, err error) {
	ids, err := c.EntryJobs(ctx, entry)
	if err != nil || len(ids) < 2 {
		return 0, err
	}
	a := CancelJobs("a later job of the cron entry " + entry + " has replaced it").Of(append(waiting[:2:2], signalbox.StateRunning)...)
	answers, err := c.q.Do(ctx, a, ids[1:])
	for _, a := range answers {
		if a.Acted == Done {
			live++
		}
	}
	if err != nil {
		err = fmt.Errorf("store: the jobs of cron entry %s before the newest: %w", entry, err)
	}
	return live, err
}
