package outboxsql

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

var (
	killRows  = flag.Int("kill.rows", 2000, "rows of TestRelaysAreKilled, per database")
	drainRows = flag.Int("drain.rows", 2000, "rows of TestDrain, per database")
)

const (
	writers = 8
	groups  = 20
)

// write has writers enqueue jobs, a third of whose transactions are rolled back. It returns the IDs that were committed, and those of each group in the order of
// their commits.
func write(t *testing.T, b *database, rows int) (committed map[string]bool, order map[string][]string) {
	t.Helper()
	box, loose := b.box(outbox.Config{Ordered: true}), b.box(outbox.Config{})
	committed, order = make(map[string]bool), make(map[string][]string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	locks := make([]sync.Mutex, groups) // so that the test knows the order of commits: with Ordered the database has it anyway
	for range writers {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > rows || t.Failed() {
					return
				}
				group, own, opts := "", loose, []scheduler.EnqueueOption(nil)
				if n%2 == 0 {
					g := rand.IntN(groups)
					group, own = fmt.Sprint("g", g), box
					opts = append(opts, scheduler.Serial(group))
					locks[g].Lock()
				}
				var id string
				err := retry(b, func(tx *sql.Tx) (err error) {
					if id, err = own.Enqueue(bg, tx, note{N: n, Group: group}, opts...); err == nil && rand.IntN(3) == 0 {
						err = errNo
					}
					return err
				})
				mu.Lock()
				if err == nil {
					committed[id] = true
					if group != "" {
						order[group] = append(order[group], id)
					}
				} else if !errors.Is(err, errNo) {
					t.Error(err)
				}
				mu.Unlock()
				if group != "" {
					var g int
					_, _ = fmt.Sscanf(group, "g%d", &g)
					locks[g].Unlock()
				}
			}
		})
	}
	wg.Wait()
	return committed, order
}

// retry makes a transaction again that the database refused because of others, as a program would.
func retry(b *database, fn func(tx *sql.Tx) error) (err error) {
	for range 20 {
		if err = b.try(fn); err == nil || errors.Is(err, errNo) {
			return err
		}
	}
	return err
}

// runJobs claims and completes jobs until stop, and counts how often each ran and in which order those of a group did.
func runJobs(t *testing.T, rdb redis.UniversalClient) (stop func() (runs map[string]int, order map[string][]string)) {
	t.Helper()
	q := store.New(rdb, "", "default")
	lane := q.NewLane()
	runs, order := make(map[string]int), make(map[string][]string)
	var ending atomic.Bool
	done := make(chan struct{})
	session := "ledger"
	if _, _, err := q.Sessions().Open(bg, session, time.Hour); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		var settle []store.Settlement
		for {
			last := ending.Load()
			lane.Next()
			reply, err := q.Sessions().Claim(bg, lane, &store.ClaimRequest{Session: session, Want: 200, Settle: settle})
			if err != nil {
				t.Errorf("claim: %v", err)
				return
			}
			settle = nil
			for _, d := range reply.Deliveries {
				id := d.Job.ID
				runs[id]++
				if d.Job.Group != "" {
					order[d.Job.Group] = append(order[d.Job.Group], id)
				}
				settle = append(settle, store.Settlement{ID: id, Token: d.Job.Token, Outcome: store.Completed})
			}
			switch {
			case len(settle) > 0:
			case last:
				return
			default:
				<-ticker.C
			}
		}
	}()
	stop = sync.OnceValues(func() (map[string]int, map[string][]string) {
		ending.Store(true)
		<-done
		return runs, order
	})
	t.Cleanup(func() { stop() })
	return stop
}

// settled waits until every row has been sent.
func settled(b *database, d time.Duration) bool {
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		if b.number("SELECT COUNT(*) FROM signalbox_outbox WHERE batch = 0")+b.number("SELECT COUNT(*) FROM signalbox_outbox_batch WHERE sent = 0") == 0 {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Exactly the jobs of committed transactions are enqueued once, in order in each group, while relays are killed all the time and one is stopped between the
// script and its second transaction until its jobs have run.
func TestRelaysAreKilled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		rdb := srv.Client()
		stopRuns := runJobs(t, rdb)

		stopped := b.process(srv.Addr(), relayProcess{StopAt: 2, TakeOver: 200 * time.Millisecond})
		t.Cleanup(func() { _ = stopped.Process.Kill() })
		kills, ended := 0, make(chan struct{})
		var killer sync.WaitGroup
		killer.Go(func() {
			every := max(time.Duration(*killRows)*time.Second/20000, 300*time.Millisecond)
			if every > time.Second {
				every = time.Second
			}
			relays := []*exec.Cmd{}
			for rdb.Exists(bg, stoppedKey).Val() == 0 { // until then it is the only relay, so that it has batches to send
				select {
				case <-ended:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
			for {
				for len(relays) < 2 {
					relays = append(relays, b.process(srv.Addr(), relayProcess{TakeOver: 200 * time.Millisecond}))
				}
				select {
				case <-ended:
					for _, r := range relays {
						_ = r.Process.Kill()
					}
					return
				case <-time.After(every):
				}
				_ = relays[0].Process.Kill()
				relays = relays[1:]
				kills++
			}
		})
		end := sync.OnceFunc(func() {
			close(ended)
			killer.Wait()
		})
		t.Cleanup(end)
		committed, order := write(t, b, *killRows)
		if !settled(b, 2*time.Minute) {
			t.Error("not all rows are sent")
		}
		end()
		if rdb.Exists(bg, stoppedKey).Val() == 0 {
			t.Error("no relay was stopped between its script and its second transaction")
		}
		before := enqueued(t, rdb, "default")
		_ = stopped.Process.Signal(syscall.SIGCONT) // its jobs have run: now it goes on where it was
		b.relay(rdb, outbox.RelayConfig{})
		redistest.Eventually(t, func() bool { // it works again: it takes new rows, alone or beside the other
			return settled(b, time.Second)
		}, "not settled")
		runs, ran := stopRuns()

		if n := enqueued(t, rdb, "default"); n != int64(len(committed)) || before != n {
			t.Errorf("%d jobs are enqueued, %d before the stopped relay went on; %d transactions were committed", n, before, len(committed))
		}
		lost, doubled, strange := 0, 0, 0
		for id := range committed {
			switch runs[id] {
			case 0:
				lost++
			case 1:
			default:
				doubled++
			}
		}
		for id := range runs {
			if !committed[id] {
				strange++
			}
		}
		if lost+doubled+strange > 0 {
			t.Errorf("lost %d, doubled %d, rolled back and run %d", lost, doubled, strange)
		}
		disorder := 0
		for group, want := range order {
			if got := ran[group]; fmt.Sprint(got) != fmt.Sprint(want) {
				disorder++
			}
		}
		if disorder > 0 {
			t.Errorf("%d of %d groups ran in another order", disorder, len(order))
		}
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead"); n > 0 {
			t.Errorf("%d dead rows", n)
		}
		if err := check.Queue(bg, store.New(rdb, "", "default").Site()); err != nil {
			t.Error(err)
		}
		t.Logf("rows=%d committed=%d enqueued=%d kills=%d lost=%d doubled=%d disorder=%d", *killRows, len(committed), enqueued(t, rdb, "default"), kills, lost, doubled, disorder)
	})
}
