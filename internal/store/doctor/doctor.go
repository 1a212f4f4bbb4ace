// Package doctor looks for what is wrong with a queue that is in use, and repairs it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A Checkup says how Doctor goes about it.
type Checkup struct {
	Repair   bool
	Pause    time.Duration // after each call; 0: three times as long as the call took; negative: none
	Found    func(Finding)
	Progress func(Checked)
}

// A Finding is something that was wrong at one moment.
type Finding struct {
	Fault  facts.Fault
	Job    string // its ID, if it is about one job
	Text   string
	Mended bool
}

// Checked is what Doctor has looked at.
type Checked struct {
	Jobs     int64    // records
	Found    int64    // findings
	Mended   int64    // of these
	Unproved []string // what changed too fast
}

const (
	Overlap      = 50     // entries of a list that two pages have in common
	maxSuspects  = 10_000 // that are kept before they are looked at again
	maxSearched  = 40     // suspects in a call
	MaxSum       = 1000   // records in a call of sum.lua
	sumTries     = 8
	mendTries    = 3
	maxTold      = 100_000 // findings that are remembered
	MaxAddresses = 4000
)

// A doctor is one run of Doctor.
//
// Each page is read by one script, with all places of its jobs but the ready lists. So what a page shows is true at that moment. Only the
// lists are too long to be searched for each job. So the doctor remembers which IDs it has seen in them, 8 bytes for each. A record that is
// in no place and not among these is a suspect: it may have moved. So the lists are read again, and what is left is looked at by a
// script that searches them. What that finds is true.
type doctor struct {
	Checkup
	q        *facts.Site
	sessions []string // those that calls are made with; nil: to be read
	others   []string // that are looked at even if they aren't registered: those that had deliveries or were seen before
	began    int64    // by the server's clock, in us
	seed     maphash.Seed
	seen     []uint64            // hashes of the IDs in the ready lists, sorted
	twice    map[uint64]struct{} // those that were seen twice
	suspects map[string]bool     // by ID: whether all that is wrong is that no place was seen
	tokens   map[int64]string    // that deliveries have: their jobs
	ghosts   map[string]int      // deliveries of sessions that aren't registered
	told     map[uint64]struct{} // hashes of findings, so that none is reported twice
	Checked
}

// Run looks for all that is wrong with the queue, also while it is in use, and repairs it if it is asked to. Its rules are those of
// package check. Each finding was seen by one script, so it was true at that moment. No call takes Redis more than some milliseconds, as long as
// fewer than 100,000 jobs are ready.
func Run(ctx context.Context, q *facts.Site, c Checkup) (Checked, error) {
	d := &doctor{
		Checkup: c, q: q, seed: maphash.MakeSeed(), twice: make(map[uint64]struct{}), suspects: make(map[string]bool),
		tokens: make(map[int64]string), ghosts: make(map[string]int), told: make(map[uint64]struct{}),
	}
	now, err := q.Client.Time(ctx).Result()
	if err != nil {
		return d.Checked, err
	}
	d.began = now.UnixMicro()
	for _, stage := range []func(context.Context) error{
		d.keys, d.settings, d.idle, d.ready, d.sets, d.running, d.records, d.settle, d.groups, d.flows, d.unique, d.unregistered, d.counts, d.sums,
	} {
		if err := stage(ctx); errors.Is(err, errUnfit) {
			break
		} else if err != nil {
			return d.Checked, err
		}
	}
	d.report()
	return d.Checked, nil
}

// errUnfit: a key has another type, so that no script runs.
var errUnfit = errors.New("store: a key has another type")

func (d *doctor) report() {
	if d.Progress != nil {
		d.Progress(d.Checked)
	}
}

// find adds a finding, unless it was there before.
func (d *doctor) find(fault facts.Fault, job, text string, mended bool) {
	what := d.hash(string(fault) + "\x00" + job + "\x00" + text)
	if _, before := d.told[what]; before {
		return
	}
	if len(d.told) >= maxTold {
		clear(d.told) // one of them may be reported again
	}
	d.told[what] = struct{}{}
	d.Checked.Found++
	if mended {
		d.Mended++
	}
	if d.Checkup.Found != nil {
		d.Checkup.Found(Finding{Fault: fault, Job: job, Text: text, Mended: mended})
	}
}

// rest waits after a call that began then.
func (d *doctor) rest(ctx context.Context, began time.Time) error {
	pause := d.Pause
	if pause == 0 {
		pause = 3 * time.Since(began)
	}
	if pause <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// with makes a call that needs the sessions, again if others have been opened.
func (d *doctor) with(ctx context.Context, call func(sessions []string) (again bool, err error)) error {
	for range facts.MaxTries {
		began := time.Now()
		if d.sessions == nil {
			sessions, err := d.q.SessionsOf(ctx, d.others)
			if err != nil {
				return err
			}
			d.sessions, d.others = sessions, sessions // one that ends stays: it may still hold jobs
		}
		again, err := call(d.sessions)
		if err != nil {
			return err
		}
		if err := d.rest(ctx, began); err != nil || !again {
			return err
		}
		d.sessions = nil
	}
	return facts.ErrMoving
}

// look reads a page, and reports how far the doctor is.
func (d *doctor) look(ctx context.Context, s facts.Origin) (e facts.Examination, err error) {
	err = d.with(ctx, func(sessions []string) (again bool, err error) {
		e, again, err = d.q.Examine(ctx, sessions, s)
		return again, err
	})
	d.report()
	return e, err
}

func (d *doctor) mend(ctx context.Context, f *facts.Job, steps ...Step) (done bool, err error) {
	if !d.Repair || len(steps) == 0 {
		return false, nil
	}
	err = d.with(ctx, func(sessions []string) (again bool, err error) {
		done, again, err = Mend(ctx, d.q, sessions, f, steps...)
		return again, err
	})
	return done, err
}

// consider notes a job in which something is wrong.
func (d *doctor) consider(f *facts.Job, a facts.Around) {
	if len(f.Judge(a)) > 0 {
		d.suspects[f.ID] = false
	}
}

// each goes through a hash or a sorted set in pages.
func (d *doctor) each(ctx context.Context, s facts.Origin, do func(e *facts.Examination, f *facts.Job)) error {
	s.Cursor = "0"
	if s.Count == 0 {
		s.Count = facts.MaxLook
	}
	for {
		e, err := d.look(ctx, s)
		if err != nil {
			return err
		}
		s.Cursor = e.Next
		for _, member := range e.Records {
			if err := d.odd(ctx, member); err != nil {
				return err
			}
		}
		if err := d.whole(ctx, &e, do); err != nil {
			return err
		}
		if s.Cursor == "0" {
			return nil
		}
	}
}

// whole calls do for each job of a page, also for those that the call didn't get to.
func (d *doctor) whole(ctx context.Context, e *facts.Examination, do func(e *facts.Examination, f *facts.Job)) error {
	for {
		for i := range e.Jobs {
			do(e, &e.Jobs[i])
		}
		if len(e.Left) == 0 {
			break
		}
		more, err := d.look(ctx, facts.Origin{IDs: e.Left})
		if err != nil {
			return err
		}
		*e = more
	}
	if len(d.suspects) >= maxSuspects {
		return d.settle(ctx)
	}
	return nil
}

func (d *doctor) hash(id string) uint64 { return maphash.String(d.seed, id) }

// ready reads the ready lists, from the tail to the head: a job that leaves at the head brings the others nearer, so that they are seen
// twice rather than never. Jobs that come in at the tail meanwhile are left out.
func (d *doctor) ready(ctx context.Context) error {
	for _, class := range facts.ReadyClasses {
		length, err := d.q.Client.LLen(ctx, d.q.Keys.Ready()[class]).Result()
		if err != nil {
			return err
		}
		var before []string // the first jobs of the page before, which is nearer to the tail
		for last := int(length) - 1; last >= 0; last -= facts.MaxLook {
			first := max(0, last-facts.MaxLook+1)
			e, err := d.look(ctx, facts.Origin{Name: "ready", Of: class, Cursor: strconv.Itoa(first), Count: last + Overlap})
			if err != nil {
				return err
			}
			ids := make([]string, 0, len(e.Jobs)+len(e.Left))
			for i := range e.Jobs {
				ids = append(ids, e.Jobs[i].ID)
				e.Jobs[i].Places = append([]facts.Place{{Kind: "ready", Class: class, Times: 1}}, e.Jobs[i].Places...)
			}
			ids = append(ids, e.Left...)
			for _, id := range ids[:behind(ids, before)] {
				d.seen = append(d.seen, d.hash(id))
			}
			before = ids[:min(len(ids), Overlap)]
			if err := d.whole(ctx, &e, func(e *facts.Examination, f *facts.Job) { d.consider(f, e.Around) }); err != nil {
				return err
			}
		}
	}
	slices.Sort(d.seen)
	for i := 1; i < len(d.seen); i++ {
		if d.seen[i] == d.seen[i-1] {
			d.twice[d.seen[i]] = struct{}{}
		}
	}
	return nil
}

// behind returns how many of the first IDs of a page were not in the page before, which began with others. Two in a row count, as one alone
// may be an ID that is twice in the list.
func behind(ids, before []string) int {
	for i, id := range ids {
		k := slices.Index(before, id)
		if k >= 0 && (i+1 == len(ids) || k+1 < len(before) && ids[i+1] == before[k+1]) {
			return i
		}
	}
	return len(ids)
}

// sets goes through what is due, what has ended, and what is kept of jobs that run.
func (d *doctor) sets(ctx context.Context) error {
	for _, name := range []string{"due", "dead", "cancelled", "completed", "expires", "notes", "cancels"} {
		if err := d.each(ctx, facts.Origin{Name: name}, func(e *facts.Examination, f *facts.Job) { d.consider(f, e.Around) }); err != nil {
			return err
		}
	}
	return nil
}

// unique goes through the unique keys. Each page is judged by the script that reads it.
func (d *doctor) unique(ctx context.Context) error {
	for cursor := "0"; ; {
		e, err := d.look(ctx, facts.Origin{Name: "unique", Cursor: cursor, Count: facts.MaxLook})
		if err != nil {
			return err
		}
		for i := 0; i < min(len(e.Left), len(e.Records)); i++ {
			key, value := e.Left[i], e.Records[i]
			done, err := d.mend(ctx, nil, Step{Verb: "unkey", A: key, B: value})
			if err != nil {
				return err
			}
			d.find(facts.StrayUnique, "", fmt.Sprintf("the unique key %.402q has %.220q, and no such job may have it", key, value), done)
		}
		if cursor = e.Next; cursor == "0" {
			return nil
		}
	}
}

// odd is about a member of due that names no job.
func (d *doctor) odd(ctx context.Context, member string) error {
	done, err := d.mend(ctx, nil, Step{Verb: "odd", A: member})
	if err == nil {
		d.find(facts.BadMember, "", fmt.Sprintf("the member %.40q is due and names no job", member), done)
	}
	return err
}

// running goes through what sessions hold.
func (d *doctor) running(ctx context.Context) error {
	for _, session := range d.sessions {
		var suspects []string
		var running []facts.Place
		same := make(map[string]string)
		err := d.each(ctx, facts.Origin{Name: "session", Of: session}, func(e *facts.Examination, f *facts.Job) {
			d.consider(f, e.Around)
			for _, p := range f.Places {
				if p.Kind != "running" || p.Session != session {
					continue
				}
				if !p.Registered {
					d.ghosts[session]++
				}
				if _, ok := p.Fields().Suspect(); ok {
					suspects, running = append(suspects, f.ID), append(running, p)
				}
				if _, token, ok := p.Token(); ok {
					if other, twice := d.tokens[token]; twice && other != f.ID {
						same[f.ID] = other
					}
					d.tokens[token] = f.ID
				}
			}
		})
		if err != nil {
			return err
		}
		if _, _, wrong := facts.Crowded(running); wrong {
			if err := d.together(ctx, session, suspects); err != nil {
				return err
			}
		}
		for id, other := range same {
			if err := d.sameToken(ctx, id, other); err != nil {
				return err
			}
		}
	}
	return nil
}

// together looks again at suspects that a session seemed to have at the same time.
func (d *doctor) together(ctx context.Context, session string, ids []string) error {
	e, err := d.look(ctx, facts.Origin{IDs: slices.Compact(slices.Sorted(slices.Values(ids)))})
	if err != nil {
		return err
	}
	var running []facts.Place
	for _, f := range e.Jobs {
		for _, p := range f.Places {
			if p.Session == session {
				running = append(running, p)
			}
		}
	}
	if suspects, alone, wrong := facts.Crowded(running); wrong {
		d.find(facts.Together, "", fmt.Sprintf("session %.200q has %d suspects, and %d of them run alone", session, suspects, alone), false)
	}
	return nil
}

// sameToken looks again at two jobs that seemed to have the same token.
func (d *doctor) sameToken(ctx context.Context, a, b string) error {
	e, err := d.look(ctx, facts.Origin{IDs: []string{a, b}})
	if err != nil || len(e.Jobs) < 2 {
		return err
	}
	for _, one := range e.Jobs[0].Places {
		for _, other := range e.Jobs[1].Places {
			_, token, ok := one.Token()
			if _, same, too := other.Token(); ok && too && same == token {
				d.find(facts.SameToken, a, fmt.Sprintf("jobs %.200q and %.200q have the same token %d", a, b, token), false)
			}
		}
	}
	return nil
}

// records goes through all records.
func (d *doctor) records(ctx context.Context) error {
	read := func(id, record string) {
		d.Jobs++
		d.decode(id, record)
	}
	return d.eachRecord(ctx, read, func(e *facts.Examination, f *facts.Job) {
		d.consider(f, e.Around)
		_, enqueued, _, readable := f.Header()
		if _, twice := d.twice[d.hash(f.ID)]; twice {
			d.suspects[f.ID] = false
		}
		if _, listed := slices.BinarySearch(d.seen, d.hash(f.ID)); listed || len(f.Places) > 0 || !f.There || readable && enqueued > d.began {
			return
		}
		if _, before := d.suspects[f.ID]; !before {
			d.suspects[f.ID] = true
		}
	})
}

// eachRecord goes through all records in pages: read gets the record of each job, and do what there is of it.
func (d *doctor) eachRecord(ctx context.Context, read func(id, record string), do func(e *facts.Examination, f *facts.Job)) error {
	cursor, each := "0", 10e3 // bytes of a record, about: the first page is small
	for {
		e, err := d.look(ctx, facts.Origin{Name: "jobs", Cursor: cursor, Count: max(1, min(facts.MaxLook, int(facts.PageBytes/each)))})
		if err != nil {
			return err
		}
		cursor = e.Next
		bytes := 0
		for i := 0; i+1 < len(e.Records); i += 2 {
			bytes += len(e.Records[i+1])
			read(e.Records[i], e.Records[i+1])
		}
		each = max(each*0.9, float64(bytes)/float64(max(1, len(e.Records)/2)), 100)
		if err := d.whole(ctx, &e, do); err != nil || cursor == "0" {
			return err
		}
	}
}

// decode looks whether a record can be read. One of a newer version can be read by others.
func (d *doctor) decode(id, record string) {
	job := signalbox.Job{ID: id}
	if err := wire.Decode([]byte(record), &job); errors.Is(err, wire.ErrCorrupt) {
		d.find(facts.Unreadable, id, fmt.Sprintf("the record of job %.200q can't be read: %v", id, err), false)
	}
}

// settle looks again at the suspects, each with all of its places.
func (d *doctor) settle(ctx context.Context) error {
	if err := d.relist(ctx); err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(d.suspects))
	clear(d.suspects)
	for len(ids) > 0 {
		n := min(len(ids), maxSearched)
		e, err := d.look(ctx, facts.Origin{IDs: ids[:n], Search: true})
		if err != nil {
			return err
		}
		ids = append(e.Left, ids[n:]...)
		for i := range e.Jobs {
			if err := d.confirm(ctx, &e.Jobs[i], e.Around); err != nil {
				return err
			}
		}
	}
	return nil
}

// relist reads the lists again, and drops the suspects that are there and that had only not been seen.
func (d *doctor) relist(ctx context.Context) error {
	if !slices.Contains(slices.Collect(maps.Values(d.suspects)), true) {
		return nil
	}
	for _, class := range facts.ReadyClasses {
		key := d.q.Keys.Ready()[class]
		length, err := d.q.Client.LLen(ctx, key).Result()
		if err != nil {
			return err
		}
		for last := length - 1; last >= 0; last -= 1000 {
			began := time.Now()
			ids, err := d.q.Client.LRange(ctx, key, max(0, last-999), last+Overlap).Result()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if d.suspects[id] {
					delete(d.suspects, id)
				}
			}
			if err := d.rest(ctx, began); err != nil {
				return err
			}
		}
	}
	return nil
}

// confirm reports what is wrong with a job, all of whose places are known, and repairs it.
func (d *doctor) confirm(ctx context.Context, f *facts.Job, a facts.Around) error {
	wrong := f.Judge(a)
	if len(wrong) == 0 {
		return nil
	}
	left := wrong
	for range mendTries {
		done, err := d.mend(ctx, f, StepsOf(f, a, d.began)...)
		if err != nil {
			return err
		}
		if !d.Repair {
			break
		}
		e, err := d.look(ctx, facts.Origin{IDs: []string{f.ID}, Search: true})
		if err != nil {
			return err
		}
		if len(e.Jobs) == 0 {
			break
		}
		f, a = &e.Jobs[0], e.Around
		if left = f.Judge(a); done || len(left) == 0 {
			break
		}
	}
	for _, v := range wrong {
		still := slices.ContainsFunc(left, func(l facts.Violation) bool { return l.Fault == v.Fault })
		d.find(v.Fault, f.ID, v.Text, !still)
	}
	for _, v := range left { // what has gone wrong meanwhile
		if !slices.ContainsFunc(wrong, func(w facts.Violation) bool { return w.Fault == v.Fault }) {
			d.find(v.Fault, f.ID, v.Text, false)
		}
	}
	return nil
}

// unregistered reports the sessions that have deliveries and aren't registered.
func (d *doctor) unregistered(ctx context.Context) error {
	for _, session := range slices.Sorted(maps.Keys(d.ghosts)) {
		done, err := d.mend(ctx, nil, Step{Verb: "open", A: session})
		if err != nil {
			return err
		}
		if d.Repair && !done { // its jobs may have gone elsewhere
			left, err := d.q.Client.HLen(ctx, d.q.Keys.Inflight(session)).Result()
			if err != nil {
				return err
			}
			done = left == 0
		}
		d.find(facts.NoSession, "", fmt.Sprintf("session %.200q has %d deliveries and is not registered", session, d.ghosts[session]), done)
	}
	return nil
}

// idle looks for addresses without a session, and at the fence.
func (d *doctor) idle(ctx context.Context) error {
	e, err := d.look(ctx, facts.Origin{Name: "idle", Count: MaxAddresses})
	if err != nil {
		return err
	}
	if facts.UnreadableFence(e.Fence) {
		d.find(facts.BadFence, "", fmt.Sprintf("the fence is %.40q, not a token", e.Fence), false)
	}
	if all, _ := strconv.Atoi(e.Next); all > MaxAddresses {
		d.Unproved = append(d.Unproved, fmt.Sprintf("addresses that wait for wake-ups: the first %d of %d were checked", MaxAddresses, all))
	}
	for _, address := range e.Left {
		done, err := d.mend(ctx, nil, Step{Verb: "idle", A: address})
		if err != nil {
			return err
		}
		d.find(facts.StrayAddress, "", fmt.Sprintf("address %.500q waits for a wake-up and is of no session", address), done)
	}
	return nil
}
