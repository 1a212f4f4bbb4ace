package signalbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// The Go code of docs/jobs.md is from this file: TestDocsJobs compares them.

// A Thumbnail is the work of making one small picture.
type Thumbnail struct {
	Image string `json:"image"`
	Width int    `json:"width"`
}

// Kind names the work. It returns a constant.
func (Thumbnail) Kind() string { return "image.thumbnail" }

// Validate is called before a job is enqueued, and again before it is handled.
func (t Thumbnail) Validate() error {
	if t.Image == "" || t.Width <= 0 {
		return errors.New("a thumbnail needs an image and a width above 0")
	}
	return nil
}

// Defaults say how these jobs are enqueued where the call doesn't say it.
func (Thumbnail) Defaults() signalbox.Defaults {
	return signalbox.Defaults{Queue: "images", MaxAttempts: 8, Timeout: 2 * time.Minute}
}

// A Receipt is a mail about an order.
type Receipt struct {
	Order int64 `json:"order"`
}

// Kind names the work.
func (Receipt) Kind() string { return "mail.receipt" }

// A Charge takes money from an account.
type Charge struct {
	Account int64 `json:"account"`
	Cents   int64 `json:"cents"`
}

// Kind names the work.
func (Charge) Kind() string { return "card.charge" }

// An Export writes the pages of a catalogue.
type Export struct {
	Catalogue int64 `json:"catalogue"`
}

// Kind names the work.
func (Export) Kind() string { return "catalogue.export" }

// All exports are one group, and all letters another.
func (Export) Defaults() signalbox.Defaults { return signalbox.Defaults{Group: "exports"} }
func (Letter) Defaults() signalbox.Defaults { return signalbox.Defaults{Group: "letters"} }

// A Letter is one of many.
type Letter struct{ To string }

// Kind names the work.
func (Letter) Kind() string { return "mail.letter" }

// A Digest is the mail of every working day.
type Digest struct{}

// Kind names the work.
func (Digest) Kind() string { return "mail.digest" }

// A DayReport is about one day.
type DayReport struct{ Day string }

func (DayReport) Kind() string { return "report" }

// A Sync is the job of an entry that ticks often.
type Sync struct{}

func (Sync) Kind() string { return "sync" }

// This is only compiled: its file isn't there.
var _ = func(ctx context.Context, s *scheduler.Scheduler, berlin *time.Location) (err error) {
	err = s.Cron("yesterday", "0 1 * * *", DayReport{}, scheduler.In(berlin), scheduler.ArgsAt(func(tick time.Time) signalbox.Args {
		return DayReport{Day: tick.AddDate(0, 0, -1).Format(time.DateOnly)}
	}))
	if err != nil {
		return err
	}
	err = s.Cron("sync", "@every 1m", Sync{}, scheduler.Overlap(scheduler.SkipIfRunning))
	if err != nil {
		return err
	}
	err = s.CronFrom(ctx, scheduler.CronFile("/etc/app/cron.json"), 10*time.Second)
	return err
}

// onRedis calls f with a client of a Redis for development.
func onRedis(f func(ctx context.Context, rdb *redis.Client) error) {
	srv, err := embedded.Start(embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f(ctx, rdb); err != nil {
		fmt.Println(err)
	}
}

func makeThumbnail(_ context.Context, job *signalbox.Job, in Thumbnail) error {
	fmt.Println(in.Image, in.Width, "attempt", job.Attempt, "of", job.MaxAttempts)
	return nil
}

// While a job has a unique key, others of its kind are left out.
func Example_unique() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 100}, scheduler.ID("first"), scheduler.Unique("cat.png", scheduler.UntilEnded)); err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200}, scheduler.Unique("cat.png", scheduler.UntilEnded))
		if err != nil {
			return err
		}
		if !res.New {
			fmt.Println("job", res.Existing, "makes it already:", res.State)
		}
		for range 2 {
			res, err := s.Enqueue(ctx, Thumbnail{Image: "dog.png", Width: 300},
				scheduler.Unique("dog.png", scheduler.UntilStarted), scheduler.After(time.Minute), scheduler.Replace())
			if err != nil {
				return err
			}
			fmt.Println("new:", res.New, "updated:", res.Updated)
		}
		res, err = s.Enqueue(ctx, Thumbnail{Image: "dog.png", Width: 400}, scheduler.Debounce("dog.png", 10*time.Second, time.Minute))
		if err != nil {
			return err
		}
		fmt.Println("new:", res.New, "updated:", res.Updated)
		for _, width := range []int{500, 600} {
			res, err = s.Enqueue(ctx, Thumbnail{Image: "owl.png", Width: width}, scheduler.Throttle("owl.png", time.Minute))
			if err != nil {
				return err
			}
			fmt.Println("new:", res.New, "updated:", res.Updated)
		}
		return nil
	})
	// Output:
	// job first makes it already: ready
	// new: true updated: false
	// new: false updated: true
	// new: false updated: true
	// new: true updated: false
	// new: false updated: true
}

// A worker has two queues, and a handler for each kind of their jobs.
func Example_queues() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200})
		if err != nil {
			return err // the job is not in, or may not be: see "When an enqueue fails"
		}
		fmt.Println("new:", res.New)
		if _, err := s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Queue("mail")); err != nil {
			return err
		}

		cfg := worker.Config{Queues: worker.Queues{
			"images": {Concurrency: 2},  // slots: handlers that run at the same time
			"mail":   {Concurrency: 50}, // the default
		}}
		cfg.Logger = quiet
		w, err := worker.New(rdb, cfg)
		if err != nil {
			return err
		}
		var both sync.WaitGroup
		both.Add(2)
		go func() { both.Wait(); stop() }()
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				defer both.Done()
				return next.Handle(ctx, job)
			})
		})
		worker.Handle(w, makeThumbnail)
		worker.Handle(w, sendReceipt, worker.Timeout(30*time.Second),
			worker.Retry(worker.ExponentialJitter(5*time.Second, time.Hour)))
		return w.Run(ctx)
	})
	// Unordered output:
	// new: true
	// cat.png 200 attempt 1 of 8
	// receipt 7
}

var mail mailer

// errors of a mail server.
var (
	errMaintenance  = errors.New("down for maintenance")
	errNoSuchPerson = errors.New("no such person")
)

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
		return signalbox.Cancel(err) // another attempt would not help
	}
	return err // nil completes the job; any other error is a failed attempt
}

// A receipt is kept for longer than other jobs of its queue.
func Example_retain() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Receipt{Order: 17}, scheduler.Retain(90*24*time.Hour))
		fmt.Println(res.New)
		return err
	})
	// Output: true
}

// A receipt that is late is of no use.
func Example_expireAfter() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Receipt{Order: 18}, scheduler.ExpireAfter(5*time.Minute))
		fmt.Println(res.New)
		return err
	})
	// Output: true
}

// Jobs of a tenant take turns with those of others. Jobs of an account run one at a time.
func Example_groups() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		tenant := func() error {
			_, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 100}, scheduler.Group("tenant-42")) // takes turns with other tenants
			if err == nil {
				_, err = s.Enqueue(ctx, Receipt{Order: 8}, scheduler.Serial("account-7")) // one at a time, in order
			}
			return err
		}
		yields := func() error {
			_, err = s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Serial("account-7"), scheduler.YieldOnRetry())
			return err
		}
		fmt.Println(tenant(), yields())
		return nil
	})
	// Output: <nil> <nil>
}

// A queue and its groups have limits, and an operator changes them while workers run.
func Example_limits() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Queue("mail"), scheduler.Group("tenant-42")); err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}

		cfg := worker.Config{Logger: quiet}
		cfg.Queues = worker.Queues{"mail": {
			Limits:      signalbox.Limits{Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 10}}, // what the mail server allows
			GroupLimits: signalbox.Limits{Running: 2},                                                   // of each tenant
		}}
		w, err := worker.New(rdb, cfg)
		if err != nil {
			return err
		}
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				defer stop()
				return next.Handle(ctx, job)
			})
		})
		worker.Handle(w, sendReceipt)
		if err := w.Run(ctx); err != nil {
			return err
		}

		ctx = context.WithoutCancel(ctx)
		err = ins.SetLimits(ctx, "mail", signalbox.Limits{Running: 20}) // later, while it runs
		if err != nil {
			return err
		}
		err = ins.SetLimitsOf(ctx, "mail", "tenant-42", signalbox.Limits{Running: 5}) // one tenant may have more
		return err
	})
	// Output: receipt 9
}

// A full queue refuses jobs, or has callers wait.
func Example_maxLength() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		for order := range int64(2) {
			if _, err := s.Enqueue(ctx, Receipt{Order: order}, scheduler.Queue("mail")); err != nil {
				return err
			}
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}

		cfg := worker.Config{Logger: quiet}
		cfg.Queues = worker.Queues{"mail": {MaxLength: 100_000}} // a worker seeds it
		if _, err := worker.New(rdb, cfg); err != nil {
			return err
		}
		err = ins.SetMaxLength(ctx, "mail", 2) // later, while it runs
		if err != nil {
			return err
		}

		_, err = s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Queue("mail"))
		if full, ok := errors.AsType[*signalbox.QueueFullError](err); ok {
			fmt.Printf("%d of %d jobs: try again later\n", full.Length, full.Max)
		}

		raised := make(chan error, 1)
		go func() { raised <- ins.SetMaxLength(ctx, "mail", 3) }()
		_, err = s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Queue("mail"), scheduler.WaitForRoom())
		return errors.Join(err, <-raised)
	})
	// Output: 2 of 2 jobs: try again later
}

// An ID names one live job. The narrowest option counts.
func Example_options() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		for range 2 {
			res, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200},
				scheduler.ID("thumbnail:cat.png:200"),
				scheduler.After(10*time.Minute),
				scheduler.MaxAttempts(3)) // counts more than the 8 of Defaults
			if err != nil {
				return err
			}
			fmt.Printf("new=%v state=%q\n", res.New, res.State)
		}
		items := []scheduler.Item{
			{Args: Thumbnail{Image: "cat.png", Width: 400}},
			{Args: Thumbnail{Image: "dog.png", Width: 400}, Options: []scheduler.EnqueueOption{scheduler.ID("dog")}},
			{Args: Thumbnail{Image: "dog.png"}}, // Validate refuses it
		}
		results, err := s.EnqueueMany(ctx, items, scheduler.Priority(signalbox.PriorityLow))
		for i, r := range results {
			if r.Err != nil {
				fmt.Println("item", i, "is not in:", r.Err)
			}
		}
		fmt.Println(err)
		return nil
	})
	// Output:
	// new=true state=""
	// new=false state="scheduled"
	// item 2 is not in: signalbox: invalid args of kind image.thumbnail: a thumbnail needs an image and a width above 0
	// scheduler: 1 of 3 jobs failed; the first of them, item 2: signalbox: invalid args of kind image.thumbnail: a thumbnail needs an image and a width above 0
}

// What several calls have in common is one option of each.
func Example_jobOptions() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		mails := scheduler.JobOptions{scheduler.Queue("mail"), scheduler.MaxAttempts(5), scheduler.Retain(48 * time.Hour)}
		_, err = s.Enqueue(ctx, Receipt{Order: 7}, mails, scheduler.ID("receipt-7"))
		_, many := s.EnqueueMany(ctx, []scheduler.Item{{Args: Receipt{Order: 8}}, {Args: Receipt{Order: 9}}}, mails, scheduler.After(time.Hour))
		cron := s.Cron("digest", "0 7 * * *", Digest{}, mails, scheduler.Missed(scheduler.Skip))
		return errors.Join(err, many, cron)
	})
	// Output:
}

// A job that must survive the loss of the master. It is compiled and not run: the embedded Redis has no replicas.
func Example_waitReplicas() {
	_ = func(ctx context.Context, s *scheduler.Scheduler) error {
		res, err := s.Enqueue(ctx, Receipt{Order: 17}, scheduler.WaitReplicas(1, time.Second))
		var notYet *scheduler.NotDurableError
		if errors.As(err, &notYet) {
			// The job is in, and runs. It may be on no replica yet.
			res, err = s.Enqueue(ctx, Receipt{Order: 17}, scheduler.WaitReplicas(1, time.Second), notYet.Again())
		}
		fmt.Println(res.New)
		return err
	}
}

// A scheduler and a worker with a codec. The package of the codecs is a module of its own, examples/codecs.
func Example_codec() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		var codec signalbox.Codec = rot13{}
		s, err := scheduler.New(rdb, scheduler.Config{Codec: codec}) // encodes all of its jobs
		if err != nil {
			return err
		}
		w, err := worker.New(rdb, worker.Config{Codecs: []signalbox.Codec{codec}}) // decodes those jobs, and JSON
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, in Thumbnail) error {
			defer stop()
			fmt.Println(in.Image, "from", string(job.Payload))
			return nil
		})
		if _, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200}, scheduler.Queue(signalbox.DefaultQueue)); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output:
	// cat.png from {"vzntr":"png.cat","jvqgu":200}
}

// rot13 is a codec to look at: it hides nothing.
type rot13 struct{}

func (rot13) Encoding() string { return "rot13+json" }

func (rot13) Encode(_ *signalbox.Job, args any) ([]byte, error) {
	data, err := json.Marshal(args)
	return bytes.Map(rotate, data), err
}

func (rot13) Decode(_ *signalbox.Job, payload []byte, args any) error {
	return json.Unmarshal(bytes.Map(rotate, payload), args)
}

func rotate(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return 'a' + (r-'a'+13)%26
	}
	return r
}

// Rows of an import become jobs. A run that died goes on where it was.
func Example_import() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		saved := -1
		run := func(first, until int) error {
			rows := func(yield func(scheduler.Item) bool) { // a query, a file, a channel that is full
				for n := first; n < 2500; n++ {
					row := fmt.Sprint("import-7-row-", n)
					if !yield(scheduler.Item{
						Args:    Thumbnail{Image: row, Width: 200},
						Options: []scheduler.EnqueueOption{scheduler.ID(row), scheduler.EffectKey(row), scheduler.IfAbsent()},
					}) {
						return
					}
				}
			}
			for i, r := range s.EnqueueSeq(ctx, rows, scheduler.Priority(signalbox.PriorityLow)) {
				if r.Err != nil {
					return fmt.Errorf("row %d: %w", first+i, r.Err)
				}
				saved = first + i // where the next run goes on, if this one dies
				if saved == until {
					return nil
				}
			}
			return nil
		}
		if err := run(saved+1, 1500); err != nil {
			return err
		}
		fmt.Println("the first run saved row", saved)
		err = run(saved+1, 2500)
		fmt.Println("the second one ended with row", saved)
		return err
	})
	// Output:
	// the first run saved row 1500
	// the second one ended with row 2499
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

// Every process may declare the entry and run it: each tick is enqueued once.
func Example_cron() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ Digest) error {
			fmt.Println("a tick of a whole second:", job.ScheduledAt.Nanosecond() == 0)
			stop()
			return nil
		})
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			return err
		}
		err = s.Cron("digest", "0 9 * * 1-5", Digest{}, scheduler.In(berlin), scheduler.Queue("mail"))
		if err != nil {
			return err
		}
		err = s.Cron("report", "@daily", Digest{}, scheduler.Missed(scheduler.RunOnce))
		if err != nil {
			return err
		}
		if err := s.Cron("often", "@every 1s", Digest{}, scheduler.Queue("mail")); err != nil {
			return err
		}

		ctx, cancel := context.WithCancelCause(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { cancel(s.Run(ctx)) }) // enqueues the ticks
		wg.Go(func() { cancel(w.Run(ctx)) }) // runs the jobs
		wg.Wait()                            // when one of them ends, the other does
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	// Output: a tick of a whole second: true
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

// A job is cancelled while its handler runs.
func Example_cancel() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		running := make(chan struct{})
		writePages := func(ctx context.Context, _ Export) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		}
		removePages := func(Export) { fmt.Println("removed") }
		ended := make(chan signalbox.Outcome, 1)
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Export) error {
			signalbox.OnSettled(ctx, func(s signalbox.Settled) { ended <- s.Outcome })
			err := writePages(ctx, in) // its calls end with ctx
			if errors.Is(context.Cause(ctx), signalbox.ErrCancelled) {
				removePages(in) // with a context of its own
			}
			return err
		})
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Export{}, scheduler.Queue("mail"), scheduler.ID("receipt:7")); err != nil {
			return err
		}
		working, stop := context.WithCancel(ctx)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- w.Run(working) }()
		<-running

		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		was, err := ins.Do(ctx, "mail", "receipt:7", inspect.Cancel{Why: "the order was refunded"})
		switch {
		case errors.Is(err, inspect.ErrNoJob):
			fmt.Println("it is done, or never was there")
		case errors.Is(err, inspect.ErrState):
			fmt.Println("it is dead")
		case err == nil:
			fmt.Println("it was", was)
		}
		fmt.Println("it ended", <-ended)
		stop()
		return <-done
	})
	// Unordered output:
	// it was running
	// removed
	// it ended cancelled
}

// Dead jobs of a kind run again whose cause was mended.
func Example_retry() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Queue("mail")); err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		dead := inspect.Filter{State: signalbox.StateDead, Kind: "mail.receipt", Error: "connection refused"}
		n, err := ins.DoAll(ctx, "mail", dead, inspect.Retry{}, inspect.Bulk{DryRun: true})
		fmt.Println(n.Matched, "would run again")
		if err != nil {
			return err
		}
		n, err = ins.DoAll(ctx, "mail", dead, inspect.Retry{}, inspect.Bulk{})
		fmt.Println(n.Done, "run again")
		return err
	})
	// Output:
	// 0 would run again
	// 0 run again
}

// An operator stops a queue, and looks at it.
func Example_inspect() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Queue("mail")); err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		if _, err := ins.Pause(ctx, "mail"); err != nil {
			return err
		}
		queues, err := ins.Queues(ctx)
		for _, q := range queues { // those that could be read, also if err isn't nil
			fmt.Println(q.Name, "ready:", q.Ready, "running:", q.Running, "dead:", q.Dead, "paused:", q.Paused)
		}
		if err != nil {
			slog.Error("some queues could not be read", "error", err) // it names them
		}
		f := inspect.Filter{State: signalbox.StateDead, Kind: "email.welcome", NewerThan: time.Hour}
		for job, err := range ins.Jobs(ctx, "mail", f) {
			if err != nil {
				return err
			}
			fmt.Println(job.ID, job.EndedAt, job.LastError, string(job.Payload))
			for _, a := range job.Attempts { // the last ten that failed
				fmt.Println(a.Number, a.At, a.Ran, a.Worker, a.Error, a.TraceID, a.Stack)
			}
		}
		err = ins.SetCompletedRetention(ctx, "mail", signalbox.Retention{Age: 24 * time.Hour, Jobs: 10_000})
		if err != nil {
			return err
		}
		return nil
	})
	// Output: mail ready: 1 running: 0 dead: 0 paused: true
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

func _(cfg worker.Config) {
	cfg.Queues = worker.Queues{"default": {LimitsOf: map[string]signalbox.Limits{
		"exports": {Running: 5},                                                   // at a time
		"letters": {Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 10}}, // start each second
	}}}
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
