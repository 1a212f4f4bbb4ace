package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// limit changes limits and the maximum, holds jobs back, or has time pass for rates.
func (w *walk) limit() {
	l := signalbox.Limits{Running: w.rnd.Intn(4)}
	if w.rnd.Intn(3) == 0 {
		l.Rate = signalbox.Rate{Jobs: 1 + w.rnd.Intn(3), Per: time.Hour, Burst: 1 + w.rnd.Intn(3)}
	}
	own := l // of one group: it inherits what it has no limit for, unless it says that there is none
	if own.Running == 0 && w.rnd.Intn(2) == 0 {
		own.Running = signalbox.NoLimit
	}
	if own.Rate.Jobs == 0 && w.rnd.Intn(3) == 0 {
		own.Rate.Jobs = signalbox.NoLimit
	}
	key := walkKeys[w.rnd.Intn(len(walkKeys))]
	group := walkKeys[3+w.rnd.Intn(4)] // one that isn't serial
	most := max(0, w.rnd.Intn(60)-20)
	kind := w.rnd.Intn(15)
	if name := w.putOff(); name != "" && w.rnd.Intn(2) == 0 { // an operator helps one that waits for its rate
		kind, group = 1+w.rnd.Intn(3), "g"+name
	}
	repeats := 1 + w.rnd.Intn(8)/7 // also as if the reply had been lost
	for range repeats {
		var err error
		w.calls++
		switch kind {
		case 0:
			w.note("limits %+v", l)
			w.m.queue = l
			err = w.refit([]string{""}, func() error { _, err := w.Settings().SetLimits(bg, l); return err })
		case 1:
			w.note("limits of groups %+v", l)
			w.m.groups = l
			err = w.refit(slices.DeleteFunc(slices.Collect(maps.Keys(w.m.next)), func(key string) bool { return key == "" }),
				func() error { _, err := w.Settings().SetGroupLimits(bg, l); return err })
		case 2:
			w.note("limits of group %s %+v", group, own)
			w.m.own[group] = own
			err = w.refit([]string{group, "s" + group[1:]}, func() error { _, err := w.Settings().SetLimitsOf(bg, group[1:], own); return err })
		case 3:
			w.note("no limits of group %s", group)
			delete(w.m.own, group)
			err = w.refit([]string{group, "s" + group[1:]}, func() error { _, err := w.Settings().SetLimitsOf(bg, group[1:], signalbox.Limits{}); return err })
		case 4:
			if w.rnd.Intn(4) == 0 {
				key = ""
			}
			w.holdBack(key, time.Duration(1+w.rnd.Intn(50))*time.Minute)
		case 5:
			for key := range w.m.held {
				w.holdBack(key, 0)
				break
			}
		case 6:
			if w.m.paused = w.rnd.Intn(4) == 0; w.m.paused {
				_, err = w.Settings().Pause(bg)
			} else {
				_, err = w.Settings().Resume(bg)
			}
			w.note("paused: %v", w.m.paused)
		case 7, 8:
			w.note("at most %d jobs", most)
			_, err = w.Settings().SetMaxLength(bg, most)
			w.m.most = most
		case 9:
			w.stepBack(time.Duration(1+w.rnd.Intn(7200)) * time.Second)
		case 10:
			w.note("pause group %s", key)
			_, err = w.Settings().PauseGroup(bg, key)
			w.m.stopped[key] = true
		case 11, 12:
			for key := range w.m.stopped {
				w.resumeGroup(key)
				break
			}
		default:
			w.pass()
		}
		w.must(err)
	}
}

// putOff returns the name of a group whose job was put off for its rate, or "".
func (w *walk) putOff() string {
	var names []string
	for id := range w.m.late() {
		names = append(names, w.m.jobs[id].key[1:])
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return names[w.rnd.Intn(len(names))]
}

// resumeGroup resumes a group. The job that waits for that is due at once.
func (w *walk) resumeGroup(key string) {
	w.t.Helper()
	w.note("resume group %s", key)
	var awaits []string
	if off := w.m.awaits[key]; w.m.isPutOff(key, off) {
		awaits = append(awaits, off.id)
	}
	_, err := w.Settings().ResumeGroup(bg, key)
	w.must(err)
	w.now, err = w.Now(bg)
	w.must(err)
	delete(w.m.stopped, key)
	delete(w.m.awaits, key)
	w.adopt(among(awaits))
	for _, id := range awaits {
		if f := w.m.jobs[id]; f.us > w.now.UnixMicro() {
			w.fail("job %s waited for its group to be resumed, and is %q", id, f.text(id))
		}
	}
}

// holdBack holds back the jobs of a group, or of the queue.
func (w *walk) holdBack(key string, d time.Duration) {
	w.note("hold back %q for %v", key, d)
	w.calls++
	until, err := w.Settings().HoldBack(bg, key, "", d)
	w.must(err)
	if d == 0 {
		delete(w.m.held, key)
	} else {
		w.m.held[key] = max(w.m.held[key], until.UnixMicro()+w.m.ahead)
	}
}

// refit changes limits, and has the model follow what that does to the times of the groups with these keys, "" for the queue: a time that is further ahead than
// the new rate can bring it is brought to that bound, and one without a rate is forgotten. A job of a serial group that was put off for the old rate is due at once.
func (w *walk) refit(keys []string, change func() error) error {
	w.t.Helper()
	before, err := w.Now(bg)
	w.must(err)
	var late []string
	for id := range w.m.late() {
		if slices.Contains(keys, w.m.jobs[id].key) {
			late = append(late, id)
		}
	}
	if err := change(); err != nil {
		return err
	}
	after, err := w.Now(bg)
	w.must(err)
	rates := w.view().rates
	for _, key := range keys {
		at, there := w.m.next[key]
		longest, rated := w.m.longest(key)
		if !there {
			continue
		} else if !rated {
			delete(w.m.next, key)
			continue
		}
		earliest, latest := min(at, float64(before.UnixMicro()+w.m.ahead)+longest), min(at, float64(after.UnixMicro()+w.m.ahead)+longest)
		if got, there := rates[key]; there && (got < earliest-50 || got > latest+50) {
			w.fail("with new limits the time of %q is %.0f, and should be %.0f to %.0f", key, got, earliest, latest)
		} else if there {
			w.m.next[key] = got
		} else {
			w.m.next[key] = earliest // it has passed, as compare finds if it hasn't
		}
	}
	w.adopt(among(late))
	for _, id := range late {
		if f := w.m.jobs[id]; f.us > after.UnixMicro() {
			w.fail("job %s waited for the old rate of its group, and is %q", id, f.text(id))
		}
	}
	return nil
}

// stepBack sets Redis' clock back, as far as limits can see: all that they go by is further ahead by d. Nothing waits longer for that.
func (w *walk) stepBack(d time.Duration) {
	w.t.Helper()
	text := w.rdb.HGet(bg, w.keys.Stats, "clock").Val()
	var seen, ahead int64
	if _, err := fmt.Sscan(text, &seen, &ahead); err != nil {
		return // the queue has had no limits
	}
	w.compare()
	w.note("Redis' clock goes back by %v", d)
	p, us := w.rdb.Pipeline(), d.Microseconds()
	for _, score := range w.rdb.ZRangeWithScores(bg, w.keys.Parked, 0, -1).Val() {
		p.ZIncrBy(bg, w.keys.Parked, float64(us), score.Member.(string))
	}
	rates := w.view().rates
	for name, at := range rates {
		key, held := strings.CutPrefix(name, "h")
		at += float64(us)
		if longest, rated := w.m.longest(key); rated && !held { // what has passed since the clock was last seen isn't known
			known := float64(seen+us) + longest
			if w.m.blur = max(w.m.blur, at-known); w.m.blur > 100e3 {
				w.fail("the time of %q is %.0f us further ahead than its rate allows", key, at-known)
			}
			at = min(at, known)
		}
		p.ZAdd(bg, w.keys.Rates, z(at, name))
		if held {
			w.m.held[key] = int64(at)
		} else {
			w.m.next[key] = at
		}
	}
	for key := range w.m.next {
		if _, there := rates[key]; !there {
			delete(w.m.next, key) // it has passed, or compare would have found that
		}
	}
	for key := range w.m.held {
		if _, there := rates["h"+key]; !there {
			delete(w.m.held, key)
		}
	}
	p.HSet(bg, w.keys.Stats, "clock", fmt.Sprint(seen+us, " ", ahead))
	_, err := p.Exec(bg)
	w.must(err)
	was := w.m.ahead
	_, err = w.Settings().HoldBack(bg, "gClock", "", 0)
	w.must(err)
	until, err := w.Settings().HoldBack(bg, "gClock", "", time.Microsecond) // so Redis notes it
	w.must(err)
	if _, err := fmt.Sscan(w.rdb.HGet(bg, w.keys.Stats, "clock").Val(), &seen, &w.m.ahead); err != nil || w.m.ahead <= was || w.m.ahead > was+us {
		w.fail("the clock of limits is ahead by %d us, after a step of %d us; it was by %d us (%v)", w.m.ahead, us, was, err)
	}
	w.m.held["gClock"] = until.UnixMicro() + w.m.ahead
}

// pass has an hour pass for rates.
func (w *walk) pass() {
	w.note("an hour passes")
	for _, key := range []string{w.keys.Rates, w.keys.Parked} {
		for _, score := range w.rdb.ZRangeWithScores(bg, key, 0, -1).Val() {
			w.must(w.rdb.ZIncrBy(bg, key, -3600e6, score.Member.(string)).Err())
		}
	}
	for key := range w.m.next {
		w.m.next[key] -= 3600e6
	}
	for key := range w.m.held {
		if w.m.held[key] -= 3600e6; w.m.held[key] <= w.now.UnixMicro()+w.m.ahead {
			delete(w.m.held, key)
		}
	}
}

// due has some jobs become due.
func (w *walk) due() {
	var due []string
	for id, f := range w.m.jobs {
		if f.where == "due" && f.us != wire.HeldUntil.UnixMicro() {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	w.rnd.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	if due = due[:min(len(due), 1+w.rnd.Intn(3))]; len(due) == 0 {
		return
	}
	records, err := w.rdb.HMGet(bg, w.keys.Jobs, due...).Result()
	w.must(err)
	w.note("due: %v", due)
	p := w.rdb.Pipeline()
	for i, id := range due {
		f := w.m.jobs[id]
		member := strings.Fields(f.text(id))[1] + id
		record := []byte(records[i].(string))
		f.us = w.now.UnixMicro() - int64(w.rnd.Intn(1e6))
		binary.BigEndian.PutUint64(record[12:], uint64(f.us))
		p.HSet(bg, w.keys.Jobs, id, record)
		p.ZAddXX(bg, w.keys.Due, z(float64(f.us), member))
		w.redate(p, id)
	}
	_, err = p.Exec(bg)
	w.must(err)
}

// redate writes when the job expires.
func (w *walk) redate(p redis.Pipeliner, id string) {
	if at := w.m.jobs[id].expires(); at > 0 {
		p.ZAddXX(bg, w.keys.Expires, z(float64(at), id))
	}
}

// lapse has the time to start be over for some jobs that are due and haven't started.
func (w *walk) lapse() {
	var some []string
	for id, f := range w.m.jobs {
		if at := f.expires(); at > w.now.UnixMicro() && f.us < w.now.UnixMicro() {
			some = append(some, id)
		}
	}
	slices.Sort(some)
	w.rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	if some = some[:min(len(some), 1+w.rnd.Intn(4))]; len(some) == 0 {
		return
	}
	records, err := w.rdb.HMGet(bg, w.keys.Jobs, some...).Result()
	w.must(err)
	w.note("out of time: %v", some)
	p := w.rdb.Pipeline()
	for i, id := range some {
		f := w.m.jobs[id]
		left := 1 + w.rnd.Int63n(w.now.UnixMicro()-f.us)
		part := uint64(left)
		if f.end > 0 {
			f.end = f.us + left
			part = 128<<56 | uint64(f.end)
		} else {
			f.life = time.Duration(left) * time.Microsecond
		}
		record := []byte(records[i].(string))
		last := 22 + int(binary.BigEndian.Uint16(record[20:])) // of the extras, which end with the time to start
		binary.BigEndian.PutUint64(record[last-8:], part)
		p.HSet(bg, w.keys.Jobs, id, record)
		w.redate(p, id)
	}
	_, err = p.Exec(bg)
	w.must(err)
}

// any returns up to three jobs with such IDs, in whatever state they are.
func (w *walk) any(prefix string) []string {
	var all []string
	for id := range w.m.jobs {
		if strings.HasPrefix(id, prefix) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	w.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), 1+w.rnd.Intn(3))]
}

// among returns a function that reports whether an ID is one of those.
func among(some []string) func(string) bool {
	return func(id string) bool { return slices.Contains(some, id) }
}

// act does something to some jobs.
func (w *walk) act() {
	acts := []Act{
		CancelJobs("why"), ArchiveJobs("why"), DeleteJobs(), RunJobs(time.Time{}), RunJobs(w.now.Add(time.Hour)),
		PrioritiseJobs(signalbox.PriorityHigh), PrioritiseJobs(signalbox.PriorityLow),
	}
	a := acts[w.rnd.Intn(len(acts))]
	some := w.any(map[bool]string{true: "j"}[a.verb == "run"]) // a job of a cron entry that runs again doesn't count as one of it
	if len(some) == 0 {
		return
	}
	was := make(map[string]fact)
	for _, id := range some {
		was[id] = *w.m.jobs[id]
	}
	for range 1 + w.rnd.Intn(6)/5 { // also as if the reply had been lost
		w.calls++
		answers, err := w.Do(bg, a, some)
		w.must(err)
		w.note("%s %v of %v: %v", a.verb, a.due, some, answers)
		for i, answer := range answers {
			if answer.Acted == Lost || answer.Acted == Failed {
				w.fail("%s of job %s: %v", a.verb, some[i], answer)
			}
		}
	}
	w.adopt(among(some))
	for _, id := range some {
		old, f := was[id], w.m.jobs[id]
		if old.us == wire.HeldUntil.UnixMicro() && old.where == "due" {
			continue // it is being moved: nobody acts on it
		}
		ok := true
		switch a.verb {
		case "cancel":
			ok = old.ended() || f == nil && old.own == signalbox.RetainNone || f != nil && (f.where == string(Cancelled) || f.where == "running" && f.marked)
		case "archive":
			ok = f == nil && (old.ended() || old.own == signalbox.RetainNone) || f != nil && (f.where == string(Dead)) == (old.where != "running" && (!old.ended() || old.where == string(Dead)))
		case "delete":
			ok = (f == nil) == (old.where != "running")
		case "run":
			ok = f != nil && (f.where == "running") == (old.where == "running") && !f.ended()
		case "class":
			ok = f != nil && (f.where == "running") == (old.where == "running") && f.ended() == old.ended()
		}
		if dropped := w.m.trims && old.where == string(Completed) && f == nil; !ok && !dropped {
			w.fail("%s made of job %s, which was %q: %v", a.verb, id, old.text(id), f)
		}
	}
}

// move moves some jobs to the other queue, or begins to. Or it ends what was begun, and brings back what is there.
func (w *walk) move() {
	if w.begun > 0 && w.rnd.Intn(2) > 0 {
		w.bring()
		return
	}
	some := w.any("j")
	jobs := make([]*moving, len(some))
	for i, id := range some {
		jobs[i] = &moving{id: id}
	}
	m := &mover{from: w.Queue, to: w.to.Queue, states: movable()}
	rounds := 1 + w.rnd.Intn(6)
	w.note("move %v, %d rounds", some, rounds)
	w.begun++
	for range rounds {
		left := open(jobs)
		if len(left) == 0 {
			break
		}
		found, err := m.read(bg, left)
		w.must(err)
		var p plan
		for i, job := range left {
			m.step(job, found[i], &p)
		}
		w.calls++
		w.must(m.do(bg, &p))
	}
	if w.rnd.Intn(3) == 0 && len(open(jobs)) > 0 {
		w.note("undo")
		m.undo(bg, jobs)
	}
	completed := make(map[string]bool) // one that is kept may be dropped meanwhile
	for _, id := range some {
		completed[id] = w.m.jobs[id].where == string(Completed)
	}
	for _, id := range w.adopt(among(some)) {
		if !completed[id] && !w.rdb.HExists(bg, w.to.keys.Jobs, id).Val() {
			w.fail("job %s is lost by a move", id)
		}
	}
}

// bring ends all moves, and brings back what is in the other queue.
func (w *walk) bring() {
	w.note("bring back")
	var some, held []string
	for id, f := range w.m.jobs {
		if f.where == string(Dead) || f.where == "due" && f.us == wire.HeldUntil.UnixMicro() {
			some = append(some, id)
		}
	}
	some = append(some, w.rdb.HKeys(bg, w.to.keys.Jobs).Val()...)
	_, err := w.Transfer().Move(bg, w.to.Name(), w.rdb.HKeys(bg, w.keys.Jobs).Val(), signalbox.StateDead) // of others only those that are held
	w.must(err)
	// A move that was undone after it took another one over has left a copy there. It is made again.
	for _, held := range append(w.heldJobs(), w.rdb.HKeys(bg, w.to.keys.Jobs).Val()...) {
		some = append(some, held)
		_, err := w.Transfer().Move(bg, w.to.Name(), []string{held})
		w.must(err)
	}
	if held = w.heldJobs(); len(held) > 0 {
		w.fail("%v are held after their moves", held)
	}
	all := w.rdb.HKeys(bg, w.to.keys.Jobs).Val()
	answers, err := w.to.Transfer().Move(bg, w.Name(), all)
	w.must(err)
	var taken []string
	w.begun = 0
	for i, answer := range answers {
		job := w.m.jobs[all[i]]
		switch {
		case answer.Acted == Occupied:
			taken = append(taken, all[i])
		case answer == Answer{Acted: Wrong, State: StateHeld} && job != nil && job.where == "running":
			w.begun++ // such a copy can't be made again while its job runs: it stays until that has ended
		case answer == Answer{Acted: Wrong, State: StateHeld} && job != nil && job.where == string(Completed):
			// it stays until that job, which is kept, is dropped
		case answer.Acted != Done:
			w.fail("job %s isn't brought back: %v", all[i], answer)
		}
	}
	if len(taken) > 0 {
		_, err := w.to.Do(bg, DeleteJobs(), taken)
		w.must(err)
	}
	if lost := w.adopt(among(some)); len(lost) > 0 {
		w.fail("%v are lost by moves", lost)
	}
	if n := w.rdb.Exists(bg, w.to.keys.Lined, w.to.keys.Turns, w.to.keys.Groups).Val(); n > 0 {
		w.fail("the other queue has lines, %v", w.to.dump())
	}
}

// heldJobs returns the jobs that are being moved.
func (w *walk) heldJobs() (held []string) {
	at := fmt.Sprint(wire.HeldUntil.UnixMicro())
	for _, member := range w.rdb.ZRangeByScore(bg, w.keys.Due, &redis.ZRangeBy{Min: at, Max: at}).Val() {
		held = append(held, member[1:])
	}
	return held
}

// failover saves what Redis has, or goes back to what was saved. Workers and producers go on with what they know.
func (w *walk) failover() {
	if w.begun > 0 {
		w.bring() // what is acknowledged is lost here, and a move rests on that
	}
	keys, err := w.Site().AllKeys(bg)
	w.must(err)
	p := w.rdb.Pipeline()
	if w.saved == nil {
		w.note("save")
		values := make([]*redis.StringCmd, len(keys))
		for i, key := range keys {
			values[i] = p.Dump(bg, key)
		}
		_, err := p.Exec(bg)
		w.must(err)
		w.saved, w.before = make(map[string]string), w.m.clone()
		for i, key := range keys {
			w.saved[key] = values[i].Val()
		}
		return
	}
	w.note("failover")
	p.Del(bg, keys...)
	for key, value := range w.saved {
		p.Restore(bg, key, 0, value)
	}
	_, err = p.Exec(bg)
	w.must(err)
	w.saved, w.m = nil, w.before
	w.failovers++
	for session, alive := range w.m.sessions {
		if alive && !slices.ContainsFunc(slices.Concat(w.workers, w.frozen), func(x *walker) bool { return x.session == session }) {
			w.expire(session)
		}
	}
}
