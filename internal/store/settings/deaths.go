package settings

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// CopyField is the setting that names the queue which gets a copy of each dead job.
const CopyField = "copy_dead"

// DeathNote is before a job's ID in the name of the note that says when it died. No ID has a space.
const DeathNote = "dead "

// ValidateCopies returns an error that wraps signalbox.ErrInvalid if the dead jobs of a queue can't be copied to the queue to. "" is no queue.
func ValidateCopies(queue, to string) error {
	if to == "" {
		return nil
	}
	if err := layout.ValidateQueue(to); err != nil {
		return fmt.Errorf("copies of dead jobs: %w", err)
	}
	if to == queue {
		return fmt.Errorf("%w copies of dead jobs: queue %s would get those of its own; name another queue", signalbox.ErrInvalid, queue)
	}
	return nil
}

// SetCopies has the jobs that die from now on copied to the queue to, which ValidateCopies accepts. With "" none are, and those that
// have died and aren't copied yet are not copied any more.
func (q *Settings) SetCopies(ctx context.Context, to string) error {
	if _, err := q.change(ctx, CopyField, to, "set", q.Operator, false); err != nil || to != "" {
		return err
	}
	return q.forgetDeaths(ctx)
}

// forgetDeaths removes the notes of jobs that are still to be copied.
func (q *Settings) forgetDeaths(ctx context.Context) error {
	for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
		notes, next, err := q.Notes(ctx, cursor)
		if err == nil {
			err = q.ForgetNotes(ctx, notes)
		}
		if err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

// MaxCopies is how many IDs go in one call of Copy.
const MaxCopies = 500

// A Note says that a job is to be copied.
type Note struct {
	ID         string
	At         string // when it died, in us
	UnlessDead bool   // of a note that is to go: only if the job is neither dead nor held
}

// Notes returns the notes of a page.
func (q *Settings) Notes(ctx context.Context, cursor uint64) (notes []Note, next uint64, err error) {
	page, next, err := q.Client.HScan(ctx, q.Keys.Notes, cursor, DeathNote+"*", MaxCopies).Result()
	if err != nil {
		return nil, 0, err
	}
	for i := 0; i+1 < len(page); i += 2 {
		notes = append(notes, Note{ID: strings.TrimPrefix(page[i], DeathNote), At: page[i+1]})
	}
	return notes, next, nil
}

// ForgetNotes removes notes.
func (q *Settings) ForgetNotes(ctx context.Context, notes []Note) error {
	if len(notes) == 0 {
		return nil
	}
	args := scripts.Copied.Args(3*len(notes), scripts.Arg("notes", len(notes)))
	for _, n := range notes {
		unless := ""
		if n.UnlessDead {
			unless = "1"
		}
		args = append(args, n.ID, n.At, unless)
	}
	_, err := scripts.Copied.Run(ctx, q.Client, scripts.Copied.Keys(&q.Keys), args)
	return err
}

// CutText returns the first bytes of a text, at most n, without a part of a character.
func CutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
