package store

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// hookedQueue returns the rig's queue on a connection of its own. do runs around each command of it.
func (r *rig) hookedQueue(srv *redistest.Server, do hooked) *Queue {
	rdb := srv.ClientWith(func(*redis.UniversalOptions) {})
	rdb.(*redis.Client).AddHook(do)
	return New(rdb, "", r.Name())
}

// examined runs the doctor of a queue, and returns its findings.
func (r *rig) examined(q *Queue, repair bool) (all []doctor.Finding) {
	r.t.Helper()
	_, err := doctor.Run(bg, q.Site(), doctor.Checkup{Repair: repair, Pause: -1, Found: func(f doctor.Finding) { all = append(all, f) }})
	r.must(err)
	return all
}

// A session that ends while another begins is nothing wrong.
func TestDoctorOfASessionThatEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newQueue(t, srv.Client())
	r.open()
	r.put("a")
	r.claim(1)
	opens := func(session string) {
		_, _, err := r.Sessions().Open(bg, session, time.Minute)
		r.must(err)
	}
	opens("s2")
	restarted := false
	q := r.hookedQueue(srv, func(cmd redis.Cmder, call func() error) error {
		if !restarted && slices.Contains(cmd.Args(), any("session")) { // the page of s1's jobs
			restarted = true
			_, err := r.Sessions().Close(bg, "s2", false)
			r.must(err)
			opens("s3")
		}
		return call()
	})
	if found := r.examined(q, false); len(found) > 0 || !restarted {
		t.Errorf("%+v, restarted %v", found, restarted)
	}
}

// A session that loses its registration stays known: its jobs run, and are not made ready beside that.
func TestDoctorOfALostRegistration(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := unchecked(t, srv.Client())
	r.open()
	r.put("a")
	lost := false
	q := r.hookedQueue(srv, func(cmd redis.Cmder, call func() error) error {
		err := call()
		if !lost && slices.Contains(cmd.Args(), any("idle")) {
			lost = true
			r.claim(1)
			r.must(r.rdb.Del(bg, r.keys.Sessions).Err())
			_, _, err := r.Sessions().Open(bg, "s3", time.Minute)
			r.must(err)
		}
		return err
	})
	found := r.examined(q, true)
	if len(found) != 1 || found[0].Fault != facts.NoSession || !found[0].Mended {
		t.Errorf("%+v", found)
	}
	same(t, "ready jobs", r.rdb.LLen(bg, r.keys.ReadyNormal).Val(), 0)
}

// A session that a call doesn't know has an empty page.
func TestPageOfAnUnknownSession(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.Start(t).Client())
	e, again, err := r.Site().Examine(bg, []string{"s1"}, facts.Origin{Name: "session", Of: "gone", Cursor: "0", Count: 10})
	if err != nil || again || e.Next != "0" || len(e.Jobs) > 0 {
		t.Errorf("%+v, %v, %v", e, again, err)
	}
}

// A repair that is sent twice, as its first reply was lost, counts as done.
func TestDoctorOfALostReply(t *testing.T) {
	t.Parallel()
	names := []string{"an empty member", "a session that isn't registered", "a stale count", "an address of no session", "beyond the fence"}
	for _, p := range plantedFaults() {
		if !slices.Contains(names, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			r := unchecked(t, srv.Client())
			r.sound()
			r.must(p.spoil(r))
			twice := 0
			q := r.hookedQueue(srv, func(cmd redis.Cmder, call func() error) error {
				err := call()
				if err == nil && slices.Contains(cmd.Args(), any(r.keys.Settings)) && cmd.Name() != "hgetall" { // a repair
					twice++
					err = call()
				}
				return err
			})
			found := r.examined(q, true)
			equal(t, "findings", faultsOf(found), p.want)
			for _, f := range found {
				if !f.Mended {
					t.Errorf("%+v", f)
				}
			}
			if twice == 0 {
				t.Error("no repair was sent twice")
			}
		})
	}
}

// What goes wrong with a job while it is repaired is reported.
func TestDoctorOfWhatGoesWrongMeanwhile(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := unchecked(t, srv.Client())
	r.put("a")
	r.must(r.rdb.LRem(bg, r.keys.ReadyNormal, 0, "a").Err())
	moved := false
	q := r.hookedQueue(srv, func(cmd redis.Cmder, call func() error) error {
		err := call()
		if err == nil && !moved && slices.Contains(cmd.Args(), any("list")) { // the repair
			moved = true
			r.must(r.rdb.RPopLPush(bg, r.keys.ReadyNormal, r.keys.ReadyLow).Err())
		}
		return err
	})
	found := r.examined(q, true)
	equal(t, "findings", faultsOf(found), []facts.Fault{facts.NoPlace, facts.WrongClass})
	if len(found) == 2 && (!found[0].Mended || found[1].Mended) {
		t.Errorf("%+v", found)
	}
}
