package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker is to end while Redis is read-only, as a master that a failover has replaced. If a master is back in time, its jobs have ended. Else Run says how
// many outcomes are missing, and log and error say why: what Redis answered, and not that it was silent.
func TestEndInAFailover(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]bool{"a master is back": true, "it stays read-only": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.New(t)
			r := newRigOn(t, srv.Client())
			replicaOf := func(host, port string) {
				t.Helper()
				if err := srv.Client().Do(context.Background(), "REPLICAOF", host, port).Err(); err != nil {
					t.Fatal(err)
				}
			}
			cfg := r.config(2)
			cfg.DrainTimeout = time.Minute
			if !back {
				cfg.DrainTimeout = time.Second
			}
			w := r.workerWith(cfg)
			wait, open := r.gate()
			began := make(chan struct{}, 2)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
				began <- struct{}{}
				<-wait
				return nil
			})
			ctx, end := context.WithCancel(context.Background())
			defer end()
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			r.add(signalbox.Job{}, signalbox.Job{})
			for range 2 {
				get(t, began, "the jobs run")
			}
			replicaOf("127.0.0.1", "1") // where nobody listens: it keeps what it has
			end()
			open()
			r.log.says(t, "Redis is away", "error=READONLY.*")
			if back {
				replicaOf("NO", "ONE")
			}
			err := get(t, ended, "Run returns")
			if back {
				if err != nil || r.log.count("outcomes were not delivered") > 0 {
					t.Errorf("Run returned %v", err)
				}
				r.completed(2)
				return
			}
			if err == nil || !strings.Contains(err.Error(), "Redis was not told how the deliveries of 2 jobs ended, and they run again: READONLY") {
				t.Errorf("Run returned %v", err)
			}
			r.log.says(t, "outcomes were not delivered", "error=READONLY.*")
			r.log.says(t, "a session was not closed", "error=READONLY.*")
			replicaOf("NO", "ONE")
		})
	}
}
