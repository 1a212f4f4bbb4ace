package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

const (
	maxGroups     = 100  // in a call of groups.lua
	maxCandidates = 1000 // jobs in a call of groups.lua
	groupTries    = 6
)

// groups compares what is kept of each group with its lines, and with the jobs that hold it.
//
// One script reads a group's lines and their turns, so what is wrong there was so at that moment. The jobs that hold a group are more
// difficult: those that run can be read at that moment, but some wait in ready lists or are due, among all others. So these are looked
// for before, and the script looks at them again. It finds too few if a job has begun to wait meanwhile. A finding needs two equal rounds in which none has.
func (d *doctor) groups(ctx context.Context) error {
	left, err := d.groupKeys(ctx)
	if err != nil {
		return err
	}
	surplus := make(map[string]int) // by group: how many jobs the last round missed
	for range groupTries {
		if len(left) == 0 {
			return nil
		}
		_, moved, err := d.lookAtGroups(ctx, nil, nil)
		if err != nil {
			return err
		}
		waiting, err := d.holders(ctx, left)
		if err != nil {
			return err
		}
		if left, err = d.compare(ctx, left, waiting, moved, surplus); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		d.Unproved = append(d.Unproved, fmt.Sprintf("how many jobs hold %d groups, such as %.200q: they change too fast", len(left), left[0][1:]))
	}
	return nil
}

// groupKeys returns the keys of all groups that are in use, sorted. It removes what names none.
func (d *doctor) groupKeys(ctx context.Context) ([]string, error) {
	keys := make(map[string]bool)
	err := d.scan(ctx, func(cursor uint64) (uint64, error) {
		fields, next, err := d.q.Client.HScan(ctx, d.q.Keys.Groups, cursor, "", facts.MaxScanned).Result()
		for i := 0; i < len(fields) && err == nil; i += 2 {
			if key := fields[i]; isGroup(key) {
				keys[key] = true
			} else {
				err = d.strayGroup(ctx, "groups", key, Step{Verb: "ungrouped", A: key})
			}
		}
		return next, err
	})
	if err != nil {
		return nil, err
	}
	err = d.scan(ctx, func(cursor uint64) (uint64, error) {
		members, next, err := d.q.Client.ZScan(ctx, d.q.Keys.Turns, cursor, "", facts.MaxScanned).Result()
		for i := 0; i < len(members) && err == nil; i += 2 {
			if line := members[i]; line != "" && line[0] >= '0' && line[0] <= '2' && isGroup(line[1:]) {
				keys[line[1:]] = true
			} else {
				err = d.strayGroup(ctx, "turns", line, Step{Verb: "unturned", A: line})
			}
		}
		return next, err
	})
	if err != nil {
		return nil, err
	}
	err = d.scan(ctx, func(cursor uint64) (uint64, error) {
		r, err := scripts.Lined.Run(ctx, d.q.Client, scripts.Lined.Keys(&d.q.Keys), scripts.Lined.Args(0, scripts.Arg("cursor", cursor), scripts.Arg("count", facts.MaxLook)))
		if err == nil {
			err = r.Status("ok")
		}
		if err != nil {
			return 0, err
		}
		next, found, strays := r.Str(1), r.Strs(2), r.Strs(3)
		if r.Err != nil {
			return 0, r.Err
		}
		for _, key := range found {
			keys[key] = true
		}
		for _, member := range strays {
			if err := d.strayGroup(ctx, "lined", member, Step{Verb: "unlined", A: member}); err != nil {
				return 0, err
			}
		}
		return strconv.ParseUint(next, 10, 64)
	})
	return slices.Sorted(maps.Keys(keys)), err
}

// isGroup reports whether a text can be the key of a group: 's' or 'g', and its name.
func isGroup(key string) bool { return len(key) > 1 && (key[0] == 's' || key[0] == 'g') }

// scan calls page with cursors, from 0 until it returns that.
func (d *doctor) scan(ctx context.Context, page func(cursor uint64) (next uint64, err error)) error {
	for cursor := uint64(0); ; {
		began := time.Now()
		next, err := page(cursor)
		if err == nil {
			err = d.rest(ctx, began)
		}
		if err != nil || next == 0 {
			return err
		}
		cursor = next
	}
}

// strayGroup is about an entry of a key of groups that is about none.
func (d *doctor) strayGroup(ctx context.Context, key, member string, s Step) error {
	done, err := d.mend(ctx, nil, s)
	if err == nil {
		d.find(facts.BadMember, "", fmt.Sprintf("%.250q in the key %s is no place of a job", member, key), done)
	}
	return err
}

// holders returns the IDs of jobs that wait and may hold one of the groups, by the group: those that are due, and those in ready lists. It
// looks at the lists last: jobs come from due into them, and not the other way.
func (d *doctor) holders(ctx context.Context, keys []string) (map[string][]string, error) {
	waiting := make(map[string][]string)
	add := func(_ *facts.Examination, f *facts.Job) {
		key := facts.GroupOf(f.Head)
		if _, asked := slices.BinarySearch(keys, key); !asked || slices.Contains(waiting[key], f.ID) || len(waiting[key]) > maxCandidates {
			return
		}
		if !slices.ContainsFunc(f.Places, func(p facts.Place) bool { return p.Kind != "due" || p.Later() }) {
			waiting[key] = append(waiting[key], f.ID)
		}
	}
	if err := d.each(ctx, facts.Origin{Name: "due"}, add); err != nil {
		return nil, err
	}
	for _, class := range facts.ReadyClasses {
		length, err := d.q.Client.LLen(ctx, d.q.Keys.Ready()[class]).Result()
		if err != nil {
			return nil, err
		}
		for last := int(length) - 1; last >= 0; last -= facts.MaxLook {
			e, err := d.look(ctx, facts.Origin{Name: "ready", Of: class, Cursor: strconv.Itoa(max(0, last-facts.MaxLook+1)), Count: last + Overlap})
			if err != nil {
				return nil, err
			}
			if err := d.whole(ctx, &e, add); err != nil {
				return nil, err
			}
		}
	}
	return waiting, nil
}

// groupFacts are what a queue has of one group at one moment.
type groupFacts struct {
	value   string // what GROUPS has
	holders int    // how many jobs hold it, of those that were looked at
	waits   [3]bool
	turns   [3]string // scores; "" for no turn
	until   [3]string // when the line gets a turn, in us; "" for a line that doesn't wait for its rate
	paused  bool
}

// lookAtGroups reads groups. ids are those of jobs that wait and may hold one of them. moved changes when a job that ran comes to wait.
func (d *doctor) lookAtGroups(ctx context.Context, keys, ids []string) (found []groupFacts, moved string, err error) {
	err = d.with(ctx, func(sessions []string) (again bool, err error) {
		names := scripts.Groups.Keys(&d.q.Keys)
		for _, session := range sessions {
			names = append(names, d.q.Keys.Inflight(session))
		}
		args := scripts.Groups.Args(len(keys)+len(ids), scripts.Arg("inflight", d.q.Keys.Inflight("")), scripts.Arg("keys", len(keys)))
		for _, key := range keys {
			args = append(args, key)
		}
		for _, id := range ids {
			args = append(args, id)
		}
		r, err := scripts.Groups.Run(ctx, d.q.Client, names, args)
		if err != nil {
			return false, err
		}
		if err := r.Status("ok", "again"); err != nil || r.Str(0) == "again" {
			return err == nil, err
		}
		found, moved = nil, r.Str(1)
		for _, one := range r.Array(2) {
			list, _ := one.([]any)
			row := &scripts.Reply{List: list}
			g := groupFacts{value: row.Str(0)}
			g.holders, _ = strconv.Atoi(row.Str(1))
			for i := range g.waits {
				g.waits[i], g.turns[i], g.until[i] = row.Str(2+3*i) == "1", row.Str(3+3*i), row.Str(4+3*i)
			}
			g.paused = row.Str(11) == "1"
			if row.Err != nil {
				return false, row.Err
			}
			found = append(found, g)
		}
		if r.Err == nil && len(found) != len(keys) {
			r.Fail(2, fmt.Sprintf("%d groups of %d", len(found), len(keys)))
		}
		return false, r.Err
	})
	return found, moved, err
}

// compare looks at groups, and reports what is wrong. waiting are the jobs that may hold them, as holders returns them, and moved is from
// before. It returns the groups that have to be looked at again.
func (d *doctor) compare(ctx context.Context, keys []string, waiting map[string][]string, moved string, surplus map[string]int) (left []string, err error) {
	for len(keys) > 0 {
		var ids []string
		n := 0
		for n < len(keys) && n < maxGroups && (n == 0 || len(ids)+len(waiting[keys[n]]) <= maxCandidates) {
			ids = append(ids, waiting[keys[n]]...)
			n++
		}
		some := keys[:n]
		keys = keys[n:]
		found, now, err := d.lookAtGroups(ctx, some, ids)
		if err != nil {
			return nil, err
		}
		for i, key := range some {
			again, err := d.compareGroup(ctx, key, &found[i], now == moved && len(waiting[key]) <= maxCandidates, surplus)
			if err != nil {
				return nil, err
			}
			if again {
				left = append(left, key)
			}
		}
	}
	return left, nil
}

// compareGroup reports what is wrong with one group. still says that no job has begun to wait since the jobs were looked for.
func (d *doctor) compareGroup(ctx context.Context, key string, f *groupFacts, still bool, surplus map[string]int) (again bool, err error) {
	g, _ := facts.ParseGroup(f.value)
	if text := f.judge(key); text != "" {
		done, err := d.mend(ctx, nil, Step{Verb: "group", A: key})
		if err != nil {
			return false, err
		}
		d.find(facts.WrongTurn, "", text, done)
	}
	switch missing := g.Holders - f.holders; {
	case missing == 0:
		return false, nil
	case missing > 0 && (!still || surplus[key] != missing):
		if still {
			surplus[key] = missing
		} else {
			delete(surplus, key)
		}
		return true, nil
	}
	done, err := d.mend(ctx, nil, Step{Verb: "group", A: key, B: fmt.Sprintf("%d %d", g.Holders, f.holders)})
	if err != nil {
		return false, err
	}
	if d.Repair && !done {
		return true, nil
	}
	d.find(facts.WrongHolders, "", fmt.Sprintf("%d jobs are said to hold group %.200q, there are %d", g.Holders, key[1:], f.holders), done)
	return false, nil
}

// judge returns what is wrong with the lines of a group, or "".
func (f *groupFacts) judge(key string) string {
	g, ok := facts.ParseGroup(f.value)
	switch {
	case f.value == "":
		g = facts.Group{States: "..."}
	case !ok:
		return fmt.Sprintf("group %.200q has the state %.40q, which can't be read", key[1:], f.value)
	case g == facts.Group{States: "..."}:
		return fmt.Sprintf("group %.200q is kept for nothing", key[1:])
	}
	for i, state := range g.States {
		turn := f.turns[i] != ""
		what := ""
		switch {
		case f.waits[i] && state == '.':
			what = "has jobs, and counts as empty"
		case !f.waits[i] && state != '.':
			what = "is empty, and counts as one with jobs"
		case state == 't' && !turn:
			what = "has jobs and should have a turn, and has none"
		case state != 't' && turn:
			what = "has a turn, and should have none"
		case state == 'w' && f.until[i] == "":
			what = "waits for its rate, and nobody knows until when"
		case state == 'b' && g.Holders == 0 && !f.paused:
			what = "waits for jobs that hold its group, and none does"
		case turn && int64(facts.ParseScore(f.turns[i]))>>50 != int64(i):
			what = "has a turn among those of another priority"
		default:
			continue
		}
		return fmt.Sprintf("the line of group %.200q and class %d %s", key[1:], i, what)
	}
	return ""
}
