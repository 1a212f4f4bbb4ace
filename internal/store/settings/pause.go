package settings

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// PauseGroup makes the queue give out no job of a group, by its key with the first byte: once it has returned, none is claimed until ResumeGroup. It
// reports whether that is new.
func (q *Settings) PauseGroup(ctx context.Context, key string) (changed bool, err error) {
	return q.pauseGroup(ctx, key, true)
}

// ResumeGroup ends a pause of a group, and has workers look for its jobs. It reports whether the group was paused.
func (q *Settings) ResumeGroup(ctx context.Context, key string) (changed bool, err error) {
	return q.pauseGroup(ctx, key, false)
}

func (q *Settings) pauseGroup(ctx context.Context, key string, pause bool) (changed bool, err error) {
	r, err := scripts.Pause.Run(ctx, q.Client, scripts.Pause.Keys(&q.Keys), scripts.Pause.Args(0, scripts.Arg("protocol", layout.Protocol), scripts.Arg("group", key),
		scripts.Arg("pause", scripts.Flag(pause)), scripts.Arg("channel", q.Keys.Control())))
	if err != nil {
		return false, err
	}
	if err := r.Status("ok"); err != nil {
		return false, err
	}
	return r.Int(1) == 1, r.Err
}

// PauseField is before a group's key in the name of the field of limits that says since when the group is paused.
const PauseField = "p"

// holdField is before it in the name of the field that says by which job the group is held back, and of the member of rates that says until when.
const holdField = "h"

// PausedGroups returns since when groups are paused, by their keys with the first byte: by the server's clock, and zero where it can't be read.
func (q *Settings) PausedGroups(ctx context.Context) (map[string]time.Time, error) {
	paused := make(map[string]time.Time)
	for next := uint64(0); ; {
		fields, cursor, err := q.Client.HScan(ctx, q.Keys.Limits, next, PauseField+"*", 1000).Result()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			paused[fields[i][len(PauseField):]] = pausedSince(fields[i+1])
		}
		if next = cursor; next == 0 {
			return paused, nil
		}
	}
}

// CountStopped counts the groups that are paused, and those that are held back, by their names, in a look at some 10,000 fields. steady is the time by the clock of
// limits.
func (q *Settings) CountStopped(ctx context.Context, steady time.Time) (paused, heldBack int64, err error) {
	const page, pages = 1000, 10
	pauses, holds := make(map[string]bool), make(map[string]bool) // a group and a serial group of one name are paused, and held back, together
	next := uint64(0)
	for range pages {
		fields, cursor, err := q.Client.HScan(ctx, q.Keys.Limits, next, "["+PauseField+holdField+"]*", page).Result()
		if err != nil {
			return 0, 0, err
		}
		var members []string
		for i := 0; i+1 < len(fields); i += 2 {
			field := fields[i]
			if len(field) < 2 { // the queue's own hold, or another program's
				continue
			}
			if field[:1] == holdField {
				members = append(members, field)
			} else {
				pauses[field[2:]] = true
			}
		}
		if len(members) > 0 {
			ends, err := q.Client.ZMScore(ctx, q.Keys.Rates, members...).Result()
			if err != nil {
				return 0, 0, err
			}
			for i, end := range ends {
				if facts.TimeOf(end).After(steady) { // else it has passed, and a claim forgets it soon
					holds[members[i][2:]] = true
				}
			}
		}
		if next = cursor; next == 0 {
			break
		}
	}
	return int64(len(pauses)), int64(len(holds)), nil
}

// pausedSince reads such a field.
func pausedSince(value string) time.Time {
	us, _, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(us, 10, 64)
	if err != nil { // another program wrote it; the group is paused all the same
		return time.Time{}
	}
	return time.UnixMicro(n)
}

// PausedAmong returns which of some groups are paused, and since when.
func (q *Settings) PausedAmong(ctx context.Context, keys []string) (map[string]time.Time, error) {
	paused := make(map[string]time.Time)
	for page := range slices.Chunk(keys, 500) {
		fields := make([]string, len(page))
		for i, key := range page {
			fields[i] = PauseField + key
		}
		values, err := q.Client.HMGet(ctx, q.Keys.Limits, fields...).Result()
		if err != nil {
			return nil, err
		}
		for i, value := range values {
			if text, is := value.(string); is {
				paused[page[i]] = pausedSince(text)
			}
		}
	}
	return paused, nil
}
