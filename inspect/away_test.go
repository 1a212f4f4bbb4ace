package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A maimed is a Cluster of which one master is away, with two queues on masters that answer, and one on the other.
type maimed struct {
	ins        *inspect.Inspector
	there      [2]string
	away, addr string
}

// maim makes queues on a Cluster, each with a job, a worker and a cron entry, and kills a master: that of the list of queues, or the next one.
func maim(t *testing.T, list bool) maimed {
	t.Helper()
	cluster := redistest.Cluster(t)
	rdb, ctx, namespace := cluster.Client(), t.Context(), redistest.Name(t)
	for _, m := range cluster.Masters() {
		if err := m.Client().ConfigSet(ctx, "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	master := func(queue string) int {
		slot, err := rdb.ClusterKeySlot(ctx, "{"+namespace+":"+queue+"}").Result()
		if err != nil {
			t.Fatal(err)
		}
		return int(min(slot*3/16384, 2))
	}
	of := make([][]string, 3)
	for n := 0; slices.ContainsFunc(of, func(some []string) bool { return len(some) < 1 }); n++ {
		name := fmt.Sprint("q", n)
		of[master(name)] = append(of[master(name)], name)
	}
	dead := master("")
	if !list {
		dead = (dead + 1) % 3
	}
	m := maimed{ins: inspector(t, rdb, namespace), there: [2]string{of[(dead+1)%3][0], of[(dead+2)%3][0]}, away: of[dead][0], addr: cluster.Masters()[dead].Addr()}
	slices.Sort(m.there[:])
	for _, name := range []string{m.there[0], m.there[1], m.away} {
		q := store.New(rdb, namespace, name)
		lane := q.NewLane()
		lane.Next()
		item, err := store.NewItem(&signalbox.Job{ID: "a", Kind: "k"}, store.When{})
		if err == nil {
			_, err = q.Enqueue(ctx, lane, []store.Item{item})
		}
		if err == nil {
			_, _, err = q.Sessions().Open(ctx, store.NewSession("host:1:"+name), time.Hour)
		}
		if err == nil {
			err = q.Presence().Register(ctx)
		}
		if err == nil {
			err = q.Outboxes().Set(ctx, "5f0c6f0c2b8f4d1e9a7b3c5d7e9f1a2b", `{"backlog":7}`, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		announce(t, q, "digest", "@daily", "UTC")
	}
	cluster.Masters()[dead].Kill()
	return m
}

// While a master of a Cluster is away, lists have what the others know, and the error says that they aren't whole.
func TestMasterAway(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]bool{"that of the list of queues": true, "another": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := maim(t, list)
			check := func(what string, got []string, err error, want ...string) {
				t.Helper()
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
				if err == nil || !strings.Contains(err.Error(), m.addr) {
					t.Errorf("%s: %v; want an error that names %s", what, err, m.addr)
				}
			}
			ctx := t.Context()
			queues, err := m.ins.Queues(ctx)
			var names []string
			for _, q := range queues {
				if names = append(names, q.Name); q.Ready != 1 || len(q.Workers) != 1 {
					t.Errorf("%+v", q)
				}
			}
			check("Queues", names, err, m.there[:]...)
			entries, err := m.ins.Entries(ctx)
			names = nil
			for i := range entries {
				names = append(names, entries[i].Queue)
			}
			check("Entries", names, err, m.there[:]...)
			workers, err := m.ins.Workers(ctx)
			names = nil
			for _, w := range workers {
				names = append(names, w.Sessions[0].Queue)
			}
			check("Workers", names, err, m.there[:]...)
			boxes, err := m.ins.Outboxes(ctx)
			names = nil
			for _, b := range boxes {
				names = append(names, b.Queue)
			}
			check("Outboxes", names, err, m.there[:]...)

			changed, err := m.ins.Quiet(ctx, "host:1:"+m.there[1])
			check("Quiet", []string{fmt.Sprint(changed)}, err, "true")
			if q, err := m.ins.Queue(ctx, m.there[1]); err != nil || len(q.Quiet) != 1 {
				t.Errorf("after Quiet: %+v, %v", q, err)
			}
			if r, err := m.ins.Doctor(ctx, m.there[0], inspect.Checkup{}); err != nil || r.Found != 0 || r.Jobs != 1 {
				t.Errorf("Doctor: %+v, %v", r, err)
			}
			removed, kept, err := m.ins.RemoveQueues(ctx, "*", inspect.Removal{})
			if len(removed) > 0 || err == nil {
				t.Errorf("RemoveQueues: %q, %v, %v", removed, kept, err)
			}
		})
	}
}
