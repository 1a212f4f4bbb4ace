package signalbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The Go code of docs/recipes.md that is in no other example.

// thumbnails lets a client enqueue a thumbnail, and ask for it later.
func thumbnails(s *scheduler.Scheduler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /thumbnails/{image}", func(rw http.ResponseWriter, r *http.Request) {
		res, err := s.Enqueue(r.Context(), Thumbnail{Image: r.PathValue("image"), Width: 200}, scheduler.Retain(time.Hour))
		if err != nil {
			http.Error(rw, "try again later", http.StatusServiceUnavailable)
			return
		}
		rw.WriteHeader(http.StatusAccepted)
		fmt.Fprint(rw, res.Ref())
	})
	mux.HandleFunc("GET /thumbnails/{image}", func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second) // for both calls
		defer cancel()
		res, err := s.Enqueue(ctx, Thumbnail{Image: r.PathValue("image"), Width: 200}, scheduler.Retain(time.Minute))
		if err != nil {
			http.Error(rw, "try again later", http.StatusServiceUnavailable)
			return
		}
		thumbnail, err := scheduler.Wait[Thumbnailed](ctx, s, res.Ref())
		ended, died := errors.AsType[*scheduler.EndedError](err)
		switch {
		case err == nil:
			json.NewEncoder(rw).Encode(thumbnail)
		case died:
			http.Error(rw, "no thumbnail: its job is "+string(ended.Status.State), http.StatusInternalServerError)
		case errors.Is(err, context.DeadlineExceeded): // the job goes on
			rw.WriteHeader(http.StatusAccepted)
			fmt.Fprint(rw, res.Ref())
		default:
			http.Error(rw, "try again later", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /thumbnail", func(rw http.ResponseWriter, r *http.Request) {
		ref, err := scheduler.ParseRef(r.URL.Query().Get("ref"))
		if err != nil {
			http.Error(rw, "no such thumbnail", http.StatusNotFound)
			return
		}
		st, err := s.Status(r.Context(), ref)
		switch {
		case errors.Is(err, scheduler.ErrNotFound):
			http.Error(rw, "no such thumbnail", http.StatusNotFound)
		case err != nil:
			http.Error(rw, "try again later", http.StatusServiceUnavailable)
		case st.State == signalbox.StateCompleted:
			thumbnail, err := scheduler.ReadResult[Thumbnailed](st)
			if err != nil {
				http.Error(rw, "it has no result", http.StatusInternalServerError)
				return
			}
			json.NewEncoder(rw).Encode(thumbnail)
		case st.Progress != nil:
			fmt.Fprintf(rw, "%s: %d of %d", st.State, st.Progress.Done, st.Progress.Total)
		default:
			fmt.Fprint(rw, st.State)
		}
	})
	return mux
}

// A client asks for the result of a job until it is there.
func Example_request() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		service := thumbnails(s)
		ask := func(method, target string) string {
			rec := httptest.NewRecorder()
			service.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
			return strings.TrimSpace(rec.Body.String())
		}
		ref := ask(http.MethodPost, "/thumbnails/cat.png")
		get := "/thumbnail?" + url.Values{"ref": {ref}}.Encode()
		fmt.Println(ask(http.MethodGet, get))

		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"images": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Thumbnail) error {
			signalbox.OnSettled(ctx, func(signalbox.Settled) { stop() })
			return resize(ctx, job, in)
		})
		if err := w.Run(ctx); err != nil {
			return err
		}
		fmt.Println(ask(http.MethodGet, get))
		return nil
	})
	// Output:
	// ready
	// {"name":"200-cat.png","bytes":8042}
}

// One tenant is paused, and another one goes on.
func Example_pauseTenant() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		for n, tenant := range []string{"acme", "zenith"} {
			if _, err := s.Enqueue(ctx, Receipt{Order: int64(n)}, scheduler.Queue("mail"), scheduler.Group(tenant)); err != nil {
				return err
			}
		}
		if _, err := ins.PauseGroup(ctx, "mail", "acme"); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ Receipt) error {
			fmt.Println("a receipt of", job.Group)
			if job.Group == "acme" {
				stop()
				return nil
			}
			signalbox.OnSettled(ctx, func(signalbox.Settled) {
				if _, err := ins.ResumeGroup(context.WithoutCancel(ctx), "mail", "acme"); err != nil {
					fmt.Println(err)
					stop()
				}
			})
			return nil
		})
		return w.Run(ctx)
	})
	// Output:
	// a receipt of zenith
	// a receipt of acme
}

// The workers on the hosts of the older version take no more jobs. They end those that they have.
func Example_blueGreen() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		return quietAll(ctx, ins, "blue-", true)
	})
	// Output:
}

// quietAll has all workers of the hosts whose names begin with a prefix take no more jobs, or take jobs again.
func quietAll(ctx context.Context, ins *inspect.Inspector, hosts string, quiet bool) error {
	workers, err := ins.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if !strings.HasPrefix(w.ID, hosts) { // an ID begins with the host's name
			continue
		}
		if quiet {
			_, err = ins.Quiet(ctx, w.ID)
		} else {
			_, err = ins.Unquiet(ctx, w.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// An OrderDone follows when all pictures of an order are there.
type OrderDone struct{ Order string }

// Kind names the work, and its queue is that of the pictures.
func (OrderDone) Kind() string { return "order.done" }

// pictures makes a job for each image of an order.
func pictures(images []string) iter.Seq[scheduler.Item] {
	return func(yield func(scheduler.Item) bool) {
		for _, image := range images {
			if !yield(scheduler.Item{Args: Thumbnail{Image: image, Width: 200}}) {
				return
			}
		}
	}
}

// order enqueues the pictures of an order, and what follows them.
func order(ctx context.Context, s *scheduler.Scheduler, id string, images []string) error {
	b, err := s.Batch(ctx, "images", scheduler.FlowID(id), scheduler.OnSuccess(OrderDone{Order: id}))
	if err != nil {
		return err
	}
	for i, res := range b.AddSeq(ctx, pictures(images), scheduler.Group(id)) {
		if res.Err != nil {
			return fmt.Errorf("image %d: %w", i, res.Err)
		}
	}
	return b.Seal(ctx)
}

// A service shows how far the batch of an order is.
func Example_order() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if err := order(ctx, s, "order-7", []string{"cat.png", "dog.png", "owl.png"}); err != nil {
			return err
		}
		show := func(order string) error {
			st, err := s.BatchStatus(ctx, scheduler.Ref{Namespace: "default", Queue: "images", ID: order})
			if err != nil { // scheduler.ErrNoBatch: it was over a day ago, or never was
				return err
			}
			fmt.Printf("%d of %d pictures have ended, %d without success\n", st.Total-st.Open, st.Total, st.Dead+st.Gone)
			return nil
		}
		if err := show("order-7"); err != nil {
			return err
		}
		run, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"images": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, resize)
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in OrderDone) error {
			defer stop()
			return show(in.Order)
		})
		return w.Run(run)
	})
	// Output:
	// 0 of 3 pictures have ended, 0 without success
	// 3 of 3 pictures have ended, 0 without success
}
