package signalbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// Handlers, how jobs end, and what stands around handlers.

var mail mailer

type mailer struct{}

func (mailer) send(_ context.Context, in Receipt) error {
	fmt.Println("receipt", in.Order)
	return nil
}

func sendReceipt(ctx context.Context, _ *signalbox.Job, in Receipt) error {
	err := mail.send(ctx, in)
	switch {
	case errors.Is(err, errMaintenance):
		return signalbox.Snooze(10 * time.Minute) // put it back; no attempt is used
	case errors.Is(err, errNoSuchPerson):
		return signalbox.Cancel(err) // nobody needs this mail any more
	}
	return err // nil completes the job; any other error is a failed attempt
}

// A Visit is a row of a table.
type Visit struct {
	User int    `json:"user"`
	Page string `json:"page"`
}

func (Visit) Kind() string { return "visit" }

var visits table

type table struct{}

func (table) insert(_ context.Context, rows []Visit) error {
	fmt.Println("rows:", len(rows))
	return nil
}

func writeVisits(ctx context.Context, jobs []*worker.Each[Visit]) error {
	var rows []Visit
	for _, e := range jobs {
		if e.Args.User == 0 {
			e.Return(signalbox.Cancel(errNoSuchPerson)) // the outcome of this job alone
			continue
		}
		rows = append(rows, e.Args)
	}
	return visits.insert(ctx, rows) // the outcome of all others
}

// Many jobs are written by one statement.
func Example_many() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		for _, user := range []int{1, 0, 2} {
			if _, err := s.Enqueue(ctx, Visit{User: user, Page: "/"}); err != nil {
				return err
			}
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		ended := make(chan bool, 3)
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				signalbox.OnSettled(ctx, func(signalbox.Settled) { ended <- true })
				return next.Handle(ctx, job)
			})
		})
		worker.HandleMany(w, writeVisits, worker.UpTo(3, time.Minute))
		go func() {
			for range 3 {
				<-ended
			}
			stop()
		}()
		return w.Run(ctx)
	})
	// Output: rows: 2
}

// An Import loads the rows of a file.
type Import struct {
	File string `json:"file"`
	Rows int    `json:"rows"`
}

func (Import) Kind() string { return "import" }

func load(context.Context, string, int) error { return nil }

func importRows(ctx context.Context, _ *signalbox.Job, in Import) error {
	for at := 0; at < in.Rows; at++ {
		if err := load(ctx, in.File, at); err != nil {
			return err
		}
		signalbox.Progress(ctx, at+1, in.Rows, "rows")
	}
	return nil
}

// A handler says how far its job is.
func Example_progress() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Import{File: "parts.csv", Rows: 100_000})
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Import) error {
			defer func() { <-ctx.Done() }() // so that the job still runs
			return importRows(ctx, job, in)
		})
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		go func() {
			defer stop()
			for ctx.Err() == nil {
				job, err := ins.Job(ctx, "default", res.ID)
				if p := job.Progress; err == nil && p != nil && p.Done == p.Total { // it is up to a second old
					fmt.Println(p.Done, "of", p.Total, p.Note)
					if _, err := ins.Do(ctx, "default", res.ID, inspect.Cancel{}); err != nil {
						fmt.Println(err)
					}
					return
				}
			}
		}()
		return w.Run(ctx)
	})
	// Output: 100000 of 100000 rows
}

// An Upload publishes a video.
type Upload struct {
	URL string `json:"url"`
}

func (Upload) Kind() string { return "upload" }

func publish(ctx context.Context, _ *signalbox.Job, in Upload) error {
	file, err := signalbox.Step(ctx, "download", func(ctx context.Context) (string, error) { return download(ctx, in.URL) })
	if err != nil {
		return err
	}
	at := 0
	if _, err := signalbox.Resume(ctx, &at); err != nil { // what Checkpoint saved last; without one, at stays 0
		return err
	}
	for ; at < parts; at++ {
		if err := upload(ctx, file, at); err != nil {
			return err
		}
		if err := signalbox.Checkpoint(ctx, at+1); err != nil {
			return err
		}
	}
	_, err = signalbox.Step(ctx, "announce", func(ctx context.Context) (bool, error) { return true, announce(ctx, file) })
	return err
}

const parts = 3

func download(_ context.Context, url string) (string, error) {
	fmt.Println("download", url)
	return "/tmp/video", nil
}

var tries atomic.Int32

func upload(_ context.Context, file string, part int) error {
	if tries.Add(1) == 3 {
		return errors.New("the network is away")
	}
	fmt.Println("upload", file, "part", part)
	return nil
}

func announce(context.Context, string) error {
	fmt.Println("announce")
	return nil
}

// What has finished is not done again when the job is retried.
func Example_steps() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Upload{URL: "https://example.org/7"}); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Upload) error {
			err := publish(ctx, job, in)
			if err != nil {
				fmt.Println("attempt", job.Attempt, "failed:", err)
				return err
			}
			stop()
			return nil
		}, worker.Retry(worker.Constant(time.Millisecond)))
		return w.Run(ctx)
	})
	// Output:
	// download https://example.org/7
	// upload /tmp/video part 0
	// upload /tmp/video part 1
	// attempt 1 failed: the network is away
	// upload /tmp/video part 2
	// announce
}

// A Thumbnailed is the result of a job.
type Thumbnailed struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// resize makes a thumbnail, and says where it is.
func resize(ctx context.Context, _ *signalbox.Job, in Thumbnail) error {
	name := fmt.Sprintf("%d-%s", in.Width, in.Image)
	return signalbox.SetResult(ctx, Thumbnailed{Name: name, Bytes: 8042}) // goes with the settlement
}

// show says how a job is that a user names by the text that the enqueue has returned.
func show(ctx context.Context, s *scheduler.Scheduler, text string) (st scheduler.Status, err error) {
	ref, err := scheduler.ParseRef(text)
	if err != nil {
		return st, err
	}
	st, err = s.Status(ctx, ref)
	if errors.Is(err, scheduler.ErrNotFound) {
		return st, fmt.Errorf("it was done long ago, or there is no such job: %w", err)
	}
	return st, err
}

// A job that is kept after it has completed is kept with its result.
func Example_result() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200}, scheduler.Retain(time.Hour))
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"images": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				signalbox.OnSettled(ctx, func(signalbox.Settled) { stop() })
				return next.Handle(ctx, job)
			})
		})
		worker.Handle(w, resize)
		if err := w.Run(ctx); err != nil {
			return err
		}

		st, err := show(context.WithoutCancel(ctx), s, res.Ref().String())
		if err != nil {
			return err
		}
		thumbnail, err := scheduler.ReadResult[Thumbnailed](st)
		if err != nil {
			return err
		}
		fmt.Println(st.State, thumbnail.Name, thumbnail.Bytes)
		return nil
	})
	// Output: completed 200-cat.png 8042
}

// forward hands jobs of any kind on to where they are done.
func forward(_ context.Context, job *signalbox.Job) error {
	fmt.Println(job.Kind, "goes elsewhere")
	return nil
}

// A worker hands on what it has no handler for.
func Example_others() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Export{Catalogue: 3}, scheduler.Queue("images")); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"images": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				signalbox.OnSettled(ctx, func(signalbox.Settled) { stop() })
				return next.Handle(ctx, job)
			})
		})
		worker.Handle(w, resize)
		w.HandleOthers(signalbox.HandlerFunc(forward)) // job.Kind says which
		return w.Run(ctx)
	})
	// Output: catalogue.export goes elsewhere
}

// A caller waits for what comes out of a job.
func Example_wait() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"images": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, resize)
		ran, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.Run(ran) }()
		defer func() { <-done }()
		defer stop()

		res, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200}, scheduler.Retain(time.Minute))
		if err != nil {
			return err
		}
		thumbnail, err := scheduler.Wait[Thumbnailed](ctx, s, res.Ref())
		if ended, ok := errors.AsType[*scheduler.EndedError](err); ok {
			return fmt.Errorf("no thumbnail: the job is %s", ended.Status.State)
		}
		if err != nil {
			return err
		}
		fmt.Println(thumbnail.Name, thumbnail.Bytes)
		return nil
	})
	// Output: 200-cat.png 8042
}

// A handler that takes long saves what it has when its worker drains.
func Example_draining() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Export{Catalogue: 3}); err != nil {
			return err
		}
		var progress pages
		const last = 3
		// Two workers, one after the other. The first is asked to stop while it writes the second page.
		for _, name := range []string{"first", "second"} {
			ctx, stop := context.WithCancel(ctx)
			writePage := func(ctx context.Context, page int) error {
				fmt.Println(name, "worker, page", page)
				if page == 2 {
					stop()
					<-signalbox.Draining(ctx)
				}
				return nil
			}
			w, err := worker.New(rdb, worker.Config{Concurrency: 1, Logger: quiet}) // so no call is under way that could bring the job back here
			if err != nil {
				return err
			}
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Export) error {
				for page := progress.of(in) + 1; page <= last; page++ {
					if err := writePage(ctx, page); err != nil {
						return err
					}
					progress.save(in, page) // in a store of yours
					select {
					case <-signalbox.Draining(ctx):
						return signalbox.Snooze(0) // another worker goes on
					default:
					}
				}
				stop()
				return nil
			})
			if err := w.Run(ctx); err != nil {
				return err
			}
			stop()
		}
		return nil
	})
	// Output:
	// first worker, page 1
	// first worker, page 2
	// second worker, page 3
}

// pages says how far exports are.
type pages struct{ done map[int64]int }

func (p *pages) of(e Export) int { return p.done[e.Catalogue] }

func (p *pages) save(e Export, page int) {
	if p.done == nil {
		p.done = make(map[int64]int)
	}
	p.done[e.Catalogue] = page
}

// An effect in a database happens once, however often the job is delivered.
func Example_effect() {
	var db *sql.DB // yours
	charge := func(ctx context.Context, job *signalbox.Job, in Charge) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		r, err := tx.ExecContext(ctx, `INSERT INTO done (effect_key) VALUES ($1) ON CONFLICT DO NOTHING`, job.EffectKey())
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err // nil: an earlier delivery did it
		}
		if _, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents - $1 WHERE id = $2`, in.Cents, in.Account); err != nil {
			return err
		}
		return tx.Commit()
	}
	var w *worker.Worker
	worker.Handle(w, charge)
}

// tenantKey is where the tenant of a job is in the context.
type tenantKey struct{}

// tenant is a middleware. It hands a header on to the handlers.
func tenant(next signalbox.Handler) signalbox.Handler {
	return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		ctx = context.WithValue(ctx, tenantKey{}, job.Headers["tenant"])
		return next.Handle(ctx, job)
	})
}

// Middleware wraps all handlers of a worker, or one.
func Example_middleware() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		_, err = s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Header("tenant", "north"))
		if err != nil {
			return err
		}
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		w.Use(middleware.Log(quiet), tenant)
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Receipt) error {
			fmt.Println("order", in.Order, "of", ctx.Value(tenantKey{}))
			stop()
			return nil
		})
		return w.Run(ctx)
	})
	// Output: order 7 of north
}

// Locks keep jobs apart that must not run at the same time.
func Example_locks() {
	var (
		w           *worker.Worker
		locker      lock.Locker // of package lock
		charge      func(context.Context, *signalbox.Job, Charge) error
		buildDigest func(context.Context, *signalbox.Job, Digest) error
	)
	// Charges of one account run one after the other, and those of others beside them.
	worker.Handle(w, charge, worker.LockBy(locker, func(in Charge) string {
		return fmt.Sprintf("account:%d", in.Account)
	}))
	// One digest at a time. A second one is not run at all.
	worker.Handle(w, buildDigest, worker.With(
		middleware.Lock(locker, middleware.LockName("digest"), middleware.WhenHeld(middleware.PolicyDrop))))
}

// A handler is a function, and what a call would enqueue can be looked at without Redis.
func Example_testing() {
	err := sendReceipt(context.Background(), &signalbox.Job{ID: "7", Attempt: 1}, Receipt{Order: 7})
	fmt.Println(err)

	plan, err := scheduler.Resolve(Thumbnail{Image: "cat.png", Width: 200}, scheduler.After(time.Minute))
	fmt.Println(plan.Job.Queue, plan.Job.MaxAttempts, plan.After, err)
	// Output:
	// receipt 7
	// <nil>
	// images 8 1m0s <nil>
}

// A gate is a part of the process that is ready until it is closed.
type gate struct{ closed atomic.Bool }

// Health is asked by health.Ready.
func (g *gate) Health() health.Report {
	if !g.closed.Load() {
		return health.Report{}
	}
	return health.Report{Problems: []health.Problem{{
		Part: "service", Code: health.Draining, Severity: health.Unready, Detail: "the process is about to end",
	}}}
}

func TestGate(t *testing.T) {
	t.Parallel()
	jobs := signalboxtest.New(t)
	w, err := worker.New(jobs.Client(), worker.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(jobs.Client(), scheduler.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	var mux http.ServeMux
	stopping := &gate{}
	mux.Handle("/readyz", health.Ready(w, s, stopping)) // stopping.closed.Store(true) begins the end
	says := func() string {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return answer.Body.String()
	}
	const ends = "the process is about to end"
	if text := says(); strings.Contains(text, ends) {
		t.Error(text)
	}
	if stopping.closed.Store(true); !strings.Contains(says(), ends) {
		t.Error(says())
	}
}

var errCardExpired = errors.New("the card has expired")

func Example_failures() {
	jobs := signalboxtest.New(&testing.T{})
	w, err := worker.New(jobs.Client(), worker.Config{
		Logger: quiet,
		OnDead: func(_ context.Context, f worker.Failure) { fmt.Println("dead:", f.Job.Kind, f.Err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	chargeCard := func(_ context.Context, job *signalbox.Job, _ Charge) error {
		if job.Attempt == 1 {
			return signalbox.RetryAfter(time.Minute, errors.New("429 Too Many Requests"))
		}
		return fmt.Errorf("charge: %w", errCardExpired)
	}
	worker.Handle(w, chargeCard,
		worker.Retry(worker.ExponentialFullJitter(time.Second, time.Hour)),
		worker.RetryFor(3*24*time.Hour),
		worker.Terminal(func(err error) bool { return errors.Is(err, errCardExpired) }))

	v := jobs.Work(context.Background(), w, jobs.NewJob(Charge{Account: 7, Cents: 100}))
	fmt.Println(v)
	v = jobs.Work(context.Background(), w, v.Next)
	fmt.Println(v)
	// Output:
	// retried in 1m0s after attempt 1 of 25: 429 Too Many Requests
	// dead: card.charge charge: the card has expired
	// dead after attempt 2 of 25: charge: the card has expired
}

// tooMany is a 429 of an API.
type tooMany struct {
	error
	wait time.Duration
}

func _(w *worker.Worker, charge func(context.Context, Charge) error, sendReceipt func(context.Context, *signalbox.Job, Receipt) error) {
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Charge) error {
		err := charge(ctx, in)
		if limited, ok := errors.AsType[*tooMany](err); ok { // a 429
			return signalbox.RetryAllAfter(limited.wait, err) // no job of the group starts until then
		}
		return err
	})
	worker.Handle(w, sendReceipt, worker.RetryAllAfter()) // each error that says RetryAfter does the same
}

// An Order is paid for.
type Order struct {
	ID int64 `json:"id"`
}

func (Order) Kind() string { return "order" }

func book(_ context.Context, in Order) error {
	fmt.Println("order", in.ID)
	return nil
}

func takeOrder(ctx context.Context, _ *signalbox.Job, in Order) error {
	if err := book(ctx, in); err != nil {
		return err
	}
	return scheduler.Then(ctx, Receipt{Order: in.ID})
}

// A job has another one follow it: that is there when it has completed, and only then.
func Example_then() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Order{ID: 7}); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, takeOrder)
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Receipt) error {
			defer stop()
			return sendReceipt(ctx, job, in)
		})
		return w.Run(ctx)
	})
	// Output:
	// order 7
	// receipt 7
}
