package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
)

// What is stuck in a session is kept for as long as the session lasts, and not without bound.
func TestStuck(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	q := New(rdb, "", redistest.Name(t))
	if got, err := q.Sessions().Stuck(bg, "s"); got != nil || err != nil {
		t.Errorf("nothing was written: %v, %v", got, err)
	}
	begin := time.UnixMicro(1_800_000_000_000_000)
	var jobs []Stuck
	for i := range 3 * maxStuck {
		jobs = append(jobs, Stuck{ID: fmt.Sprint(i), Token: int64(i), Since: begin.Add(-time.Duration(i) * time.Second), Stack: strings.Repeat("x", MaxStuckStack), Freed: i%2 == 0})
	}
	if err := q.Sessions().WriteStuck(bg, "s", time.Minute, jobs); err != nil {
		t.Fatal(err)
	}
	got, err := q.Sessions().Stuck(bg, "s")
	if err != nil || len(got) != maxStuck {
		t.Fatalf("%d, %v", len(got), err)
	}
	for i, job := range got {
		want := jobs[len(jobs)-1-i] // the oldest first
		if i >= maxStacks {
			want.Stack = ""
		}
		if job != want {
			t.Errorf("%d: %+v, want %+v", i, job, want)
		}
	}
	if ttl := rdb.PTTL(bg, q.keys.Stuck("s")).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("it expires in %v", ttl)
	}
	if got, err := q.Sessions().Stuck(bg, "another"); got != nil || err != nil {
		t.Errorf("another session: %v, %v", got, err)
	}
	if err := check.Queue(bg, q.Site()); err != nil {
		t.Error(err)
	}
	if err := q.Sessions().WriteStuck(bg, "s", time.Minute, nil); err != nil || rdb.Exists(bg, q.keys.Stuck("s")).Val() != 0 {
		t.Errorf("none is stuck any more: %v", err)
	}
	rdb.Set(bg, q.keys.Stuck("s"), "[", time.Minute)
	if got, err := q.Sessions().Stuck(bg, "s"); got != nil || err != nil {
		t.Errorf("another program has written it: %v, %v", got, err)
	}
	rdb.Del(bg, q.keys.Stuck("s"))
}
