package fromasynq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/asynq"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Config configures a [Mover]. The zero value moves all tasks of all queues to queues of the same names in the namespace "default".
type Config struct {
	// Namespace is the namespace of the queues here. Default "default".
	Namespace string
	// Queues are the queues of asynq whose tasks are moved. Default all.
	Queues []string
	// Map changes the job that a task becomes, or returns [ErrStay]. After another error the task stays, too, and the text of the error is its reason in the [Report]. So give tasks with one cause the same text,
	// without data of the task. It may be called more than once for a task, and must decide the same each time. nil changes nothing. [ReadMap] reads one from a file.
	Map func(t *Task, job *Job) error
	// Progress is called from time to time with the report so far, without its lists. It may be nil.
	Progress func(Report)
}

// A Mover moves tasks. It is for one goroutine at a time. Several Movers, also in several processes, may move the same tasks.
type Mover struct {
	from    redis.UniversalClient
	to      redis.UniversalClient
	cfg     Config
	targets map[string]*target
}

// New returns a Mover. from reaches asynq's Redis, and rdb the one of the queues here. They may be the same client. It calls nothing, and both stay the caller's to close. The error wraps [signalbox.ErrInvalid] and
// names every mistake.
func New(from, rdb redis.UniversalClient, cfg Config) (*Mover, error) {
	if err := errors.Join(server.CheckClient(from), server.CheckClient(rdb), layout.ValidateNamespace(cfg.Namespace)); err != nil {
		return nil, fmt.Errorf("fromasynq: %w", err)
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, layout.DefaultNamespace)
	return &Mover{from: from, to: rdb, cfg: cfg, targets: make(map[string]*target)}, nil
}

// A target is a queue to which tasks go.
type target struct {
	q      *store.Queue
	ready  bool          // it is in the registry
	age    time.Duration // how long it keeps dead jobs
	room   int64         // how many dead jobs it takes until it would drop some
	asked  bool          // age and room are known
	paused bool          // by this Mover
}

// target returns a queue of the namespace.
func (m *Mover) target(name string) *target { return m.targetIn(m.cfg.Namespace, name) }

func (m *Mover) targetIn(namespace, name string) *target {
	key := namespace + ":" + name
	t := m.targets[key]
	if t == nil {
		t = &target{q: store.New(m.to, namespace, name)}
		m.targets[key] = t
	}
	return t
}

// ask reads how many dead jobs the queue takes.
func (t *target) ask(ctx context.Context) error {
	if t.asked {
		return nil
	}
	made, err := t.q.Settings().Read(ctx)
	if err != nil {
		return err
	}
	counts, err := t.q.Looks().Counts(ctx)
	if err != nil {
		return err
	}
	kept := settings.Filled(made.Retention)
	t.age, t.room, t.asked = kept.Age, kept.Jobs-counts.Dead, true
	return nil
}

// prepare lists the queue, and pauses it if asked to, before its first job.
func (t *target) prepare(ctx context.Context, pause bool) error {
	if !t.ready {
		if err := t.q.Presence().Register(ctx); err != nil {
			return err
		}
		t.ready = true
	}
	if pause && !t.paused {
		if _, err := t.q.Settings().Pause(ctx); err != nil {
			return err
		}
		t.paused = true
	}
	return nil
}

// A run is one call of Plan, Move or Undo.
type run struct {
	m       *Mover
	dry     bool
	report  Report
	stays   tally
	differs tally
	pauses  map[string]bool // queues here that are paused, or would be
}

// Plan returns what Move would do at this moment, and changes nothing. Tasks that are staged count as moved.
func (m *Mover) Plan(ctx context.Context) (Report, error) { return m.start(ctx, true) }

// Move moves the tasks that are there. It first ends what an earlier call has left staged. A queue that is paused in asynq has its tasks' queue here paused before the first of them is put in; nobody resumes it.
//
// It may be called again after any error. Then the report counts what that call has done. Tasks that asynq's servers start meanwhile, and those that its producers add behind the ones that were read, are for a later call.
func (m *Mover) Move(ctx context.Context) (Report, error) { return m.start(ctx, false) }

func (m *Mover) start(ctx context.Context, dry bool) (Report, error) {
	r := m.run(dry)
	err := r.all(ctx)
	return r.end(err, "move")
}

func (m *Mover) run(dry bool) *run {
	m.targets = make(map[string]*target)
	return &run{m: m, dry: dry, stays: make(tally), differs: make(tally), pauses: make(map[string]bool)}
}

// end completes the report.
func (r *run) end(err error, what string) (Report, error) {
	r.report.Stays, r.report.Differs = r.stays.list(), r.differs.list()
	for name := range r.pauses {
		r.report.Paused = append(r.report.Paused, name)
	}
	slices.Sort(r.report.Paused)
	if err != nil {
		err = fmt.Errorf("fromasynq: %s: %w", what, err)
	}
	return r.report, err
}

// queues returns the queues of asynq that are to be moved.
func (m *Mover) queues(ctx context.Context) ([]*asynq.Queue, error) {
	names, err := asynq.Queues(ctx, m.from)
	if err != nil {
		return nil, err
	}
	for _, name := range m.cfg.Queues {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("asynq has no queue %q; it has %s", name, strings.Join(names, ", "))
		}
	}
	var queues []*asynq.Queue
	for _, name := range names {
		if len(m.cfg.Queues) == 0 || slices.Contains(m.cfg.Queues, name) {
			queues = append(queues, asynq.Open(m.from, name))
		}
	}
	return queues, nil
}

func (r *run) all(ctx context.Context) error {
	queues, err := r.m.queues(ctx)
	if err != nil {
		return err
	}
	counts := make([]asynq.Counts, len(queues))
	for i, q := range queues {
		if counts[i], err = q.Counts(ctx); err != nil {
			return err
		}
		c := &counts[i]
		r.report.Total += c.Staged
		for _, n := range c.By {
			r.report.Total += n
		}
		r.report.Active += c.Active
		r.report.Completed += c.Completed
		r.report.Groups += c.Groups
	}
	for i, q := range queues {
		if err := r.resume(ctx, q); err != nil {
			return err
		}
		for _, state := range asynq.States() {
			if err := r.state(ctx, q, state, counts[i].Paused); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume ends what is staged of a queue.
func (r *run) resume(ctx context.Context, q *asynq.Queue) error {
	for cursor := uint64(0); ; {
		staged, next, err := q.Staged(ctx, cursor)
		if err != nil {
			return err
		}
		now, err := r.m.target("default").q.Now(ctx)
		if err != nil {
			return err
		}
		groups := make(map[string]*batch)
		for i := range staged {
			s := &staged[i]
			if r.dry {
				r.report.Moved++
				continue
			}
			c, err := r.m.convert(q.Name(), &s.Task, now)
			if text, refused := reasonOf(err); refused {
				if err := r.back(ctx, q, s, text); err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
			add(groups, s.To, *s, c) // where the receipt of its name is, also if the map has changed since
		}
		for _, to := range sorted(groups) {
			if err := r.put(ctx, q, groups[to]); err != nil {
				return err
			}
		}
		r.tell()
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// A batch is tasks that go to one queue.
type batch struct {
	to     string
	staged []asynq.Staged
	jobs   []*converted
}

func add(groups map[string]*batch, to string, s asynq.Staged, c *converted) {
	b := groups[to]
	if b == nil {
		b = &batch{to: to}
		groups[to] = b
	}
	b.staged, b.jobs = append(b.staged, s), append(b.jobs, c)
}

func sorted(groups map[string]*batch) []string {
	var names []string
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// state moves the tasks of a queue that are in one state.
func (r *run) state(ctx context.Context, q *asynq.Queue, state asynq.State, paused bool) error {
	most, err := q.Len(ctx, state) // producers may add tasks as fast as these are moved
	if err != nil {
		return err
	}
	var at asynq.Cursor
	for read := int64(0); read < most; {
		tasks, seen, err := q.Tasks(ctx, state, at)
		if err != nil || seen == 0 {
			return err
		}
		read += int64(seen)
		now, err := r.m.target("default").q.Now(ctx)
		if err != nil {
			return err
		}
		r.report.Gone += int64(seen - len(tasks))
		groups := make(map[string]*batch)
		for i := range tasks {
			t := &tasks[i]
			c, err := r.m.convert(q.Name(), t, now)
			if err == nil && state == asynq.Archived {
				err = r.keeps(ctx, c, now)
			}
			if text, refused := reasonOf(err); refused {
				r.stays.add(q.Name(), kindOf(t), text)
				continue
			}
			if err != nil {
				return err
			}
			to := r.m.cfg.Namespace + ":" + c.queue
			add(groups, to, t.Stage(store.NewID(), to), c)
		}
		taken := 0
		for _, to := range sorted(groups) {
			n, err := r.batch(ctx, q, state, groups[to], paused)
			if err != nil {
				return err
			}
			taken += n
		}
		at.Stayed(seen - taken)
		r.tell()
	}
	return nil
}

func kindOf(t *asynq.Task) string {
	if t.Message == nil {
		return ""
	}
	return t.Message.Type
}

// keeps returns a reason if the queue would drop the dead job at once, or another one for it.
func (r *run) keeps(ctx context.Context, c *converted, now time.Time) error {
	t := r.m.target(c.queue)
	if err := t.ask(ctx); err != nil {
		return err
	}
	switch {
	case now.Sub(c.stored.Ended) >= t.age:
		return reason(fmt.Sprintf("it was archived before %v, and the queue keeps dead jobs no longer", t.age))
	case t.room <= 0:
		return reason("the queue keeps no more dead jobs: see signalbox queue set --keep-jobs")
	}
	t.room--
	return nil
}

// batch takes tasks and puts them in. It returns how many have left their place for good.
func (r *run) batch(ctx context.Context, q *asynq.Queue, state asynq.State, b *batch, paused bool) (int, error) {
	t := r.m.target(b.jobs[0].queue)
	if paused {
		r.pauses[t.q.Name()] = true
	}
	if r.dry {
		return 0, r.try(ctx, q, b, t)
	}
	if err := t.prepare(ctx, paused); err != nil {
		return 0, err
	}
	names, tasks := make([]string, len(b.staged)), make([]asynq.Task, len(b.staged))
	for i := range b.staged {
		names[i], tasks[i] = b.staged[i].Name, b.staged[i].Task
	}
	taken, err := q.Take(ctx, state, b.to, tasks, names)
	if err != nil {
		return 0, err
	}
	mine := &batch{to: b.to}
	for i, is := range taken {
		if !is {
			r.report.Gone++
			continue
		}
		mine.staged, mine.jobs = append(mine.staged, b.staged[i]), append(mine.jobs, b.jobs[i])
	}
	before := r.report.Back
	err = r.put(ctx, q, mine)
	return len(mine.staged) - int(r.report.Back-before), err
}

// try counts what would become of a batch.
func (r *run) try(ctx context.Context, q *asynq.Queue, b *batch, t *target) error {
	jobs := make([]store.Stored, len(b.jobs))
	for i, c := range b.jobs {
		jobs[i] = c.stored
	}
	answers, err := t.q.Transfer().Put(ctx, jobs, true)
	if err != nil {
		return err
	}
	for i, answer := range answers {
		if answer.Acted == store.Done {
			r.moved(q, b, i)
		} else {
			r.stays.add(q.Name(), kindOf(&b.staged[i].Task), refusals[answer.Acted])
		}
	}
	return nil
}

// moved counts a task that was moved, or would be.
func (r *run) moved(q *asynq.Queue, b *batch, i int) {
	r.report.Moved++
	for _, what := range b.jobs[i].differs {
		r.differs.add(q.Name(), kindOf(&b.staged[i].Task), what)
	}
}

// refusals are the reasons of a queue that takes a job not.
var refusals = map[store.Acted]string{
	store.Occupied: "the queue has a job of its ID",
	store.KeyTaken: "another job of the queue has its unique key",
	store.Gone:     "its move was given up",
}

// put puts tasks in that are staged, and forgets them there. What can't be put in is given back.
func (r *run) put(ctx context.Context, q *asynq.Queue, b *batch) error {
	if len(b.staged) == 0 {
		return nil
	}
	arrivals := make([]store.Arrival, len(b.staged))
	for i := range b.staged {
		arrivals[i] = store.Arrival{Name: b.staged[i].Name, Stored: b.jobs[i].stored}
	}
	answers, err := r.m.queueOf(b.to).Transfer().Arrive(ctx, arrivals)
	var there []asynq.Staged
	for i, answer := range answers {
		switch answer.Acted {
		case store.Done:
			r.moved(q, b, i)
			there = append(there, b.staged[i])
		case store.Changed: // it was put in before
			r.report.Ended++
			there = append(there, b.staged[i])
		case store.Occupied, store.KeyTaken, store.Gone, store.Wrong, store.Lost, store.Failed:
			if err := r.back(ctx, q, &b.staged[i], cmp.Or(refusals[answer.Acted], "the queue refuses it")); err != nil {
				return err
			}
		}
	}
	if ended := q.End(ctx, there); err == nil {
		err = ended
	}
	return err
}

// queueOf returns the queue that the staging names.
func (m *Mover) queueOf(to string) *store.Queue {
	namespace, name, _ := strings.Cut(to, ":")
	return m.targetIn(namespace, name).q
}

// back gives a staged task back to asynq, unless it has been put in. First no mover can put it in any more.
func (r *run) back(ctx context.Context, q *asynq.Queue, s *asynq.Staged, why string) error {
	answers, err := r.m.queueOf(s.To).Transfer().Refuse(ctx, []string{s.Name})
	if err != nil {
		return err
	}
	if answers[0].Acted == store.Changed {
		r.report.Ended++
		return q.End(ctx, []asynq.Staged{*s})
	}
	done, err := q.Back(ctx, s)
	switch {
	case err != nil:
		return err
	case !done:
		why = "it is staged, and can't be given back: asynq has another task of its ID"
	default:
		r.report.Back++
	}
	if why != "" {
		r.stays.add(q.Name(), kindOf(&s.Task), why)
	}
	return nil
}

// Undo gives all staged tasks back to asynq, each to its place, and forgets those that were put in already. It leaves jobs that were moved. It may be called again after any error, and while a Move runs.
func (m *Mover) Undo(ctx context.Context) (Report, error) {
	r := m.run(false)
	return r.end(r.undo(ctx), "undo")
}

func (r *run) undo(ctx context.Context) error {
	queues, err := r.m.queues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		counts, err := q.Counts(ctx)
		if err != nil {
			return err
		}
		r.report.Total += counts.Staged
	}
	for _, q := range queues {
		for cursor := uint64(0); ; {
			staged, next, err := q.Staged(ctx, cursor)
			if err != nil {
				return err
			}
			for i := range staged {
				if err := r.back(ctx, q, &staged[i], ""); err != nil {
					return err
				}
			}
			r.tell()
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// tell calls Progress.
func (r *run) tell() {
	if r.m.cfg.Progress != nil {
		r.m.cfg.Progress(r.report)
	}
}
