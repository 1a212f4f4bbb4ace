package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

type tenant struct{ Name string }

func (tenant) Kind() string { return "tenant" }

// TestNamespaces: queues of the same name in two namespaces are independent.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	queue := redistest.Name(t)
	ran := make(chan *signalbox.Job, 10)
	staging, prod := redistest.Name(t), redistest.Name(t)
	for _, namespace := range []string{staging, prod} {
		s, err := scheduler.New(rdb, scheduler.Config{Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"1", namespace} { // an ID that both have, and one that only this one has
			if res, err := s.Enqueue(t.Context(), tenant{namespace}, scheduler.Queue(queue), scheduler.ID(id)); err != nil || res.ID != id {
				t.Fatalf("%s: %+v, %v", namespace, res, err)
			}
		}
	}
	w, err := worker.New(rdb, worker.Config{Namespace: prod, Queues: worker.Queues{queue: {}}})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, args tenant) error {
		if l, _ := lock.FromContext(ctx); l.Key() != prod+":"+queue+"/"+job.ID {
			t.Errorf("the lease of job %s has the key %q", job.ID, l.Key())
		}
		if args.Name != prod || job.Namespace != prod {
			t.Errorf("a worker of prod ran %s of %s, in namespace %q", job.ID, args.Name, job.Namespace)
		}
		if !strings.HasPrefix(job.EffectKey(), "{"+prod+":"+queue+"}") {
			t.Errorf("the effect key is %q", job.EffectKey())
		}
		ran <- job
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	get(t, ran, "the first job of prod")
	get(t, ran, "the second job of prod")
	for _, namespace := range []string{staging, prod} {
		redistest.Eventually(t, func() bool {
			queues, err := store.Queues(t.Context(), rdb, namespace)
			return err == nil && slices.Equal(queues, []string{queue})
		}, "the registry of %s has its queue", namespace)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	d, err := store.New(rdb, staging, queue).Looks().Depths(t.Context())
	if err != nil || d.Ready != 2 {
		t.Errorf("staging has %+v, %v; want both of its jobs ready", d, err)
	}
	for _, namespace := range []string{staging, prod} {
		if err := check.Queue(t.Context(), store.New(rdb, namespace, queue).Site()); err != nil {
			t.Error(err)
		}
	}
}

// TestARegistryThatIsLost: after Redis has lost its memory, a worker that opens a new session lists its queue at once.
func TestARegistryThatIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	w := r.workerWith(r.short(1))
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "the worker works")
	flush(t, r, server)
	redistest.Eventually(t, func() bool {
		names, err := store.Queues(t.Context(), r.rdb, "")
		return err == nil && slices.Contains(names, r.name())
	}, "the registry has the worker's queue again")
}

// TestWorkersListTheirQueues: a queue is in the registry before anybody has put a job in. "default" is the namespace if none is
// given.
func TestWorkersListTheirQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, tenant) error { return nil })
	r.start(w)
	redistest.Eventually(t, func() bool {
		queues, err := store.Queues(t.Context(), r.rdb, "default")
		return err == nil && slices.Contains(queues, r.name())
	}, "the registry has the worker's queue")
}

func TestNamespaceIsValidated(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, namespace := range []string{"a:b", "a b", "{a}", strings.Repeat("a", 201)} {
		_, err := worker.New(rdb, worker.Config{Namespace: namespace})
		_, serr := scheduler.New(rdb, scheduler.Config{Namespace: namespace})
		_, rerr := worker.ReportDepths(t.Context(), rdb, worker.ReportConfig{Namespace: namespace}, "q")
		for _, err := range []error{err, serr, rerr} {
			if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "Namespace") || !strings.Contains(err.Error(), "namespace") {
				t.Errorf("%.20q: %v", namespace, err)
			}
		}
	}
}
