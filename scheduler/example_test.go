package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

type Welcome struct{ UserID int64 }

func (Welcome) Kind() string { return "email.welcome" }

type Digest struct{}

func (Digest) Kind() string { return "email.digest" }

// example returns a scheduler on an embedded Redis. In your program, give scheduler.New your own client.
func example() (s *scheduler.Scheduler, end func()) {
	s, _, end = exampleClient()
	return s, end
}

// exampleClient also returns the client.
func exampleClient() (s *scheduler.Scheduler, rdb *redis.Client, end func()) {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	s, err = scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return s, rdb, func() {
		if err := errors.Join(rdb.Close(), srv.Close()); err != nil {
			log.Fatal(err)
		}
	}
}

// An ID names a live job. While the job waits or runs, it is not enqueued a second time.
func ExampleScheduler_Enqueue() {
	s, end := example()
	defer end()
	for range 2 {
		res, err := s.Enqueue(context.Background(), Welcome{UserID: 42},
			scheduler.ID("welcome-42"), scheduler.After(time.Hour), scheduler.MaxAttempts(5))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s new=%v state=%q\n", res.ID, res.New, res.State)
	}
	// Output:
	// welcome-42 new=true state=""
	// welcome-42 new=false state="scheduled"
}

// A call whose outcome is uncertain is made again. The job is enqueued once.
func ExampleUncertainError_Again() {
	s, end := example()
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	opts := []scheduler.EnqueueOption{scheduler.Queue("mail")}
	res, err := s.Enqueue(ctx, Welcome{UserID: 42}, opts...)
	var u *scheduler.UncertainError
	for try := 1; errors.As(err, &u) && try < 5 && ctx.Err() == nil; try++ {
		time.Sleep(time.Second) // Redis may have refused at once
		res, err = s.Enqueue(ctx, Welcome{UserID: 42}, append(opts, u.Again())...)
	}
	switch {
	case errors.As(err, &u):
		fmt.Println("job", u.ID, "may be in, and may run")
	case err != nil:
		fmt.Println("the job is not in")
	default:
		fmt.Println("the job is in:", res.New)
	}
	// Output: the job is in: true
}

// Each job has a result of its own.
func ExampleScheduler_EnqueueMany() {
	s, end := example()
	defer end()
	items := []scheduler.Item{
		{Args: Welcome{UserID: 1}},
		{Args: Welcome{UserID: 2}, Options: []scheduler.EnqueueOption{scheduler.Priority(signalbox.PriorityHigh)}},
		{Args: Welcome{UserID: 3}, Options: []scheduler.EnqueueOption{scheduler.MaxAttempts(0)}},
	}
	results, err := s.EnqueueMany(context.Background(), items, scheduler.Queue("mail"))
	for i, r := range results {
		fmt.Println(i, r.New, r.Err)
	}
	fmt.Println(errors.Is(err, signalbox.ErrInvalid))
	// Output:
	// 0 true <nil>
	// 1 true <nil>
	// 2 false signalbox: invalid MaxAttempts: 0; want 1 to 1000000
	// true
}

// What several calls have in common is kept in one place. Each call can add options of its own, and the later one counts.
func ExampleJobOptions() {
	s, end := example()
	defer end()
	ctx := context.Background()
	mail := scheduler.JobOptions{scheduler.Queue("mail"), scheduler.MaxAttempts(5), scheduler.Retain(48 * time.Hour)}

	_, err1 := s.Enqueue(ctx, Welcome{UserID: 1}, mail, scheduler.ID("welcome-1"))
	_, err2 := s.EnqueueMany(ctx, []scheduler.Item{{Args: Welcome{UserID: 2}}, {Args: Welcome{UserID: 3}}}, mail, scheduler.After(time.Hour))
	err3 := s.Cron("digest", "0 7 * * *", Digest{}, mail, scheduler.Missed(scheduler.Skip))
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}

	plan, err := scheduler.Resolve(Welcome{UserID: 4}, mail, scheduler.MaxAttempts(1))
	fmt.Println(plan.Job.Queue, plan.Job.MaxAttempts, plan.Job.Retain, err)
	fmt.Println(s.CronEntries()[0].Queue)
	// Output:
	// mail 1 48h0m0s <nil>
	// mail
}

// A queue with a maximum length refuses jobs. A call with WaitForRoom waits instead, until its context ends.
func ExampleWaitForRoom() {
	s, rdb, end := exampleClient()
	defer end()
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, Welcome{UserID: 1}); err != nil {
		log.Fatal(err)
	}
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := ins.SetMaxLength(ctx, "default", 1); err != nil { // or MaxLength in a worker's Config
		log.Fatal(err)
	}

	_, err = s.Enqueue(ctx, Welcome{UserID: 2})
	if full, ok := errors.AsType[*signalbox.QueueFullError](err); ok {
		fmt.Printf("full: %d of %d jobs\n", full.Length, full.Max)
	}

	var raised sync.WaitGroup
	raised.Go(func() { // a job that ends does it as well
		if err := ins.SetMaxLength(ctx, "default", 2); err != nil {
			log.Print(err)
		}
	})
	res, err := s.Enqueue(ctx, Welcome{UserID: 2}, scheduler.WaitForRoom())
	raised.Wait()
	fmt.Println(res.New, err)
	// Output:
	// full: 1 of 1 jobs
	// true <nil>
}

// A request enqueues a job, and waits for what comes out of it.
func ExampleWait() {
	s, rdb, end := exampleClient()
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"default": {}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Welcome) error {
		if in.UserID < 0 {
			return signalbox.Dead(errors.New("no such user"))
		}
		return signalbox.SetResult(ctx, fmt.Sprintf("message %d", in.UserID))
	})
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			log.Print(err)
		}
	})

	for _, user := range []int64{42, -1} {
		res, err := s.Enqueue(ctx, Welcome{UserID: user}, scheduler.Retain(time.Minute))
		if err != nil {
			log.Fatal(err)
		}
		text, err := scheduler.Wait[string](ctx, s, res.Ref())
		if ended, ok := errors.AsType[*scheduler.EndedError](err); ok {
			fmt.Println(ended.Status.State, ended.Status.LastError)
			continue
		}
		fmt.Println(text, err)
	}
	// Output:
	// message 42 <nil>
	// dead no such user
}

// A service shows how far a batch is. Its reference goes to the customer as text.
func ExampleScheduler_BatchStatus() {
	s, end := example()
	defer end()
	ctx := context.Background()
	b, err := s.Batch(ctx, "mail", scheduler.FlowID("news-7"))
	if err != nil {
		log.Fatal(err)
	}
	for user := range int64(3) {
		if _, err := b.Add(ctx, Welcome{UserID: user}); err != nil {
			log.Fatal(err)
		}
	}
	if err := b.Seal(ctx); err != nil {
		log.Fatal(err)
	}
	text := b.Ref().String()

	ref, err := scheduler.ParseRef(text)
	if err != nil {
		log.Fatal(err)
	}
	st, err := s.BatchStatus(ctx, ref)
	if err != nil { // scheduler.ErrNoBatch: it was over a day ago, or never was
		log.Fatal(err)
	}
	fmt.Printf("%s is %s: %d of %d have ended, %d without success\n", text, st.State, st.Total-st.Open, st.Total, st.Dead+st.Gone)
	// Output: {default:mail}news-7 is open: 0 of 3 have ended, 0 without success
}

// Every process registers the entry and runs it. Each tick is enqueued once.
func ExampleScheduler_Cron() {
	s, end := example()
	defer end()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Cron("digest", "0 9 * * 1-5", Digest{}, scheduler.In(berlin)))
	fmt.Println(s.Cron("leap", "0 0 30 2 *", Digest{}))

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fmt.Println(s.Run(ctx)) // until ctx ends
	// Output:
	// <nil>
	// scheduler: cron entry "leap": signalbox: invalid: cron spec "0 0 30 2 *": its date never comes; check the day against the month
	// <nil>
}

// A program was down from Friday to Monday. Then the report of the weekend comes once, and each missed invoice comes.
func ExampleMissed() {
	s, end := example()
	defer end()
	fmt.Println(s.Cron("report", "@daily", Digest{}, scheduler.Missed(scheduler.RunOnce)))
	fmt.Println(s.Cron("invoice", "@hourly", Digest{}, scheduler.Missed(scheduler.RunAll(100)), scheduler.Lateness(72*time.Hour)))
	fmt.Println(s.Cron("poll", "@every 10s", Digest{}, scheduler.Missed(scheduler.Skip)))
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

// A form shows what a user's spec means.
func ExamplePreview() {
	words, ticks, err := scheduler.Preview("*/15 9-17 * * 1-5", time.UTC, 2)
	fmt.Println(words)
	fmt.Println(len(ticks), ticks[0].Minute()%15, err)
	_, _, err = scheduler.Preview("0 9 * *", nil, 0)
	fmt.Println(errors.Is(err, signalbox.ErrInvalid))
	// Output:
	// every 15th minute of hours 9 to 17 on Monday to Friday, in UTC
	// 2 0 <nil>
	// true
}

// A mailer enqueues through its own interface. So a test can see what it would enqueue.
func ExampleResolve() {
	enqueue := func(args signalbox.Args, opts ...scheduler.EnqueueOption) {
		plan, err := scheduler.Resolve(args, opts...)
		fmt.Println(plan.Job.Queue, string(plan.Job.Payload), plan.After, err)
	}
	enqueue(Welcome{UserID: 42}, scheduler.Queue("mail"), scheduler.After(time.Hour))
	// Output: mail {"UserID":42} 1h0m0s <nil>
}

// A Report is about one day.
type Report struct{ Day string }

func (Report) Kind() string { return "report" }

// An entry that skips ticks while its job is live, one whose args follow from the time of the tick, and entries of a file that is watched.
func ExampleScheduler_CronFrom() {
	s, end := example()
	defer end()
	day := func(tick time.Time) signalbox.Args { return Report{tick.AddDate(0, 0, -1).Format(time.DateOnly)} }
	err := errors.Join(
		s.Cron("sync", "@every 1m", Digest{}, scheduler.Overlap(scheduler.SkipIfRunning), scheduler.Jitter(20*time.Second)),
		s.Cron("report", "0 1 * * *", Report{}, scheduler.ArgsAt(day)),
		s.CronFrom(context.Background(), scheduler.CronFile("testdata/cron.json"), 10*time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	changed, err := s.SetCron("sync", "@every 2m offset 30s", Digest{}, scheduler.Overlap(scheduler.CancelOther))
	fmt.Println(changed, err)
	fmt.Println(s.RemoveCron("report"))
	for _, e := range s.CronEntries() {
		fmt.Println(e.Name, e.Spec)
	}
	// Output:
	// true <nil>
	// true
	// digest 0 9 * * 1-5
	// sync @every 2m offset 30s
}
