package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A Copier copies dead jobs of a queue to the queue that the settings name. Each copy is a new job. It has the kind, the payload, the headers, the
// priority, the attempts, the timeout and the effect of the dead job, but not its group, and headers that say where it comes from. Its ID follows from the death. So a
// death that is copied twice has one copy, for as long as that is there. A Copier makes one call at a time.
type Copier struct {
	q      *Queue
	to     *Queue // the queue of the last copies; nil: there were none
	lane   *Lane  // of to
	listed bool   // to was registered
}

// NewCopier returns a Copier. It calls nothing.
func (t *Transfer) NewCopier() *Copier { return &Copier{q: t.q} }

// Noted returns a page of the IDs of jobs that died and are to be copied, and the cursor of the next page: 0 behind the last one. The
// first page has the cursor 0. An ID may come twice.
func (c *Copier) Noted(ctx context.Context, cursor uint64) (ids []string, next uint64, err error) {
	notes, next, err := c.q.Settings().Notes(ctx, cursor)
	for _, n := range notes {
		ids = append(ids, n.ID)
	}
	return ids, next, err
}

// Copied is what became of some deaths.
type Copied struct {
	To    string // the queue that gets the copies; "": there is none
	Jobs  int    // copies that are there now
	Unfit []Unfit
}

// An Unfit job can't be copied: its record can't be read, or the copy would be too large. It stays a dead job.
type Unfit struct {
	ID  string
	Err error
}

// A CopyError says that Redis refused copies, or didn't answer.
type CopyError struct {
	To  string // the queue that was to get them
	Err error
}

func (e *CopyError) Error() string { return fmt.Sprintf("copy to queue %s: %v", e.To, e.Err) }

// Unwrap returns the cause.
func (e *CopyError) Unwrap() error { return e.Err }

// Copy copies those of the jobs whose deaths are noted, and then removes the notes. A job that isn't dead any more, and one that is a copy itself,
// loses its note without a copy. A dead job that is being moved is still dead. The note of a job that couldn't be copied now stays. The error is a *CopyError if the other queue is its cause:
// then Copy has done all that can be done without that queue.
func (c *Copier) Copy(ctx context.Context, ids []string) (Copied, error) {
	return c.work(ctx, ids, nil)
}

// Tidy is Copy after the other queue has refused copies, with that error: it makes none, and removes the notes of jobs that need none. So there are
// no more notes than dead jobs, however long the queue refuses copies.
func (c *Copier) Tidy(ctx context.Context, ids []string, refused *CopyError) (Copied, error) {
	return c.work(ctx, ids, refused)
}

func (c *Copier) work(ctx context.Context, ids []string, refused *CopyError) (done Copied, err error) {
	for len(ids) > 0 {
		some := ids[:min(len(ids), settings.MaxCopies)]
		deaths, to, looked, err := c.read(ctx, some)
		if err != nil {
			return done, err
		}
		if to == "" || settings.ValidateCopies(c.q.name, to) != nil { // another program wrote such a name; the doctor finds it
			return done, nil
		}
		done.To = to
		items, copied, gone := c.sort(deaths, &done)
		if len(items) > 0 && refused == nil {
			if err := c.put(ctx, to, items); err != nil {
				refused = &CopyError{to, err}
			} else {
				done.Jobs += len(items)
				gone = append(gone, copied...)
			}
		}
		if err := c.q.Settings().ForgetNotes(ctx, gone); err != nil {
			return done, err
		}
		ids = ids[looked:]
	}
	if refused != nil {
		return done, refused
	}
	return done, nil
}

// A death is one of a job that is to be copied.
type death struct {
	id     string
	at     string // in us, as the note says it
	record string // "" if the job is neither dead nor held for a move
}

// read returns the deaths of the first of the jobs, of how many, and the queue that gets the copies.
func (c *Copier) read(ctx context.Context, ids []string) (deaths []death, to string, looked int, err error) {
	args := scripts.Deaths.Args(len(ids), scripts.Arg("protocol", layout.Protocol), scripts.Arg("room", c.q.room))
	for _, id := range ids {
		args = append(args, id)
	}
	r, err := scripts.Deaths.Run(ctx, c.q.rdb, scripts.Deaths.Keys(&c.q.keys), args)
	if err != nil {
		return nil, "", 0, err
	}
	if err := r.Status("ok"); err != nil {
		return nil, "", 0, err
	}
	to = r.Str(1)
	times, records := r.Strs(2), r.Strs(3)
	if r.Err == nil && (len(times) == 0 || len(times) > len(ids) || len(records) != len(times)) {
		r.Fail(2, fmt.Sprintf("%d times and %d records of %d jobs", len(times), len(records), len(ids)))
	}
	if r.Err != nil {
		return nil, "", 0, r.Err
	}
	for i, at := range times {
		if at != "" {
			deaths = append(deaths, death{ids[i], at, records[i]})
		}
	}
	return deaths, to, len(times), nil
}

// buried reports whether the job was dead: in its place, or held for a move.
func (d death) buried() bool {
	h, held := wire.HeldOf([]byte(d.record))
	return d.record != "" && (!held || !h.Copy && signalbox.State(h.State) == signalbox.StateDead)
}

// sort makes the copies of deaths. It returns their notes, and those that are to go in any case. That of a job which isn't dead goes only if that is still so then: it may have been
// moved back, and a failover may make it dead again.
func (c *Copier) sort(deaths []death, done *Copied) (items []Item, copied, gone []settings.Note) {
	for _, d := range deaths {
		if !d.buried() {
			gone = append(gone, settings.Note{ID: d.id, At: d.at, UnlessDead: true})
			continue
		}
		item, fit, err := c.copyOf(d)
		switch {
		case errors.Is(err, wire.ErrVersion):
			continue // a newer worker copies it
		case err != nil:
			done.Unfit = append(done.Unfit, Unfit{d.id, err})
		case fit:
			items, copied = append(items, item), append(copied, settings.Note{ID: d.id, At: d.at})
			continue
		}
		gone = append(gone, settings.Note{ID: d.id, At: d.at})
	}
	return items, copied, gone
}

// put puts copies into the queue to.
func (c *Copier) put(ctx context.Context, to string, items []Item) error {
	if c.to == nil || c.to.name != to {
		c.to = New(c.q.rdb, c.q.namespace, to)
		c.lane, c.listed = c.to.NewLane(), false
	}
	if !c.listed {
		c.listed = c.to.Presence().Register(ctx) == nil // for tools; a user may lack the right
	}
	// A call whose reply is lost is not made again in its lane: the same jobs in a new call meet the first copies.
	c.lane.Next()
	fates, err := c.to.Enqueue(ctx, c.lane, items)
	if err == nil && fates.Anew() {
		c.listed = c.to.Presence().Register(ctx) == nil // it may have been removed since
	}
	if err == nil && fates.Full() != (Length{}) {
		err = c.to.FullError(fates.Full()) // the copies that are in are met when all are enqueued again
	}
	return err
}

// copyOf returns the copy of a dead job. fit is false if there is to be none.
func (c *Copier) copyOf(d death) (item Item, fit bool, err error) {
	dead := signalbox.Job{ID: d.id, Queue: c.q.name, Namespace: c.q.namespace}
	if err := wire.Decode([]byte(d.record), &dead); err != nil {
		return Item{}, false, err
	}
	if _, copied := dead.Headers[signalbox.HeaderDeadID]; copied {
		return Item{}, false, nil // two queues that copy to each other would go on for ever
	}
	// The two together have one effect: the copy has its key, and the time from which fence counts its age. With the time of its own enqueue it would look younger
	// than a record that was swept.
	born := dead.Born
	if born.IsZero() {
		born = dead.EnqueuedAt
	}
	job := signalbox.Job{
		ID: c.id(d), Kind: dead.Kind, Payload: dead.Payload, Priority: dead.Priority, MaxAttempts: dead.MaxAttempts, Timeout: dead.Timeout,
		Headers: maps.Clone(dead.Headers), Encoding: dead.Encoding, Effect: dead.EffectKey(), Born: born,
	}
	if job.Headers == nil {
		job.Headers = make(map[string]string)
	}
	job.Headers[signalbox.HeaderDeadQueue] = c.q.name
	job.Headers[signalbox.HeaderDeadID] = d.id
	if us, err := strconv.ParseInt(d.at, 10, 64); err == nil {
		job.Headers[signalbox.HeaderDeadAt] = time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	if dead.LastError != "" {
		job.Headers[signalbox.HeaderDeadError] = settings.CutText(dead.LastError, maxDeadError)
	}
	item, err = NewItem(&job, When{})
	if err != nil {
		return Item{}, false, err
	}
	item.IfAbsent()
	return item, true, nil
}

// maxDeadError is how many bytes of the last error a copy has.
const maxDeadError = 512

// id returns the ID of a death's copy.
func (c *Copier) id(d death) string {
	namespace := cmp.Or(c.q.namespace, layout.DefaultNamespace)
	sum := sha256.Sum256([]byte(namespace + "\x00" + c.q.name + "\x00" + d.id + "\x00" + d.at))
	return "dead-" + hex.EncodeToString(sum[:16])
}
