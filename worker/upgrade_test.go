package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// newerBuild builds these tests with the next higher protocol, as a later release will have. It returns the path of the binary.
func newerBuild(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("../internal/store/layout/layout.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := fmt.Appendf(nil, "const Protocol = %d\n", layout.Protocol), fmt.Appendf(nil, "const Protocol = %d\n", layout.Protocol+1)
	if bytes.Count(text, ours) != 1 {
		t.Fatalf("%s has no line %q", source, ours)
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replacement := file("layout.go", bytes.Replace(text, ours, theirs, 1))
	overlay := file("overlay.json", payload(map[string]any{"Replace": map[string]string{source: replacement}}))
	binary := filepath.Join(dir, "newer.test")
	// Without the tree's path, a copy of the tree builds nothing that was built before.
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-trimpath", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// An upgrade is a queue that two releases use at the same time: this one in this process, and a newer one in other processes.
type upgrade struct {
	*rig
	newer string // its binary
	addr  string
}

func (u *upgrade) newerWorker(ttl time.Duration) *child {
	u.Helper()
	return startChild(u.T, childConfig{Addr: u.addr, Queue: u.name(), Slots: 4, TTL: ttl, Binary: u.newer})
}

// newerEnqueues makes the newer release enqueue orders with these IDs, which must succeed.
func (u *upgrade) newerEnqueues(do string, ids ...string) {
	u.Helper()
	c := startChild(u.T, childConfig{Addr: u.addr, Queue: u.name(), Enqueue: ids, Do: do, Binary: u.newer})
	for range ids {
		c.await("taken")
	}
}

// enqueues makes this release enqueue a job, and returns the error.
func (u *upgrade) enqueues(id string) error {
	u.Helper()
	s, err := scheduler.New(u.rdb, scheduler.Config{})
	if err != nil {
		u.Fatal(err)
	}
	_, err = s.Enqueue(u.Context(), order{Do: "sleep"}, scheduler.Queue(u.name()), scheduler.ID(id))
	return err
}

// raise gives the queue the newer release's layout, as the first use of a new feature would.
func (u *upgrade) raise() {
	u.Helper()
	if err := u.rdb.HSet(u.Context(), u.key("settings"), "layout", layout.Protocol+1).Err(); err != nil {
		u.Fatal(err)
	}
}

// worker runs a worker of this release. Its handlers report the jobs that they get, and wait at the gate.
func (u *upgrade) worker() (run *run, got <-chan string, open func()) {
	u.Helper()
	w := u.workerWith(u.short(4))
	ran := make(chan string, 100)
	gate, open := u.gate()
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ order) error {
		ran <- job.ID
		<-gate
		return nil
	})
	run = u.start(w)
	u.ready()
	return run, ran, open
}

// tooOld waits until this release's worker logs that it is too old.
func (u *upgrade) tooOld() {
	u.Helper()
	redistest.Eventually(u.T, func() bool { return u.log.count("this worker is too old for the queue") == 1 }, "the worker says that it is too old")
}

// renewedTwice waits until one session has expired and the only other one was renewed twice after that.
func (u *upgrade) renewedTwice() {
	u.Helper()
	var last float64
	renewals := -1
	redistest.Eventually(u.T, func() bool {
		now := u.rdb.Time(u.Context()).Val().UnixMicro()
		alive := u.rdb.ZRangeByScore(u.Context(), u.key("sessions"), &redis.ZRangeBy{Min: fmt.Sprintf("(%d", now), Max: "+inf"}).Val()
		if len(alive) != 1 {
			return false
		}
		if score := u.rdb.ZScore(u.Context(), u.key("sessions"), alive[0]).Val(); score != last {
			last = score
			renewals++
		}
		return renewals == 2
	}, "the other process looks twice")
}

// Two builds share queues, and one of them knows one more layout. It checks what docs/wire.md says about programs that are too old.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	newer := newerBuild(t)
	for name, test := range map[string]func(u *upgrade){
		"a newer worker runs what an older producer enqueues": func(u *upgrade) {
			c := u.newerWorker(shortTTL)
			for _, id := range []string{"a", "b"} {
				if err := u.enqueues(id); err != nil {
					u.Fatal(err)
				}
				if l := c.await("end"); l.job != id {
					u.Errorf("%+v, want %s", l, id)
				}
			}
			u.completed(2)
		},
		"an older worker runs what a newer producer enqueues": func(u *upgrade) {
			_, got, open := u.worker()
			open()
			u.newerEnqueues("sleep", "a", "b")
			get(u.T, got, "a job runs")
			get(u.T, got, "another does")
			u.completed(2)
		},
		"an older worker settles what it has, and leaves the rest to a newer one": func(u *upgrade) {
			run, got, open := u.worker()
			if err := u.enqueues("has"); err != nil {
				u.Fatal(err)
			}
			get(u.T, got, "the job runs")
			u.raise()
			if err := u.enqueues("refused"); !errors.Is(err, signalbox.ErrOutdated) {
				u.Errorf("this release enqueues: %v", err)
			}
			u.newerEnqueues("sleep", "a", "b", "c")
			u.tooOld()
			open()
			u.until("the job is settled", func(c looks.Counts) bool { return c.Running == 0 && c.Total.Completed == 1 && c.Ready == 3 })
			c := u.newerWorker(30 * time.Second) // no renewal helps it to find the job
			for range 3 {
				c.await("end")
			}
			u.newerEnqueues("sleep", "d") // the older worker is idle, and must not keep the wake-up
			begin := time.Now()
			c.await("end")
			if d := time.Since(begin); d > prompt {
				u.Errorf("a job waited for %v", d)
			}
			u.completed(5)
			if len(got) > 0 {
				u.Errorf("the older worker ran %q", <-got)
			}
			run.stop()
		},
		"a newer worker takes back what an older one had": func(u *upgrade) {
			older := u.child(1, 3*time.Second)
			id := u.orders(1, order{Do: "wait"})[0]
			older.await("start")
			u.raise()
			c := u.newerWorker(shortTTL)
			older.kill()
			if l := c.await("start"); l.job != id || l.crashes != 1 {
				u.Errorf("%+v, want %s and a crash", l, id)
			}
		},
		"an older worker takes nothing back from a newer one": func(u *upgrade) {
			u.raise()
			_, got, _ := u.worker()
			u.tooOld()
			c := u.newerWorker(3 * time.Second)
			u.newerEnqueues("wait", "a")
			c.await("start")
			c.kill()
			u.renewedTwice()
			if l := u.newerWorker(shortTTL).await("start"); l.job != "a" || l.crashes != 1 {
				u.Errorf("%+v, want a and a crash", l)
			}
			if len(got) > 0 {
				u.Errorf("the older worker ran %q", <-got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			test(&upgrade{rig: newRigOn(t, srv.Client()), newer: newer, addr: srv.Addr()})
		})
	}
}
