package signalbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/outbox"
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

// This is only compiled: it needs a database.
var _ = func(w *worker.Worker, guarded *fence.DB, box *outbox.Outbox) {
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Row) error {
		return guarded.InTx(ctx, func(tx *fence.Tx) error {
			return tx.Once(ctx, "row", func() error {
				// The work of this row. Then:
				var left int
				if err := tx.QueryRowContext(ctx, `UPDATE batches SET remaining = remaining - 1 WHERE id = $1 RETURNING remaining`, in.Batch).Scan(&left); err != nil {
					return err
				}
				if left > 0 {
					return nil
				}
				_, err := box.Enqueue(ctx, tx, BatchDone{Batch: in.Batch}) // the last row's job enqueues what follows
				return err
			})
		})
	})
}

// A Row is a part of a batch.
type Row struct{ Batch, Number int64 }

// Kind names the work.
func (Row) Kind() string { return "batch.row" }

// BatchDone follows when all rows of a batch are done.
type BatchDone struct{ Batch int64 }

// Kind names the work.
func (BatchDone) Kind() string { return "batch.done" }
