package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// An EndedError is the error of a [Wait] for a job that has ended without completing: it is dead, or was cancelled. Somebody may still have it run again.
type EndedError struct {
	Status Status // of the job at its end; Status.LastError says why, in the words of its handler or of the operator
}

// Error names the job and its state. It doesn't have the last error, which may say what the caller's users mustn't know.
func (e *EndedError) Error() string {
	return fmt.Sprintf("scheduler: job %s hasn't completed: it is %s", e.Status.Ref, e.Status.State)
}

// Wait waits until a job has ended, and returns its result as [ReadResult] does. If nobody asks for a result, T is struct{}: then a job without one will do.
//
// The job must be kept when it completes, by [Retain] or by the CompletedRetention of its queue: what is kept is the answer, so it doesn't matter whether the job ends before, while or after
// this call looks. It must be kept until the call has looked, which is some ms after the end; if messages of Redis are lost, up to 10 s.
//
// Redis tells the call of the end, so nothing is polled. A look every 10 s is for messages that were lost. The calls of a scheduler that wait for jobs of one queue share a connection
// to hear of ends, which is closed when the last of them returns, and look together. If Redis is away, they go on when it is back.
//
// The error
//   - is an [*EndedError] if the job has ended otherwise: it is dead, expired or cancelled;
//   - wraps [ErrNotFound] if nothing is known of the job: it was deleted, moved to another queue or dropped, or never was there;
//   - wraps [ErrNoResult] if its handler has set no result, and T isn't struct{}; or it is one of the others of ReadResult;
//   - wraps that of ctx if it ends before. Without a deadline the call waits as long as it takes;
//   - wraps [signalbox.ErrInvalid] if the job hasn't ended and won't be kept when it completes (if it has, ErrNotFound), if the reference isn't one, or if it is of another namespace than the scheduler's;
//   - or is that of Redis, if it refuses the call for another reason than a passing one.
//
// The user of Redis needs +ssubscribe and +sunsubscribe beside the rights of a producer, or +subscribe and +unsubscribe if the server has no sharded channels. Without them the call looks every 10 s, and the log says so.
func Wait[T any](ctx context.Context, s *Scheduler, ref Ref) (T, error) {
	st, err := s.wait(ctx, ref)
	if err != nil {
		var none T
		return none, err
	}
	return resultOf[T](st)
}

// wait waits until a job has ended, and returns how it is then.
func (s *Scheduler) wait(ctx context.Context, ref Ref) (Status, error) {
	q, err := s.home(ref)
	if err != nil {
		return Status{}, err
	}
	one := &wait{ref: ref, ended: make(chan struct{})}
	w := s.watches.join(s, q, one)
	defer s.watches.leave(w, one)
	select {
	case <-one.ended:
	case <-ctx.Done():
		select {
		case <-one.ended: // both have: the answer is worth more
		default:
			err := fmt.Errorf("its context ended before the job did: %w", ended(ctx))
			if away := w.outage(); away != nil {
				err = fmt.Errorf("%w; at the last look %w", err, away)
			}
			return Status{}, fmt.Errorf("scheduler: wait for job %s: %w", ref, err)
		}
	}
	if one.err != nil {
		return Status{}, fmt.Errorf("scheduler: wait for job %s: %w", ref, one.err)
	}
	return one.status, nil
}

const (
	// endLook is how often it is looked without a message whether jobs have ended.
	endLook = 10 * time.Second
	// endRetry is how long a look or a subscription that failed waits at first.
	endRetry = 100 * time.Millisecond
)

// A wait is a call that waits for the end of a job.
type wait struct {
	ref    Ref
	asked  bool          // a look has begun since the call did: what it finds counts for the call. It is guarded by the lock of the watch
	ended  chan struct{} // is closed when the rest is there
	status Status
	err    error
}

// watches are those of the queues for whose jobs calls wait.
type watches struct {
	mu  sync.Mutex
	all map[string]*watch // by queue
}

// A watch is for the jobs of a queue whose ends calls wait for. It is there while there are any calls, with three goroutines, which end when the last call leaves: one hears messages,
// one says which are to be heard, and one looks. What follows mu is guarded by it.
type watch struct {
	s      *Scheduler
	queue  *store.Queue
	prefix string // of channels, before the job's ID
	cancel context.CancelFunc
	news   chan struct{} // has a value if there is something in due
	moves  chan struct{} // has a value if there is something in changed
	calls  int           // guarded by the lock of watches

	mu       sync.Mutex
	waiting  map[string][]*wait  // by the job's ID
	due      map[string]struct{} // jobs to be looked at
	changed  map[string]struct{} // jobs whose channels may have to be followed, or no more
	sub      *store.Subscription // nil: there is none
	standing bool                // Redis has confirmed a channel of it
	followed map[string]bool     // jobs whose channels it has; whether Redis has confirmed them
	dropped  map[string]int      // of how many ends of a job's channel the answers are still to come
	plain    bool                // the server has no sharded channels
	away     error               // why Redis couldn't be asked at the last look
}

// join adds a call to those that wait.
func (ws *watches) join(s *Scheduler, queue *store.Queue, one *wait) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[queue.Name()]
	if w == nil {
		w = &watch{
			s: s, queue: queue, prefix: queue.Channels().End(""), news: make(chan struct{}, 1), moves: make(chan struct{}, 1),
			waiting: make(map[string][]*wait), due: make(map[string]struct{}), changed: make(map[string]struct{}),
		}
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(context.Background())
		go w.look(ctx)
		go w.followAll(ctx)
		go w.listen(ctx)
		if ws.all == nil {
			ws.all = make(map[string]*watch)
		}
		ws.all[queue.Name()] = w
	}
	w.calls++
	w.add(one)
	return w
}

// leave takes a call out. The last one ends the watch.
func (ws *watches) leave(w *watch, one *wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.remove(one)
	if w.calls--; w.calls == 0 {
		w.cancel()
		delete(ws.all, w.queue.Name())
	}
}

// add has a call wait. Its job is looked at when Redis has confirmed the channel: so no end is missed. If there is no subscription, it is looked at now as well.
func (w *watch) add(one *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := one.ref.ID
	w.waiting[id] = append(w.waiting[id], one)
	w.changed[id] = struct{}{}
	if _, heard := w.followed[id]; heard || !w.standing {
		w.due[id] = struct{}{}
	}
	w.tell()
}

// remove has a call wait no more, if it still does.
func (w *watch) remove(one *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := one.ref.ID
	if left := slices.DeleteFunc(w.waiting[id], func(other *wait) bool { return other == one }); len(left) > 0 {
		w.waiting[id] = left
		return
	}
	w.forget(id)
}

// forget notes that no call waits for a job.
func (w *watch) forget(id string) {
	delete(w.waiting, id)
	delete(w.due, id)
	w.changed[id] = struct{}{}
	w.tell()
}

// tell notes that there is something to do.
func (w *watch) tell() {
	for _, to := range []chan struct{}{w.news, w.moves} {
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// outage returns why Redis couldn't be asked at the last look, or nil.
func (w *watch) outage() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away
}

// look looks whether jobs that calls wait for have ended: when it is told to, after a failure, and every now and then. It ends with ctx.
func (w *watch) look(ctx context.Context) {
	often, retry := time.NewTicker(w.s.endLook), time.NewTimer(time.Hour)
	defer often.Stop()
	defer retry.Stop()
	pause := endRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.news:
		case <-retry.C:
		case <-often.C:
			w.mu.Lock()
			for id := range w.waiting {
				w.due[id] = struct{}{}
			}
			w.mu.Unlock()
		}
		if w.lookAtDue(ctx) {
			pause = endRetry
			continue
		}
		retry.Reset(pause)
		pause = min(2*pause, endLook)
	}
}

// followAll follows the channels of jobs that calls wait for, until ctx ends. It may take long, while the subscription connects: looks don't wait for it.
func (w *watch) followAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.moves:
			w.follow(ctx)
		}
	}
}

// follow brings the channels of the subscription up to date.
func (w *watch) follow(ctx context.Context) {
	w.mu.Lock()
	sub := w.sub
	if sub == nil {
		w.mu.Unlock()
		return // listen marks them all when there is one
	}
	var add, drop []string
	for id := range w.changed {
		_, has := w.followed[id]
		switch wanted := len(w.waiting[id]) > 0; {
		case wanted && !has:
			w.followed[id] = false
			add = append(add, w.prefix+id)
		case !wanted && has:
			delete(w.followed, id)
			w.dropped[id]++
			drop = append(drop, w.prefix+id)
		}
	}
	clear(w.changed)
	w.mu.Unlock()
	for some := range slices.Chunk(drop, looks.MaxEnded) {
		if sub.Unfollow(ctx, some) != nil {
			sub.Close() // listen makes another one
			return
		}
	}
	for some := range slices.Chunk(add, looks.MaxEnded) {
		if sub.Follow(ctx, some) != nil {
			sub.Close()
			return
		}
	}
}

// lookAtDue looks at jobs that are due for a look, and has the next call do the rest: so the look every 10 s has its turn, too. It reports whether Redis has answered.
func (w *watch) lookAtDue(ctx context.Context) bool {
	ids := w.take()
	if len(ids) == 0 {
		return true
	}
	call, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	ends, err := w.queue.Looks().Ended(call, ids)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = nil
	if err != nil && (unwritable(err) || judge(err) == again) && !errors.Is(err, redis.ErrClosed) {
		w.away = err
		w.put(ids)
		return false
	}
	if err != nil {
		err = explain(err)
	} else {
		w.put(ids[len(ends):])
	}
	for i, id := range ids {
		switch {
		case err != nil:
			w.end(id, nil, err)
		case i < len(ends):
			w.judge(id, &ends[i])
		}
	}
	if len(w.due) > 0 {
		w.tell()
	}
	return true
}

// take takes some of the jobs that are due.
func (w *watch) take() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.due {
		if len(ids) == looks.MaxEnded {
			break
		}
		ids = append(ids, id)
		delete(w.due, id)
		for _, one := range w.waiting[id] {
			one.asked = true
		}
	}
	return ids
}

// put has jobs that were taken be due again, if a call still waits for them.
func (w *watch) put(ids []string) {
	for _, id := range ids {
		if len(w.waiting[id]) > 0 {
			w.due[id] = struct{}{}
		}
	}
}

// judge ends the calls that wait for a job, if what was found out about it ends them.
func (w *watch) judge(id string, e *looks.End) {
	switch e.State {
	case looks.Live:
	case looks.Over:
		w.end(id, &e.View, e.View.Err)
	case looks.Unkept:
		w.end(id, nil, fmt.Errorf("%w: the job isn't kept when it completes, so nobody can say how it ended: enqueue it with Retain, or give its queue a CompletedRetention", signalbox.ErrInvalid))
	case looks.NoJob:
		w.end(id, nil, errGone)
	}
}

// end ends the calls that wait for a job. Those that began during the look wait on for another one: the job may have come, or run again, before they did.
func (w *watch) end(id string, v *looks.View, err error) {
	var later []*wait
	for _, one := range w.waiting[id] {
		if !one.asked {
			later = append(later, one)
			continue
		}
		if one.err = err; err == nil {
			one.status = statusOf(one.ref, v, w.s.codec)
		}
		close(one.ended)
	}
	if len(later) > 0 {
		w.waiting[id] = later
		return
	}
	w.forget(id)
}

// listen has jobs looked at when a message says so, until ctx ends. A subscription that fails is made anew. As messages may be lost meanwhile, all jobs are looked at then.
func (w *watch) listen(ctx context.Context) {
	warned := false
	for pause := endRetry; ctx.Err() == nil; pause = min(2*pause, endLook) {
		err := w.hear(ctx, func() { pause = endRetry })
		switch {
		case err != nil && strings.Contains(err.Error(), "unknown command") && !w.plain:
			w.plain = true
			continue
		case server.IsDenied(err) && !warned:
			warned = true
			w.s.log.Warn("scheduler: the Redis user may not hear when jobs end, so calls that wait for it look every 10 s: it needs +ssubscribe, +sunsubscribe and the channels signalbox:*",
				"queue", w.queue.Name(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// hear makes one subscription, and returns why it ended. It calls stands when Redis has confirmed a channel of it.
func (w *watch) hear(ctx context.Context, stands func()) error {
	_, rdb, err := w.queue.Channels().Server(ctx, false)
	if err != nil {
		return err
	}
	sub := store.Subscribe(ctx, rdb, !w.plain)
	defer context.AfterFunc(ctx, sub.Close)()
	defer sub.Close()
	w.mu.Lock()
	w.sub, w.followed, w.dropped = sub, make(map[string]bool), make(map[string]int)
	for id := range maps.Keys(w.waiting) {
		w.changed[id] = struct{}{}
	}
	w.mu.Unlock()
	w.tell()
	for {
		m, err := sub.Next(ctx, w.wanted)
		w.mu.Lock()
		if err != nil {
			w.sub, w.standing, w.followed = nil, false, nil
			w.mu.Unlock()
			store.SeekServers(ctx, rdb)
			return err
		}
		id := strings.TrimPrefix(m.Channel, w.prefix)
		if _, has := w.followed[id]; has && m.Kind == store.Subscribed {
			w.standing, w.followed[id] = true, true
			stands()
		}
		w.put([]string{id})
		w.mu.Unlock()
		w.tell()
	}
}

// wanted reports whether a channel that the server has ended the subscription to should be followed on: nobody has asked for its end.
func (w *watch) wanted(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := strings.TrimPrefix(channel, w.prefix)
	if w.dropped[id] > 0 {
		if w.dropped[id]--; w.dropped[id] == 0 {
			delete(w.dropped, id)
		}
		return false
	}
	return true
}
