package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// flows compares what is counted of each flow with the links of jobs.
//
// The links are read in pages, and what is counted of a flow before and after. Each end of a member, and each job that joins, changes that. So if it is the same text before and after, the count was right all the time or wrong all the time.
// A flow that changes meanwhile is alive, and nothing is said of it.
func (d *doctor) flows(ctx context.Context) error {
	before := make(map[string]string)
	err := d.scan(ctx, func(cursor uint64) (uint64, error) {
		page, next, err := d.q.Client.HScan(ctx, d.q.Keys.Flows, cursor, "", facts.MaxScanned).Result()
		for i := 0; i+1 < len(page); i += 2 {
			before[page[i]] = page[i+1]
		}
		return next, err
	})
	if err != nil {
		return err
	}
	if len(before) > 0 {
		if err := d.countLinks(ctx, before); err != nil {
			return err
		}
	}
	return d.awaiting(ctx)
}

// A tally has the jobs that are linked to a flow: hashes of their IDs, as a page may have one twice.
type tally struct{ open, waiters []uint64 }

// countOf returns how many different ones there are.
func countOf(hashes []uint64) int64 {
	slices.Sort(hashes)
	return int64(len(slices.Compact(hashes)))
}

// countLinks goes through all records, and compares.
func (d *doctor) countLinks(ctx context.Context, before map[string]string) error {
	tallies := make(map[string]*tally) // by the reference of the flow
	err := d.eachRecord(ctx, func(string, string) {}, func(_ *facts.Examination, f *facts.Job) {
		for link := range strings.FieldsSeq(f.Links) {
			t := tallies[link[1:]]
			if t == nil {
				t = &tally{}
				tallies[link[1:]] = t
			}
			switch role := link[0]; {
			case role == wire.LinkMember:
				t.open = append(t.open, d.hash(f.ID))
			case role != 'R' && role != wire.LinkOver && !slices.ContainsFunc(f.Places, facts.Place.Ended):
				t.waiters = append(t.waiters, d.hash(f.ID))
			}
		}
	})
	if err != nil {
		return err
	}
	for name, text := range before {
		f, ok := facts.ParseFlow(name, text)
		if !ok {
			d.find(facts.WrongFlow, "", fmt.Sprintf("batch %.64q is %.300q, which can't be read; HDEL %s of that name removes it, and its jobs are of no batch then", name, text, d.q.Keys.Flows), false)
			continue
		}
		t := tallies[f.Text()]
		if t == nil {
			t = &tally{}
		}
		if err := d.compareFlow(ctx, &f, text, countOf(t.open), countOf(t.waiters)); err != nil {
			return err
		}
	}
	return nil
}

// compareFlow looks at a flow again, and reports what is wrong with it.
func (d *doctor) compareFlow(ctx context.Context, f *facts.Flow, text string, open, waiters int64) error {
	var now, passes *redis.StringCmd
	var timed *redis.FloatCmd
	_, err := d.q.AtOnce(ctx, func(p redis.Pipeliner) error {
		now, passes, timed = p.HGet(ctx, d.q.Keys.Flows, f.Name), p.HGet(ctx, d.q.Keys.FlowNotes, f.Name+"{x"), p.ZScore(ctx, d.q.Keys.FlowTimes, f.Name)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if now.Val() != text {
		return nil
	}
	var wrong []string
	if f.Open != open || f.Waiters != waiters {
		wrong = append(wrong, fmt.Sprintf("%d members are open and %d jobs wait for it or have waited, %d and %d are counted", open, waiters, f.Open, f.Waiters))
	}
	if f.Total != f.Open+f.OK+f.Dead+f.Gone || f.Bad != f.Dead+f.Gone || f.Failed != (f.Bad > 0) && !f.Cancelled {
		wrong = append(wrong, "its counts disagree")
	}
	if f.Over != (f.Open == 0 && !f.Unsealed) {
		wrong = append(wrong, fmt.Sprintf("it is over: %v, with %d open members", f.Over, f.Open))
	}
	if (timed.Err() != nil) == (f.Over || f.Unsealed || f.Timeout > 0 && !f.Cancelled) || (passes.Err() != nil) == (f.Cancelled && !f.Over) {
		wrong = append(wrong, "nobody would look at it when it is time")
	}
	if len(wrong) == 0 {
		return nil
	}
	done, err := d.mend(ctx, nil, Step{Verb: "flow", A: f.Name, B: strconv.FormatInt(open, 10) + " " + strconv.FormatInt(waiters, 10) + " " + text})
	if err == nil {
		d.find(facts.WrongFlow, "", fmt.Sprintf("batch %.64q: %s", f.Name, strings.Join(wrong, "; ")), done)
	}
	return err
}

// awaiting goes through the jobs that wait for flows.
func (d *doctor) awaiting(ctx context.Context) error {
	return d.scan(ctx, func(cursor uint64) (uint64, error) {
		members, next, err := d.q.Client.ZScan(ctx, d.q.Keys.Awaiting, cursor, "", facts.MaxScanned).Result()
		for i := 0; i < len(members) && err == nil; i += 2 {
			err = d.waiter(ctx, members[i])
		}
		return next, err
	})
}

// waiter looks at a member of the set of jobs that wait.
func (d *doctor) waiter(ctx context.Context, member string) error {
	name, id, _ := strings.Cut(member, "{")
	if len(name) < 2 || id == "" {
		return d.strayWaiter(ctx, "", member)
	}
	role, name := name[0], name[1:]
	var text, record *redis.StringCmd
	var there *redis.FloatCmd
	var noted *redis.BoolCmd
	_, err := d.q.AtOnce(ctx, func(p redis.Pipeliner) error {
		text, record = p.HGet(ctx, d.q.Keys.Flows, name), p.HGet(ctx, d.q.Keys.Jobs, id)
		there, noted = p.ZScore(ctx, d.q.Keys.Awaiting, member), p.HExists(ctx, d.q.Keys.FlowNotes, name+"{")
		return nil
	})
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if err != nil || there.Err() != nil {
		return err
	}
	f, ok := facts.ParseFlow(name, text.Val())
	if role == 'c' {
		if !ok {
			return d.strayWaiter(ctx, id, member)
		}
		return nil
	}
	if link := string(role) + f.Text(); ok && !slices.Contains(strings.Fields(wire.LinksOf([]byte(record.Val()))), link) || record.Err() != nil {
		return d.strayWaiter(ctx, id, member)
	}
	switch {
	case !ok:
		d.find(facts.StuckWaiter, id, fmt.Sprintf("job %.200q waits for batch %.64q, which isn't there", id, name), false)
	case f.Verdict(role) && !noted.Val():
		done, err := d.mend(ctx, nil, Step{Verb: "page", A: name, B: ""})
		if err != nil {
			return err
		}
		d.find(facts.StuckWaiter, id, fmt.Sprintf("job %.200q waits for batch %.64q, which has what it waits for", id, name), done)
	}
	return nil
}

// strayWaiter is about a member of the set of jobs that wait which is no place of a job.
func (d *doctor) strayWaiter(ctx context.Context, id, member string) error {
	done, err := d.mend(ctx, nil, Step{Verb: "unwait", A: member, B: ""})
	if err == nil {
		d.find(facts.BadMember, id, fmt.Sprintf("%.300q waits for a batch, and is no place of a job", member), done)
	}
	return err
}
