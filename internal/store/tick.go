package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

const (
	// TickGrace is how late a tick may be, by the server's clock. The script refuses ticks that are later.
	TickGrace = 5 * time.Second
	// TickAhead is how far in the future the last tick of an entry may be without being ignored. It matters only for a caller that
	// knows the server's clock. A clock that was ahead leaves such ticks behind.
	TickAhead = 10 * time.Second
)

// A Reckoning is a caller's own estimate of the server's time, for EnqueueTicks. With the zero value the server's clock counts.
type Reckoning struct {
	Known bool          // the caller has watched the clock for long enough to notice a jump
	Skew  time.Duration // how far the estimate is ahead of the server's clock, if Known
}

// EnqueueTicks is like Enqueue, for jobs of ticks. It uses the caller's reckoning as the time.
func (c *Cron) EnqueueTicks(ctx context.Context, lane *Lane, items []Item, r Reckoning) (Fates, error) {
	return c.q.enqueue(ctx, lane, items, r)
}

// A Plan is what the times of a cron entry's ticks depend on.
type Plan struct{ Entry, Digest string }

// NewPlan returns the plan of an entry. says is everything that its ticks depend on.
func NewPlan(entry string, says ...string) Plan {
	sum := sha1.Sum([]byte(strings.Join(says, "\n")))
	return Plan{entry, hex.EncodeToString(sum[:8])}
}

// A Registration says that a scheduler has an entry with this plan.
type Registration struct {
	Plan
	Born time.Time // as of the Planned of the caller's first registration; zero: this is the first
	Set  bool      // the caller has set the plan at Born, by its reckoning of the server's clock, in place of another one that it had registered
}

// A Planned is the state of an entry whose plan was registered.
type Planned struct {
	Last    time.Time // its last tick that was enqueued, or that passed while the entry was paused; zero: there was none
	Since   time.Time // since when the plan counts. Earlier ticks are never made up for
	InForce bool      // if not, another plan is in force, and a tick of this one is Superseded
	Born    time.Time // when the plan was new
}

// MaxPlans is the most plans in one call.
const MaxPlans = 1000

// RegisterPlans says that the caller has entries with these plans, at most MaxPlans of them. A plan that nobody else has comes into force. So
// does one that was set after all others were new.
// Callers repeat it every NoticeEvery: after NoticePatience without, a plan gives way to another one.
func (c *Cron) RegisterPlans(ctx context.Context, plans []Registration) ([]Planned, error) {
	args := scripts.Plan.Args(3*len(plans), scripts.Arg("protocol", layout.Protocol), scripts.Arg("patience", NoticePatience.Microseconds()))
	for _, p := range plans {
		born := ""
		if !p.Born.IsZero() {
			born = strconv.FormatInt(p.Born.UnixMicro(), 10)
			if p.Set {
				born = "=" + born
			}
		}
		args = append(args, p.Entry, p.Digest, born)
	}
	r, err := scripts.Plan.Run(ctx, c.q.rdb, scripts.Plan.Keys(&c.q.keys), args)
	if err != nil {
		return nil, err
	}
	if err := r.Status("ok"); err != nil {
		return nil, err
	}
	list := r.Strs(1)
	if r.Err == nil && len(list) != 4*len(plans) {
		r.Fail(1, fmt.Sprintf("a list of %d, for %d entries", len(list), len(plans)))
	}
	if r.Err != nil {
		return nil, r.Err
	}
	planned := make([]Planned, len(plans))
	for i := range planned {
		l := list[4*i:]
		planned[i] = Planned{Last: microTime(l[0]), Since: microTime(l[1]), InForce: l[2] == "1", Born: microTime(l[3])}
	}
	return planned, nil
}

// microTime returns the time of a number of microseconds in a text, or the zero time if it is no number.
func microTime(text string) time.Time {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// NewFates returns fates like those of a call. It is for tests of callers.
func NewFates(now time.Time, fates ...Fate) Fates {
	list := make([]byte, len(fates))
	for i, f := range fates {
		list[i] = byte(f)
	}
	return Fates{Now: now, list: string(list)}
}

// Meeting returns the same fates, with the jobs that those of fate MetKey and Updated have met. It is for tests of callers.
func (f Fates) Meeting(met ...Met) Fates {
	f.met = met
	return f
}

// Tick returns the tick and the entry of an item, if it has them.
func (it *Item) Tick() (tick time.Time, entry string) {
	t, _ := parseTick(it.when)
	return t.At, t.Entry
}

// Terms returns the plan of an item's tick, and how late the tick may be.
func (it *Item) Terms() (plan string, late time.Duration) {
	t, _ := parseTick(it.when)
	return t.Plan, t.Late
}

// Overlap returns the policy of the item's entry for jobs that overlap.
func (it *Item) Overlap() Overlap {
	t, _ := parseTick(it.when)
	return t.Overlap
}

// Payload returns the payload of an item's job, or why it can't be read. It is for tests of callers.
func (it *Item) Payload() string {
	var job signalbox.Job
	if err := wire.Decode(newRecord(it.class, 0, 0, it.envelope), &job); err != nil {
		return err.Error()
	}
	return string(job.Payload)
}

// parseTick reads what When.arg has written for a tick.
func parseTick(arg string) (When, error) {
	parts := strings.Split(strings.TrimPrefix(arg, "="), " ")
	us, err := strconv.ParseInt(parts[0], 10, 64)
	w := When{At: time.UnixMicro(us).UTC()}
	if len(parts) > 1 {
		w.Entry = parts[1]
	}
	if len(parts) > 3 && err == nil {
		w.Plan = parts[2]
		us, err = strconv.ParseInt(parts[3], 10, 64)
		w.Late = time.Duration(us) * time.Microsecond
	}
	if len(parts) > 4 {
		w.Overlap = Overlap(parts[4][0])
	}
	return w, err
}
