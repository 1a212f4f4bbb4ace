package redistest_test

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The lag grows only while replies are late. While they come in time, it grows more slowly than the
// time.
func TestLag(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb := p.Client()
	if err := rdb.Ping(bg).Err(); err != nil { // now it is connected
		t.Fatal(err)
	}
	begin, late := time.Now(), redistest.Lag(t, rdb)
	redistest.Eventually(t, func() bool { return time.Since(begin) > late()+100*time.Millisecond }, "some time passes without a lag")
	stopped, before := time.Now(), late() // in this order: so took covers all of the growth
	p.Pause()
	redistest.Eventually(t, func() bool { return late() > before+300*time.Millisecond }, "it grows while no reply comes")
	p.Resume()
	if grown, took := late()-before, time.Since(stopped); grown > took {
		t.Errorf("it has grown by %v in %v", grown, took)
	}
}
