package store

import "testing"

// A queue is unserved if it has jobs and no worker has ever served it. It is unused until a job is put in.
func TestUnservedAndUnused(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	is := func(when string, unserved, unused bool) {
		t.Helper()
		got, err := r.Presence().Unserved(bg)
		r.must(err)
		same(t, "unserved "+when, got, unserved)
		got, err = r.Presence().Unused(bg)
		r.must(err)
		same(t, "unused "+when, got, unused)
	}
	is("when it is empty", false, true)
	r.put("a")
	is("with a job", true, false)
	r.open()
	is("with a worker", false, false)
	r.settled(settlement(r.one(), Completed))
	_, err := r.Sessions().Close(bg, r.session, false, r.lane)
	r.must(err)
	is("when both are gone", false, false)
	r.put("b")
	is("with another job", false, false)
}
