package worker_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/worker"
)

// A keeper is a hook that keeps the replies which name a job.
type keeper struct {
	id   string
	free <-chan struct{}
}

func (k *keeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && strings.Contains(fmt.Sprint(c.Val()), k.id) {
			<-k.free
		}
		return err
	}
}

func (*keeper) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (*keeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// shutdowns returns how many shutdown events a span has until now.
func shutdowns(events []sdktrace.Event) (n int) {
	for _, e := range events {
		if e.Name == telemetry.EventShutdown {
			n++
		}
	}
	return n
}

// A call is under way when the worker is asked to stop. The jobs that it brings still run, and their spans have the event of the
// shutdown.
func TestTraceOfADeliveryIntoADrain(t *testing.T) {
	t.Parallel()
	for name, quick := range map[string]bool{"that runs on": false, "that is over at once": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			free, bring := r.gate()
			release, end := r.gate()
			rdb := redistest.Start(t).Client()
			rdb.AddHook(&keeper{id: "late", free: free})
			cfg := r.config(2)
			cfg.SessionTTL = r.patient(2).SessionTTL
			w := r.workerOn(rdb, cfg)
			began := make(chan struct{}, 2)
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
				began <- struct{}{}
				if job.ID == "early" || !quick {
					<-release
				}
				return nil
			})
			r.addOne(signalbox.Job{ID: "early"})
			run := r.start(w)
			get(t, began, "the first job runs")
			r.addOne(signalbox.Job{ID: "late"})
			r.until("the second is claimed", func(c looks.Counts) bool { return c.Running == 2 })
			run.cancel()
			redistest.Eventually(t, func() bool { return r.log.count("stopping", "jobs=1") == 1 }, "the worker stops")
			bring()
			get(t, began, "the second job runs")
			end()
			run.stop()
			for _, process := range r.n("process", 2) {
				if n := shutdowns(process.Events); n != 1 {
					t.Errorf("%s has %d such events, want 1: %v", value(process, "messaging.message.id").AsString(), n, process.Events)
				}
			}
		})
	}
}

// A delivery whose span begins after the worker was asked to stop has the event as well.
func TestTraceThatBeginsInADrain(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	cfg := r.rig.patient(1)
	cfg.DrainTimeout = -1
	w := r.workerWith(cfg)
	entered := make(chan struct{})
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			close(entered)
			<-ctx.Done()
			return next.Handle(ctx, job)
		})
	}, middleware.Trace(middleware.WithTracerProvider(r.tp)))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.addOne(signalbox.Job{})
	run := r.start(w)
	get(t, entered, "the job is there")
	run.stop()
	if process := r.n("process", 1)[0]; shutdowns(process.Events) != 1 {
		t.Errorf("events %v", process.Events)
	}
}

// A worker is asked to stop during a renewal, and ends its handlers' contexts. That is not a lost lease.
func TestShutdownDuringARenewal(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cfg := r.config(1)
	cfg.SessionTTL, cfg.DrainTimeout = shortTTL, -1
	w := r.workerOn(proxy.Client(), cfg)
	began, told := make(chan struct{}), make(chan struct{})
	release, end := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		close(began)
		<-ctx.Done()
		close(told)
		<-release
		return nil
	})
	r.addOne(signalbox.Job{})
	run := r.start(w)
	get(t, began, "the job runs")
	asked, let := proxy.HoldRequests(r.isRenew())
	get(t, asked, "the lease is renewed")
	run.cancel()
	get(t, told, "the handler's context ends")
	let()
	renewals := proxy.Count(r.isRenew())
	redistest.Eventually(t, func() bool { return proxy.Count(r.isRenew()) > renewals }, "it is renewed once more")
	end()
	run.stop()
	if r.log.count("lease was lost") != 0 {
		t.Error("the log says that the lease was lost")
	}
	for _, e := range r.n("process", 1)[0].Events {
		if e.Name == telemetry.EventLeaseLost {
			t.Errorf("so does the span: %v", e)
		}
	}
}
