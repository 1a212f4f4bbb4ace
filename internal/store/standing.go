package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// Protocol is the protocol of this release's calls. A queue has a layout, 1 unless its settings say more: the protocol that is
// needed to use it. It rises when a feature is first used on the queue that older releases don't know.
const Protocol = 1

// Standing is why a queue gives a caller no jobs. The zero value: it does.
type Standing struct {
	Paused bool // nobody gets any
	Layout int  // the queue's, if it is newer than Protocol: this release only settles what it has; else 0
}

// standing reads field i.
func (r *reply) standing(i int) Standing {
	switch s := r.str(i); s {
	case "":
		return Standing{}
	case "paused":
		return Standing{Paused: true}
	default:
		layout, err := strconv.Atoi(s)
		if (err != nil || layout <= Protocol) && r.err == nil {
			r.fail(i, fmt.Sprintf("%.40q, not a layout", s))
		}
		return Standing{Layout: layout}
	}
}

// A LayoutError says that a queue's layout is newer than this release: a newer one uses it in ways that this one doesn't know.
// It wraps signalbox.ErrOutdated and what Redis replied.
type LayoutError struct {
	Layout int // the protocol that is needed
	reply  error
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("%v: its layout is %d, and this release knows layouts up to %d; update this program", signalbox.ErrOutdated, e.Layout, Protocol)
}

// Unwrap returns signalbox.ErrOutdated and the error of Redis.
func (e *LayoutError) Unwrap() []error { return []error{signalbox.ErrOutdated, e.reply} }

// layoutError returns a *LayoutError for a script's error that says so, or err.
func layoutError(err error) error {
	if !redis.HasErrorPrefix(err, "LAYOUT ") {
		return err
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "LAYOUT "), " ")
	layout, _ := strconv.Atoi(digits)
	return &LayoutError{Layout: layout, reply: err}
}

// Pause makes the queue give out no jobs: once it has returned, none is claimed until Resume. It reports whether that is new.
func (q *Queue) Pause(ctx context.Context) (changed bool, err error) { return q.pause(ctx, true) }

// Resume ends a pause, and wakes a worker if there are jobs. It reports whether the queue was paused.
func (q *Queue) Resume(ctx context.Context) (changed bool, err error) { return q.pause(ctx, false) }

func (q *Queue) pause(ctx context.Context, on bool) (bool, error) {
	r, err := run(ctx, q.rdb, pauseScript, pauseScript.keys(&q.keys), pauseScript.args(0, arg{"pause", flag(on)}))
	if err != nil {
		return false, err
	}
	changed := r.int(0) == 1
	return changed, r.err
}

// Settings are those of a queue that people change.
type Settings struct {
	Paused      bool
	PausedSince time.Time // by the server's clock; zero if it isn't known, or the queue isn't paused
	Retention   signalbox.Retention
}

// Settings reads the queue's settings.
func (q *Queue) Settings(ctx context.Context) (Settings, error) {
	values, err := q.rdb.HMGet(ctx, q.keys.settings, "paused", "keep_jobs", "keep_bytes", "keep_us").Result()
	if err != nil || len(values) != 4 {
		return Settings{}, err
	}
	var text [4]string
	for i, v := range values {
		text[i], _ = v.(string)
	}
	s := Settings{Paused: values[0] != nil, Retention: retentionOf(text[1], text[2], text[3])}
	if s.Paused {
		us, err := strconv.ParseInt(text[0], 10, 64)
		if err != nil { // another program wrote it; the queue is paused all the same
			us = 0
		}
		s.PausedSince = time.UnixMicro(us)
	}
	return s, nil
}
