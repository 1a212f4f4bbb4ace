// Package signalboxtest tests programs that use Signalbox, without a server and in microseconds.
//
// [Jobs] has a client that stands in for Redis. A *[scheduler.Scheduler] on it enqueues as it always does, and Jobs has the jobs. [One]
// and [All] return those of a type with their arguments. [Jobs.Work] gives a job to a *[worker.Worker]: it runs in its whole middleware,
// and a [Verdict] says what would become of it. [Jobs.WorkAll] does so with all jobs that are due. [Jobs.Relay] takes the jobs that were written
// into the tables of an outbox.
//
// The clock is that of package time. In a bubble of [testing/synctest] it goes by at once: the test sleeps for a week, and the cron
// entries of a scheduler that runs in the bubble have fired.
//
// The stand-in answers schedulers and nobody else. [Jobs.Locker] stands in for the locks of handlers. Package [embedded] is a Redis for
// tests of workers that run, of locks themselves and of package inspect. The guide is docs/testing.md.
//
// [scheduler.Scheduler]: https://pkg.go.dev/github.com/signalbox-go/signalbox/scheduler#Scheduler
// [worker.Worker]: https://pkg.go.dev/github.com/signalbox-go/signalbox/worker#Worker
// [embedded]: https://pkg.go.dev/github.com/signalbox-go/signalbox/embedded
package signalboxtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/scheduler"
)

// Jobs are the jobs of one test. Its methods, and the functions that take it, end the test by t.Fatalf if they can't do what they should:
// call those that do so from the test's goroutine. Everything else is safe for concurrent use.
type Jobs struct {
	t       testing.TB
	standIn *store.StandIn
	rdb     *redis.Client
	locks   locks
	codecs  []signalbox.Codec
}

// New returns the jobs of a test: none. Its client is closed when the test ends. Make one for each test and subtest: it costs
// microseconds. In a bubble of testing/synctest make it inside, as well as the scheduler and the worker.
func New(t testing.TB) *Jobs {
	s := store.NewStandIn()
	j := &Jobs{t: t, standIn: s, rdb: newClient(s)}
	t.Cleanup(func() { _ = j.rdb.Close() })
	return j
}

// Codecs says how [One] and [All] decode the payloads of jobs whose scheduler has a codec.
func (j *Jobs) Codecs(codecs ...signalbox.Codec) { j.codecs = codecs }

func (j *Jobs) decode(job *signalbox.Job, args any) error {
	if job.Encoding == "" {
		return json.Unmarshal(job.Payload, args)
	}
	for _, codec := range j.codecs {
		if codec.Encoding() == job.Encoding {
			return codec.Decode(job, job.Payload, args)
		}
	}
	return fmt.Errorf("%w %q: name its codec by Jobs.Codecs", signalbox.ErrUnknownEncoding, job.Encoding)
}

// Client returns the client for scheduler.New and worker.New. It has no server: it answers what schedulers call, and fails what
// others call.
func (j *Jobs) Client() *redis.Client { return j.rdb }

// Enqueued returns all jobs that were enqueued, in order, each as it was then. Its delay is ScheduledAt minus EnqueuedAt. Jobs that
// were left out, because a live job has their ID, are not among them. The caller may change what it gets.
func (j *Jobs) Enqueued() []*signalbox.Job { return j.standIn.Put() }

// Waiting returns the jobs that wait, each as its next delivery has it: first those that are due, in the order in which a worker
// gets them, then the others by their time. The caller may change what it gets.
func (j *Jobs) Waiting() []*signalbox.Job { return j.standIn.Waiting() }

// Clear forgets all jobs and the ticks of cron entries.
func (j *Jobs) Clear() { j.standIn.Clear() }

// Enqueued is a job that was enqueued, with its arguments.
type Enqueued[T signalbox.Args] struct {
	*signalbox.Job
	Args T
}

// One returns the job of T's kind. It ends the test unless just one was enqueued.
func One[T signalbox.Args](j *Jobs) Enqueued[T] {
	j.t.Helper()
	all := All[T](j)
	if len(all) != 1 {
		var zero T
		j.t.Fatalf("signalboxtest: %d jobs of kind %q were enqueued, not 1; enqueued were: %s", len(all), zero.Kind(), listed(j.Enqueued()))
		return Enqueued[T]{Job: &signalbox.Job{}} // if t is nobody's
	}
	return all[0]
}

// All returns the jobs of T's kind that were enqueued, in order. It ends the test if the arguments of one can't be decoded into a T.
func All[T signalbox.Args](j *Jobs) []Enqueued[T] {
	j.t.Helper()
	var all []Enqueued[T]
	var zero T
	for _, job := range j.Enqueued() {
		if job.Kind != zero.Kind() {
			continue
		}
		e := Enqueued[T]{Job: job}
		if err := j.decode(job, &e.Args); err != nil {
			j.t.Fatalf("signalboxtest: the payload of job %s can't be decoded into a %T: %v", job.ID, zero, err)
		}
		all = append(all, e)
	}
	return all
}

// listed names jobs by how many there are of each kind and queue.
func listed(jobs []*signalbox.Job) string {
	counts := make(map[string]int)
	for _, job := range jobs {
		counts[fmt.Sprintf("%q in queue %q", job.Kind, job.Queue)]++
	}
	if len(counts) == 0 {
		return "none"
	}
	var list []string
	for what, n := range counts {
		list = append(list, fmt.Sprintf("%d of %s", n, what))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// NewJob returns the job that an Enqueue with these arguments and options would put in, as its first delivery has it. It isn't enqueued:
// it is there to be changed, and to be given to [Jobs.Work]. NewJob ends the test if an argument or an option is wrong.
func (j *Jobs) NewJob(args signalbox.Args, opts ...scheduler.EnqueueOption) *signalbox.Job {
	j.t.Helper()
	plan, err := scheduler.Resolve(args, opts...)
	if err != nil {
		j.t.Fatalf("signalboxtest: NewJob: %v", err)
	}
	return newJob(plan)
}
