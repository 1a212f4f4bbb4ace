package store

import (
	"errors"
	"math"
	"slices"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// then completes a delivery with follow-ups.
func (w *walk) then(x *walker) {
	if x.lost != nil || x.then != nil || len(x.running) == 0 {
		w.claim(x, w.rnd.Intn(8), false)
		return
	}
	i := w.rnd.Intn(len(x.running))
	d := x.running[i]
	s := settlement(d, Completed)
	if w.rnd.Intn(8) == 0 { // superseded
		s.Token--
	} else {
		x.running = slices.Delete(slices.Clone(x.running), i, i+1)
	}
	if w.rnd.Intn(3) == 0 {
		s.Keep = Kept(&Attempt{Number: 1}, nil)
	}
	c := &Completion{Session: x.session, Settle: s, FollowUps: w.items()}
	if it := &c.FollowUps[0]; w.rnd.Intn(6) == 0 {
		it.id = d.Job.ID
	}
	lane := x.lane
	lane.Next()
	seq := lane.seq
	if w.rnd.Intn(10) == 0 { // the reply is lost
		answered, session, at, served := lane.answered, lane.session, lane.at, lane.served
		w.complete(x, lane, c, false)
		lane.answered, lane.session, lane.at, lane.served = answered, session, at, served
		x.then = c
		return
	}
	if w.complete(x, lane, c, true) && w.rnd.Intn(5) == 0 {
		w.complete(x, lane, c, true)
	}
	failovers := w.failovers
	w.late(func() {
		if w.failovers > failovers {
			return // a connection doesn't outlive a failover
		}
		answered, session, at, served := lane.answered, lane.session, lane.at, lane.served
		lane.numbered(seq, func() { w.complete(x, lane, c, false) })
		lane.answered, lane.session, lane.at, lane.served = answered, session, at, served
	})
}

// complete makes a completion by the lane's number. heard says that the worker gets the reply. It reports whether the worker's session goes on.
func (w *walk) complete(x *walker, lane *Lane, c *Completion, heard bool) (alive bool) {
	w.t.Helper()
	m := w.m
	last := m.lanes[lane.key]
	w.calls++
	known := lane.known(c.Session)
	reply, err := w.Sessions().Complete(bg, lane, c)
	if last != nil && lane.seq < last.seq {
		w.note("completion %d of %s comes late", lane.seq, c.Session)
		if !errors.Is(err, scripts.ErrStale) {
			w.fail("a completion that comes after a later call returns %v", err)
		}
		return true
	}
	w.must(err)
	w.now = reply.At
	again := last != nil && last.seq == lane.seq
	forgot := known > 0 && (last == nil || last.seq < known) || again && last.forgot
	alive = m.sessions[c.Session] && !forgot
	if reply.Alive != alive {
		w.fail("session %s is said to be alive: %v, and should be: %v", c.Session, reply.Alive, alive)
	}
	outcome := "completed"
	if len(reply.Refused) > 0 {
		outcome = "refused"
	} else if len(reply.Overruled) > 0 {
		outcome = "cancelled"
	}
	if again {
		w.note("completion %d of %s again", lane.seq, c.Session)
		if outcome != last.fates || reply.Fates != "" {
			w.fail("a completion that is made again is answered %s with %q, it was %s", outcome, reply.Fates, last.fates)
		}
	} else {
		want, fates := "completed", ""
		if f := m.jobs[c.Settle.ID]; f != nil && f.marked {
			want = "cancelled"
		}
		what := []string(nil)
		if !m.settle(c.Session, &c.Settle, reply.At.UnixMicro()) {
			want = "refused"
		} else if want == "completed" {
			what, fates, _ = w.admit(c.FollowUps, reply.Fates, reply.At, math.MaxInt)
		}
		w.note("completion %d: %s completes %s, with %v: %s", lane.seq, c.Session, c.Settle.ID, what, want)
		if outcome != want || reply.Fates != fates {
			w.fail("a completion is answered %s with %q, and should be %s with %q", outcome, reply.Fates, want, fates)
		}
		m.lanes[lane.key] = &answer{seq: lane.seq, fates: want, forgot: forgot}
	}
	if heard && !alive {
		w.leave(x)
	}
	return alive
}
