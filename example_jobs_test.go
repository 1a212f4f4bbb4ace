package signalbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The Go code of docs/jobs.md, docs/jobs and docs/scheduling.md is from the files example_*_test.go: TestDocsJobs compares them. Here is what jobs are, and how they are put in.

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

// errors of a mail server.
var (
	errMaintenance  = errors.New("down for maintenance")
	errNoSuchPerson = errors.New("no such person")
)

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

// An offer ends at a point in time. What hasn't been sent by then isn't sent any more.
func Example_deadline() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		closing := time.Now().Add(8 * time.Hour)
		res, err := s.Enqueue(ctx, Receipt{Order: 18}, scheduler.Deadline(closing))
		fmt.Println(res.New)
		return err
	})
	// Output: true
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

// A scheduler and a worker with a codec. The package of the codecs, examples/more/codecs, is in another module.
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
