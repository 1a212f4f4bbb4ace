package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

func (w *walk) enqueue() {
	items := w.items()
	lane := w.producer
	lane.Next()
	seq := lane.seq
	w.put(lane, items)
	switch w.rnd.Intn(12) {
	case 0:
		w.put(lane, items) // made again
	case 1: // the reply is lost, and the producer makes the call again later, with Again
		w.unsure = slices.Clone(items)
		for i := range w.unsure {
			if it := &w.unsure[i]; !strings.HasPrefix(it.class[1:], "!") {
				it.IfAbsent()
			}
		}
		return
	}
	w.late(func() { lane.numbered(seq, func() { w.put(lane, items) }) })
}

// items returns some jobs to put in.
func (w *walk) items() (items []Item) {
	for range 1 + w.rnd.Intn(6) {
		w.n++
		id := fmt.Sprint("j", w.n)
		if w.rnd.Intn(12) == 0 {
			id = fmt.Sprint("j", 1+w.rnd.Intn(w.n))
		}
		when := When{}
		if w.rnd.Intn(5) == 0 {
			when.After = time.Hour
		}
		key := ""
		if w.rnd.Intn(6) > 0 {
			key = walkKeys[w.rnd.Intn(len(walkKeys))]
		}
		job := signalbox.Job{ID: id, Priority: signalbox.Priority(w.rnd.Intn(3)), YieldOnRetry: w.rnd.Intn(3) == 0}
		if w.rnd.Intn(6) == 0 {
			job.Retain = []time.Duration{signalbox.RetainNone, time.Hour}[w.rnd.Intn(2)]
		}
		if w.rnd.Intn(3) == 0 {
			job.ExpireAfter = []time.Duration{brief, time.Hour, 3 * time.Hour}[w.rnd.Intn(3)]
		} else if w.rnd.Intn(6) == 0 {
			job.Deadline = w.now.Add([]time.Duration{0, time.Hour, 3 * time.Hour}[w.rnd.Intn(3)])
		}
		it := w.made(job, key, when)
		if w.rnd.Intn(8) == 0 {
			it.IfAbsent()
		}
		items = append(items, it)
	}
	return items
}

// again makes an enqueue again whose reply was lost: in another call, which replaces no job.
func (w *walk) again() {
	if w.unsure != nil {
		lane := w.NewLane()
		lane.Next()
		w.put(lane, w.unsure)
		w.unsure = nil
	}
}

// put enqueues jobs, by the lane's number.
func (w *walk) put(lane *Lane, items []Item) {
	w.t.Helper()
	w.calls++
	last := w.m.lanes[lane.key]
	got, err := w.Enqueue(bg, lane, items)
	if last != nil && lane.seq < last.seq {
		w.note("enqueue %d comes late", lane.seq)
		if !errors.Is(err, scripts.ErrStale) {
			w.fail("an enqueue that comes after a later one returns %v", err)
		}
		return
	}
	w.must(err)
	w.now = got.Now
	if last != nil && lane.seq == last.seq {
		w.note("enqueue %d again", lane.seq)
		if got.list != last.fates {
			w.fail("an enqueue that is made again is answered %s, it was %s", got.list, last.fates)
		}
		if got.Full() != last.full {
			w.fail("an enqueue that is made again says %+v of the queue, it was %+v", got.Full(), last.full)
		}
		return
	}
	length, room := w.m.length(), w.m.room()
	what, want, n := w.admit(items, got.list, got.Now, room)
	var full Length
	w.note("enqueue %d: %v", lane.seq, what)
	if got.list != want {
		w.fail("an enqueue is answered %s, and should be %s", got.list, want)
	}
	if strings.ContainsRune(want, rune(Full)) {
		full = Length{length + n, w.m.most}
	}
	if got.Full() != full {
		w.fail("an enqueue says %+v of the queue, and should say %+v", got.Full(), full)
	}
	w.m.lanes[lane.key] = &answer{seq: lane.seq, fates: got.list, full: full}
}

// admit has the model put jobs in, of which the queue has room for so many. got is how the call was answered, at that time. It returns what there is to note, the answer that the call must
// have, and how many jobs were put in.
func (w *walk) admit(items []Item, got string, now time.Time, room int) (what []string, want string, n int) {
	w.t.Helper()
	var fresh []string
	before := make(map[string]Fate)
	outcomes := make([]byte, len(items))
	for i := range items {
		it := &items[i]
		fate := w.m.fate(it, before)
		if f := w.m.jobs[it.id]; w.m.trims && f != nil && f.where == string(Completed) && (Fate(got[i]) == PutIn || Fate(got[i]) == Full) {
			fate = PutIn // it was dropped
		}
		if fate.In() && n >= room {
			fate = Full
			w.refused++
		} else if fate.In() {
			n++
		}
		outcomes[i] = byte(fate)
		f := &fact{where: "ready", class: it.class[0], us: now.UnixMicro(), key: keyOf(it), own: retainOf(it), life: lifeOf(it), end: endIn(it.head()), yields: yields(it)}
		if fate.In() {
			before[it.id] = MetLive
			switch {
			case it.when != "":
				f.where, f.us, before[it.id] = "due", f.us+time.Hour.Microseconds(), MetScheduled
			case f.key != "":
				f.where = "lined"
				fresh = append(fresh, it.id)
			}
			w.m.jobs[it.id] = f
		}
		what = append(what, fmt.Sprintf("%s:%c%s%s=%c", it.id, f.class, f.key, it.when, fate))
	}
	w.places(fresh)
	return what, string(outcomes), n
}

// keyOf returns the key of an item's group, retainOf how long its record says that it is kept, and lifeOf how long it has to start.
func keyOf(it *Item) string { return facts.GroupOf(it.head()) }

func retainOf(it *Item) time.Duration { return wire.RetainOf([]byte(it.head())) }

func lifeOf(it *Item) time.Duration { return wire.ExpiresOf([]byte(it.head())) }

// endIn returns the deadline of a job that hasn't started, as its record says, in us, or 0.
func endIn(record string) int64 {
	if at, started := wire.DeadlineOf([]byte(record)); !at.IsZero() && !started {
		return at.UnixMicro()
	}
	return 0
}

func yields(it *Item) bool { return wire.YieldsOf([]byte(it.head())) }

// head returns what the record of an item begins with.
func (it *Item) head() string {
	_, extras, there := strings.Cut(it.class, "+")
	if !there {
		return "\x01" + it.class[:1] + "\x00\x00" + strings.Repeat("\x00", 16)
	}
	size := len(extras) - 1
	return "\x01" + it.class[:1] + "\x00" + extras[:1] + strings.Repeat("\x00", 16) + string([]byte{byte(size >> 8), byte(size)}) + extras[1:]
}

// places takes over the places that jobs have got in lines. They come behind those that were enqueued before, in their order.
func (w *walk) places(fresh []string) {
	w.t.Helper()
	if len(fresh) == 0 {
		return
	}
	members, err := w.rdb.ZRange(bg, w.keys.Lined, 0, -1).Result()
	w.must(err)
	last := make(map[string]int64) // by line
	for _, id := range fresh {
		f := w.m.jobs[id]
		f.us = 0
		for _, member := range members {
			if strings.HasPrefix(member, fmt.Sprintf("%c%s\x01", f.class, f.key)) && strings.HasSuffix(member, id) && len(member) == len(f.member(id)) {
				_, err := fmt.Sscanf(member[len(f.key)+2:len(f.key)+18], "%d", &f.us)
				w.must(err)
			}
		}
		if f.us == 0 || f.us <= w.last || f.us <= last[""] {
			w.fail("%s has place %d of line %c%s, the last that was given was %d", id, f.us, f.class, f.key, max(w.last, last[""]))
		}
		last[""] = f.us
	}
	w.last = last[""]
}

// tick enqueues a job of a cron entry that has a policy for jobs that overlap.
func (w *walk) tick() {
	e := w.entries[w.rnd.Intn(len(w.entries))]
	w.n++
	id := fmt.Sprint("t", w.n)
	it, at := e.item(id), e.at.UnixMicro()
	lane := w.NewLane()
	lane.Next()
	w.ticks(e, lane, it, at)
	switch w.rnd.Intn(3) {
	case 0: // another scheduler comes with the same tick
		other := w.NewLane()
		other.Next()
		w.ticks(e, other, e.again(id+"x"), at)
	case 1:
		w.ticks(e, lane, it, at)
	}
	w.late(func() { w.ticks(e, lane, it, at) })
	if e.how != OverlapCancel {
		return
	}
	for range 1 + w.rnd.Intn(2) {
		_, err := w.Cron().CancelOverlapped(bg, e.plan.Entry)
		w.must(err)
	}
	for _, other := range w.m.ticks[e.plan.Entry][1:] {
		switch f := w.m.jobs[other]; {
		case f == nil || f.ended():
		case f.where == "running":
			f.marked = true
		default:
			w.m.end(other, Cancelled, false)
		}
	}
}

// ticks enqueues the job of a tick at a time in us.
func (w *walk) ticks(e *metronome, lane *Lane, it Item, at int64) {
	w.t.Helper()
	w.calls++
	entry, last := e.plan.Entry, w.m.lanes[lane.key]
	got, err := w.Enqueue(bg, lane, []Item{it})
	w.must(err)
	w.now = got.Now
	fate := Taken
	switch {
	case last != nil:
		fate = Fate(last.fates[0])
	case at <= w.m.marks[entry]:
	case at < w.now.Add(-TickGrace).UnixMicro():
		fate = Late
	default:
		w.m.marks[entry] = at
		fate = w.m.tick(entry, e.how, it.id, keyOf(&it))
	}
	w.note("tick %s of %s: %c", it.id, entry, fate)
	if got.Of(0) != fate {
		w.fail("tick %s of entry %s is answered %c, and should be %c", it.id, entry, got.Of(0), fate)
	}
	if last != nil {
		return
	}
	w.m.lanes[lane.key] = &answer{seq: lane.seq, fates: got.list}
	if fate == PutIn {
		f := &fact{where: "ready", class: it.class[0], us: at, key: keyOf(&it), life: lifeOf(&it), end: endIn(it.head())}
		if f.key != "" {
			f.where = "lined"
		}
		w.m.jobs[it.id] = f
	}
}
