package locktest

import "github.com/signalbox-go/signalbox/lock"

// A process that holds the lock and is killed keeps it until its TTL is over. Then those that wait get it.
func killedHolder(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	p := s.start(s.extended, key)
	s.hears(p, "asking")
	dead := s.hears(p, "granted")
	s.refused(b, key, "while another process holds the lock")
	waiting := acquiring(s.Context(), b, key)
	pause(moment / 5) // by now it waits; the test also works if it doesn't
	select {
	case r := <-waiting:
		s.Fatalf("Acquire = %v, %v while another process holds the lock", told(r.lock), r.err)
	default:
	}
	p.kill()
	heir, _ := s.granted(waiting, s.extended+s.slack, "a lock whose holder was killed")
	s.larger(heir, dead.Token)
	s.holds(heir, a, "after its last holder was killed")
}

// A process that holds the lock and is stopped loses it when its TTL is over. When it goes on, it knows that at once,
// and can change nothing.
func stoppedHolder(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	p := s.start(s.short, key)
	s.hears(p, "asking")
	late := s.hears(p, "granted")
	s.signal("stop", p.stop)
	heir, at := s.granted(acquiring(s.Context(), b, key), s.short+s.slack, "a lock whose holder is stopped")
	if at.Before(late.Until) {
		s.Errorf("the lock was granted %v before the validity of its stopped holder ended", late.Until.Sub(at))
	}
	s.larger(heir, late.Token)
	s.signal("look", p.look)
	s.signal("continue", p.cont)
	found := s.hears(p, "looked")
	if found.Ended == "" || found.Cause != verdict(lock.ErrLost) {
		s.Errorf("the context of a holder that was stopped and goes on: Err %q, cause %q; want the cause ErrLost", found.Ended, found.Cause)
	}
	if found.Extend != verdict(lock.ErrLost) {
		s.Errorf("Extend by a holder that was stopped = %s; want ErrLost", found.Extend)
	}
	if found.Release != verdict(lock.ErrLost) {
		s.Errorf("Release by a holder that was stopped = %s; want ErrLost", found.Release)
	}
	s.holds(heir, a, "after its last holder went on")
}

// Processes that wait and are killed or stopped don't keep those behind them out for longer than a TTL.
func lostWaiters(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	l := s.grant(a, key)
	killed, stopped := s.start(s.short, key), s.start(s.short, key)
	s.hears(killed, "asking")
	s.hears(stopped, "asking")
	pause(moment / 2) // by now they wait; the test also works if they don't
	killed.kill()
	s.signal("stop", stopped.stop)
	waiting := acquiring(s.Context(), b, key)
	pause(moment / 5)
	s.release(l)
	heir, _ := s.granted(waiting, 2*s.short+s.slack, "a lock for which dead processes waited")
	s.holds(heir, a, "after dead processes waited for the lock")
}
