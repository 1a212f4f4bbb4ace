package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

func (w *walk) enter(x *walker) {
	w.t.Helper()
	x.session, x.running, x.lost, x.then = "s"+NewID(), nil, nil, nil
	for range 1 + w.rnd.Intn(2) { // also as if the reply had been lost
		alive, _, err := w.Sessions().Open(bg, x.session, time.Hour)
		w.must(err)
		if !alive {
			w.fail("a session is over when it is opened")
		}
	}
	w.m.sessions[x.session] = true
}

// expire ends the lease of a session.
func (w *walk) expire(session string) {
	w.t.Helper()
	w.calls++
	alive, _, err := w.Sessions().Renew(bg, session, 0, "")
	w.must(err)
	if want := w.m.sessions[session]; alive != want {
		w.fail("session %s is alive: %v, and should be: %v", session, alive, want)
	}
	if w.m.sessions[session] {
		w.m.sessions[session] = false
	}
}

// late has a call come once more later.
func (w *walk) late(call func()) {
	if w.rnd.Intn(4) > 0 {
		return
	}
	if w.past = append(w.past, call); len(w.past) > 12 {
		w.past = w.past[1:]
	}
}

// numbered makes a call of the lane with an earlier number of it.
func (l *Lane) numbered(seq int64, call func()) {
	was := l.seq
	l.seq = seq
	l.Rearm()
	call()
	l.seq = was
}

// claim settles some deliveries, or all, and claims up to want jobs.
func (w *walk) claim(x *walker, want int, all bool) {
	if x.then != nil {
		c := x.then
		x.then = nil
		w.complete(x, x.lane, c, true)
		return
	}
	if x.lost != nil { // the call is made again
		req := x.lost
		x.lost = nil
		w.call(x, x.lane, req, true)
		return
	}
	var settle, others []Settlement
	var kept []Delivery
	for _, d := range x.running {
		o := Completed
		if !all {
			if w.rnd.Intn(2) == 0 {
				kept = append(kept, d)
				continue
			}
			if w.rnd.Intn(2) == 0 {
				o = outcomes[w.rnd.Intn(len(outcomes))]
			}
		}
		s := settlement(d, o)
		if o == Retry || o == Delay {
			s.Delay = []time.Duration{0, time.Hour}[w.rnd.Intn(2)]
			s.Survived = d.Job.Crashes > 0 && w.rnd.Intn(4) > 0
		}
		if o == Retry {
			s.Record, _ = d.Failed(1, "x")
		}
		if w.rnd.Intn(30) == 0 { // superseded
			old := s
			old.Token--
			others = append(others, old)
		}
		if o == Completed && w.rnd.Intn(3) == 0 {
			s.Keep = Kept(&Attempt{Number: 1}, nil)
			others = append(others, s)
		} else if o == Completed {
			settle = append(settle, s)
		} else {
			others = append(others, s)
		}
	}
	w.rnd.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	settle = append(settle, others...)
	x.running = kept
	req := &ClaimRequest{Session: x.session, Settle: settle, Want: want, Suspects: true}
	lane := x.lane
	lane.Next()
	seq := lane.seq
	if !all && w.rnd.Intn(10) == 0 { // the reply is lost
		answered, session, at, served := lane.answered, lane.session, lane.at, lane.served
		w.call(x, x.lane, req, false)
		lane.answered, lane.session, lane.at, lane.served = answered, session, at, served
		x.lost = req
		return
	}
	if w.call(x, x.lane, req, true) && w.rnd.Intn(10) == 0 {
		x.running = kept
		w.call(x, x.lane, req, true)
	}
	failovers := w.failovers
	w.late(func() {
		if w.failovers > failovers {
			return // a connection doesn't outlive a failover
		}
		answered, session, at, served := lane.answered, lane.session, lane.at, lane.served
		lane.numbered(seq, func() { w.call(x, lane, req, false) })
		lane.answered, lane.session, lane.at, lane.served = answered, session, at, served
	})
}

// call makes a claim by the lane's number. heard says that the worker gets the reply. It reports whether the worker's session goes on.
func (w *walk) call(x *walker, lane *Lane, req *ClaimRequest, heard bool) (alive bool) {
	w.t.Helper()
	m := w.m
	last := m.lanes[lane.key]
	w.calls++
	known := lane.known(req.Session)
	reply, err := w.Sessions().Claim(bg, lane, req)
	if last != nil && lane.seq < last.seq {
		w.note("claim %d of %s comes late", lane.seq, req.Session)
		if !errors.Is(err, scripts.ErrStale) {
			w.fail("a claim that comes after a later one returns %v", err)
		}
		return true
	}
	w.must(err)
	w.now = reply.At
	now := reply.At.UnixMicro()
	forgot := known > 0 && (last == nil || last.seq < known) || last != nil && last.seq == lane.seq && last.forgot
	alive = m.sessions[req.Session] && !forgot
	if reply.Alive != alive {
		w.fail("session %s is said to be alive: %v, and should be: %v", req.Session, reply.Alive, alive)
	}
	if last != nil && lane.seq == last.seq {
		w.note("claim %d of %s again, gets %v", lane.seq, req.Session, ids(reply.Deliveries))
		var want []string
		for _, g := range last.granted {
			if f := m.jobs[g.ID]; f != nil && f.where == "running" && f.session == req.Session && f.token == g.Token {
				want = append(want, g.ID)
			}
		}
		if !slices.Equal(ids(reply.Deliveries), append([]string{}, want...)) {
			w.fail("a claim that is made again gets %v, and should get %v", ids(reply.Deliveries), want)
		}
		if len(reply.Late) > 0 {
			w.fail("a claim that is made again has %v expire", late(reply))
		}
	} else {
		w.judge(lane, req, reply, now)
		m.lanes[lane.key].forgot = forgot
	}
	switch {
	case !heard:
	case !alive:
		w.leave(x)
	default:
		x.running = append(x.running, reply.Deliveries...)
	}
	return alive
}

// leave ends the session of a worker that has noticed that it is over.
func (w *walk) leave(x *walker) {
	w.t.Helper()
	if _, there := w.m.sessions[x.session]; there {
		w.expire(x.session)
	}
	if i := slices.Index(w.frozen, x); i >= 0 {
		w.frozen = slices.Delete(w.frozen, i, i+1)
		return
	}
	if w.rnd.Intn(2) == 0 {
		x.lane = w.NewLane()
	}
	w.enter(x)
}

// judge compares the reply of a claim with what the model allows, and has the model follow it.
func (w *walk) judge(lane *Lane, req *ClaimRequest, reply *ClaimReply, now int64) {
	w.t.Helper()
	m := w.m
	what := ""
	var refused []int
	for i := range req.Settle {
		s := &req.Settle[i]
		what += fmt.Sprintf(" %s:%s+%v", s.ID, s.Outcome, s.Delay)
		if s.Survived {
			what += "!"
		}
		if !m.settle(req.Session, s, now) {
			refused = append(refused, i)
		}
	}
	w.note("claim %d: %s wants %d, settles%s, gets %v", lane.seq, req.Session, req.Want, what, ids(reply.Deliveries))
	slices.Sort(reply.Refused)
	if !slices.Equal(reply.Refused, refused) {
		w.fail("of what a claim settles %v are refused, and %v should be", reply.Refused, refused)
	}
	m.promote(now)
	if over := m.expire(now); !slices.Equal(late(reply), over) {
		w.fail("%v expire, and %v should", late(reply), over)
	} else if len(over) > 0 {
		w.note("%v have expired", over)
		w.expired += len(over)
	}
	if len(reply.Deliveries) > 0 && (!reply.Alive || m.paused) {
		w.fail("%v were given to a session that is alive: %v, in a queue that is paused: %v", ids(reply.Deliveries), reply.Alive, m.paused)
	}
	suspects := false // in lines
	for _, f := range m.jobs {
		suspects = suspects || f.where == "lined" && f.crashes >= SuspectAt
	}
	left := req.Want // how many the queue's limit leaves
	if m.queue.Running > 0 {
		left = min(left, m.queue.Running-m.running())
	}
	granted := make([]facts.Grant, 0, len(reply.Deliveries))
	for _, d := range reply.Deliveries {
		id := d.Job.ID
		f := m.jobs[id]
		switch {
		case f == nil || f.where != "ready" && f.where != "lined":
			w.fail("job %s was given, it is %v", id, f)
		case d.Job.Token <= w.token:
			w.fail("job %s has token %d, the one before was %d", id, d.Job.Token, w.token)
		case m.stopped[f.key]:
			w.fail("job %s was given, and its group %s is paused", id, f.key)
		case m.early("", now) > walkSlack:
			w.fail("job %s was given %.0f us too early for the queue", id, m.early("", now))
		case d.Job.Crashes != f.crashes || int64(wire.SurvivedOf(d.record)) != f.survived || f.crashes > 0 && ranOf(string(d.record)) != f.ran:
			w.fail("job %s has crashed %d times, survived %d since and ran for %d ms, and should have %d, %d and %d", id,
				d.Job.Crashes, wire.SurvivedOf(d.record), ranOf(string(d.record)), f.crashes, f.survived, f.ran)
		case f.crashes >= SuspectAt && !m.joins(req.Session, f.crashes):
			w.fail("job %s, which has crashed %d times, was given to a session that has another suspect", id, f.crashes)
		case m.queue.Running > 0 && m.running() >= m.queue.Running:
			w.fail("job %s was given, though %d jobs run and %d may", id, m.running(), m.queue.Running)
		}
		if f.where == "lined" {
			line := slices.DeleteFunc(m.line(f.class, f.key), func(other string) bool { return m.jobs[other].crashes >= SuspectAt })
			if len(line) == 0 || line[0] != id {
				w.fail("job %s was given, and line %c%s is %v", id, f.class, f.key, line)
			}
			if most := m.limits(f.key).Running; most > 0 && m.holders(f.key) >= most {
				w.fail("job %s was given, though %d jobs hold group %s and %d may", id, m.holders(f.key), f.key, most)
			}
			if early := m.early(f.key, now); early > walkSlack {
				w.fail("job %s was given %.0f us too early for group %s", id, early, f.key)
			}
			m.started(f.key, now)
		} else if f.key != "" {
			if most := m.limits(f.key).Running; most > 0 && m.runningOf(f.key) >= most {
				w.fail("job %s was given again, though %d jobs of group %s run and %d may", id, m.runningOf(f.key), f.key, most)
			}
			if early := m.unpaid(f.key, now); early > walkSlack {
				w.fail("job %s was given again %.0f us too early for group %s", id, early, f.key)
			}
			m.started(f.key, now)
		}
		m.started("", now)
		w.token, f.life, f.end = d.Job.Token, 0, 0 // what has started never expires
		f.where, f.session, f.token, f.holds, f.marked = "running", req.Session, d.Job.Token, f.key != "", false
		granted = append(granted, facts.Grant{ID: id, Token: d.Job.Token})
	}
	m.lanes[lane.key] = &answer{seq: lane.seq, granted: granted}
	off := w.follow(now, suspects) // it has drawn these jobs, too
	if m.queue.Rate.Jobs > 0 && off > 0 {
		left = off // by the rate it may have been all
	} else if off == 0 {
		left = req.Want
	}
	if reply.CutShort && len(reply.Deliveries)+off < left && !m.waiting() {
		w.fail("%d of %d were given and nobody waits, but the session wasn't registered to be woken", len(reply.Deliveries), left)
	}
	if next := m.upcoming(); next > 0 && (reply.Next < 0 || reply.Next > time.Duration(next-now)*time.Microsecond) {
		w.fail("a job expires in %d us, and a claim is asked for another one in %v", next-now, reply.Next)
	}
	if reply.Alive && m.paused && reply.Next == 0 && !m.overdue(now) {
		w.fail("a claim in a queue that is paused is asked for another one at once")
	}
	if reply.Alive && len(reply.Deliveries) < req.Want && !reply.More {
		if idle := m.idle(now); idle != "" {
			w.fail("%d of %d were given, and job %s", len(reply.Deliveries), req.Want, idle)
		}
	}
}

// follow has the model follow what a claim did beside what it gave. It puts suspects that it draws from lines among the others. Jobs that hold their groups go back to
// their lines, if the rates allow none yet, the groups are paused, or their limits were lowered; those of serial groups are put off. It returns how many that are.
func (w *walk) follow(now int64, suspects bool) (off int) {
	w.t.Helper()
	drawn, may, excess := make(map[string]bool), make(map[string]bool), make(map[string]int)
	if suspects {
		places := w.view().jobs
		for id, f := range w.m.jobs {
			if f.where == "lined" && f.crashes >= SuspectAt && strings.HasPrefix(places[id], "ready") {
				w.m.started(f.key, now)
				drawn[id] = true
			}
		}
	}
	for id, f := range w.m.jobs {
		may[id] = f.where == "ready" && f.key != "" && (w.m.stopped[f.key] || w.m.unpaid(f.key, now) > -walkSlack || w.m.excess(f.key) > 0)
		if may[id] {
			excess[f.key] = w.m.excess(f.key)
		}
	}
	late := w.m.late()
	w.adopt(func(id string) bool { return drawn[id] || may[id] || late[id] != 0 })
	for id, us := range late {
		f := w.m.jobs[id]
		if f.us != us && (f.us > now || w.m.unpaid(f.key, now) > walkSlack) {
			w.fail("job %s, which waited for the rate of its group %s until %d, is %q", id, f.key, us, f.text(id))
		}
	}
	for id := range may {
		f := w.m.jobs[id]
		if !may[id] || f.where == "ready" {
			continue
		}
		off++
		if w.m.stopped[f.key] {
			left := f.us - now
			if serial := f.key[0] == 's'; serial && (f.where != "due" || !f.holds || left < 0 || left > 600e6) || !serial && (f.where != "lined" || f.holds) {
				w.fail("job %s, which waits for its group %s to be resumed, is %q", id, f.key, f.text(id))
			}
			if f.where == "due" {
				w.m.awaits[f.key] = putOff{id, f.us}
			}
			continue
		}
		if f.key[0] == 'g' {
			if excess[f.key]--; excess[f.key] < 0 && w.m.unpaid(f.key, now) < -walkSlack || f.where != "lined" || f.holds {
				w.fail("job %s goes back to the line of group %s, which has room for it, or is elsewhere: %q", id, f.key, f.text(id))
			}
			continue
		}
		if by := float64(f.us-now) - w.m.unpaid(f.key, now); f.where != "due" || !f.holds || math.Abs(by) > walkSlack {
			w.fail("job %s, which waits for the rate of its group %s, is %q, %.0f us from where it should be", id, f.key, f.text(id), by)
		}
		w.m.off[f.key] = putOff{id, f.us}
	}
	return off
}

// crash ends a worker's session. Its jobs are taken back at once or later. Some workers go on without knowing.
func (w *walk) crash(x *walker) {
	w.note("crash of %s", x.session)
	w.expire(x.session)
	if w.rnd.Intn(2) == 0 {
		frozen := *x
		w.frozen = append(w.frozen, &frozen)
		x.lane = w.NewLane()
	} else if w.rnd.Intn(2) == 0 {
		w.takeBack(x.session)
	}
	w.enter(x)
}

// over returns a session that is over, or "".
func (w *walk) over() string {
	var over []string
	for session, alive := range w.m.sessions {
		if !alive {
			over = append(over, session)
		}
	}
	if len(over) == 0 {
		return ""
	}
	slices.Sort(over)
	return over[w.rnd.Intn(len(over))]
}

// takeBack takes back the jobs of a session. Some of them die.
func (w *walk) takeBack(session string) {
	w.t.Helper()
	running := make([]string, 0, len(w.m.jobs))
	for id, f := range w.m.jobs {
		if f.where == "running" && f.session == session {
			running = append(running, id)
		}
	}
	slices.Sort(running)
	for _, id := range running {
		if w.rnd.Intn(4) == 0 && w.m.jobs[id].crashes < SuspectAt { // its session has no others that are suspects by that
			record := []byte(w.rdb.HGet(bg, w.keys.Jobs, id).Val())
			record[2] = CrashLimit - 1
			w.must(w.rdb.HSet(bg, w.keys.Jobs, id, record).Err())
			w.m.jobs[id].crashes = CrashLimit - 1
		}
	}
	w.note("take back %s: %v", session, running)
	w.calls++
	expired := w.rdb.ZScore(bg, w.keys.Sessions, session).Val()
	res := w.reclaim(session)
	again, dead, cancelled := w.m.takeBack(session, int64(expired))
	for _, c := range []struct {
		what      string
		got, want []string
	}{{"run again", res.Returned, again}, {"are dead", ids(res.Dead), dead}, {"are cancelled", ids(res.Cancelled), cancelled}} {
		slices.Sort(c.got)
		if !slices.Equal(c.got, c.want) && len(c.got)+len(c.want) > 0 {
			w.fail("of a session %v %s, and %v should", c.got, c.what, c.want)
		}
	}
	if w.rnd.Intn(4) == 0 { // by another worker, or since the reply was lost
		w.reclaim(session)
	}
}
