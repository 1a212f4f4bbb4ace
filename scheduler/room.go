package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// WaitForRoom makes the call wait while the queue has its maximum length (see [signalbox.ErrQueueFull]), until there is room or ctx ends. Then the error wraps
// ErrQueueFull and that of ctx, and the job is not enqueued. Config.EnqueueTimeout bounds each try, and not the wait: without a deadline the call waits as long as it takes.
//
// [Batch.AddSeq] then puts in as many jobs as there is room for, and waits with the others. Without WaitForRoom each of its calls goes in whole, or not at all.
//
// What makes room wakes the call: a job that ends or is deleted, and a larger maximum. It also looks every 10 s. In a program one call of those that wait tries at a time,
// in the order in which they came; between programs, and before calls that have just come, there is no order. The Redis user needs +subscribe.
//
// A handler that waits for room in its own queue keeps the place of its own job. If all handlers do so, nobody makes room: give their ctx a deadline.
func WaitForRoom() BulkOption {
	return forBulk(func(o *options) { o.waits = true })
}

// full reports whether the queue had no room for a job of a chunk that Redis has run.
func (c *chunk) full() bool { return slices.Contains(c.fates, store.Full) }

// refuse sets the error of the jobs of a chunk for which the queue had no room, and of all later jobs for its queue.
func (b *bulk) refuse(c *chunk) {
	err := c.refusal
	if err == nil {
		err = c.queue.lanes.refused(&c.request)
	}
	refused := func(j int) bool { return c.fates[j] == store.Full }
	c.failAll(err, refused)
	if c.queue.err == nil {
		c.queue.err = err
	}
	var in, out kinds
	for j, name := range c.names {
		if refused(j) {
			out = out.add(name)
		} else {
			in = in.add(name)
		}
	}
	c.kinds = in
	c.measure(nil)
	c.kinds = out
	c.measure(err)
}

// await sends those jobs of a chunk again for which there was no room, until all are in. The error is that of those that remain.
func (b *bulk) await(c *chunk) error {
	try := func() error {
		r, places := c.rest()
		c.queue.lanes.submit(b.ctx, r)
		switch done, maybe := c.queue.lanes.wait(b.ctx, r); {
		case !done && maybe:
			return cut(b.ctx)
		case !done:
			return notSent(b.ctx)
		case r.err != nil && !errors.Is(r.err, ErrNotDurable):
			return r.err
		}
		for j, place := range places {
			c.fates[place] = r.fates[j]
		}
		for _, m := range r.met {
			c.met = append(c.met, met{places[m.item], m.Met})
		}
		slices.SortFunc(c.met, func(a, b met) int { return a.item - b.item })
		if r.err != nil { // those that are in are not durable
			c.failAll(r.err, func(j int) bool {
				i, there := slices.BinarySearch(places, j)
				return there && r.fates[i] != store.Full
			})
			if c.queue.err == nil {
				c.queue.err = r.err
			}
		}
		if c.full() {
			return c.queue.lanes.refused(r)
		}
		return nil
	}
	return b.s.awaitRoom(b.ctx, c.queue.lanes.queue, c.queue.lanes.refused(&c.request), try)
}

// rest returns a request with those jobs of a chunk for which there was no room, and their places in the chunk.
func (c *chunk) rest() (r *request, places []int) {
	r = &request{done: make(chan struct{}, 1)}
	for j, fate := range c.fates {
		if fate == store.Full {
			places = append(places, j)
			r.items = append(r.items, c.items[j])
			r.bytes += c.items[j].Size()
		}
	}
	r.fates = make([]store.Fate, len(places))
	return r, places
}

const (
	// roomLook is how often a call that waits for room looks without being told.
	roomLook = 10 * time.Second
	// roomRetry is how long a subscription that failed waits at first.
	roomRetry = 100 * time.Millisecond
)

// rooms are the queues for which calls wait.
type rooms struct {
	mu  sync.Mutex
	all map[string]*room // by queue
}

// A room is a queue for whose room calls wait. It has a subscription while there are any.
type room struct {
	queue   *store.Queue
	log     func(msg string, args ...any)
	waiting int           // calls; guarded by the lock of rooms
	turn    chan struct{} // has a value while one of the calls may try
	news    chan struct{} // has a value if there may be room
	cancel  context.CancelFunc
}

// awaitRoom calls try when there may be room in the queue, until it returns another error than signalbox.ErrQueueFull or an unsentError, or
// nil. It returns that error. If ctx ends before, the error wraps the last one of try that says how full the queue is, which is err at first.
func (s *Scheduler) awaitRoom(ctx context.Context, queue *store.Queue, err error, try func() error) error {
	r := s.rooms.join(s, queue)
	defer s.rooms.leave(r)
	var away error // why Redis couldn't be reached at the last try
	over := func() error {
		over := fmt.Errorf("%w; the call waited for room until its context ended: %w", err, ended(ctx))
		if away != nil {
			over = fmt.Errorf("%w; at the last try %w", over, away)
		}
		return over
	}
	select {
	case r.turn <- struct{}{}: // in the order in which the calls came
	case <-ctx.Done():
		return over()
	}
	defer func() {
		r.tell() // the next call may have room as well
		<-r.turn
	}()
	look := time.NewTicker(s.roomLook)
	defer look.Stop()
	for {
		select {
		case <-r.news:
		case <-look.C:
		case <-ctx.Done():
			return over()
		}
		if ctx.Err() != nil {
			return over()
		}
		last := try()
		switch unsent, ok := errors.AsType[unsentError](last); {
		case ok && ctx.Err() == nil: // Redis is away. When it is back there is news
			away = unsent.err
			continue
		case ok:
			return over()
		case !errors.Is(last, signalbox.ErrQueueFull):
			return last
		case ctx.Err() == nil:
			err, away = last, nil
		}
	}
}

// join adds a call to those that wait. The first one begins a subscription. When that stands, there is news.
func (rs *rooms) join(s *Scheduler, queue *store.Queue) *room {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[queue.Name()]
	if r == nil {
		r = &room{queue: queue, log: s.log.Warn, turn: make(chan struct{}, 1), news: make(chan struct{}, 1)}
		var ctx context.Context
		ctx, r.cancel = context.WithCancel(context.Background())
		go r.listen(ctx)
		if rs.all == nil {
			rs.all = make(map[string]*room)
		}
		rs.all[queue.Name()] = r
	}
	r.waiting++
	return r
}

// leave takes a call out. The last one ends the subscription.
func (rs *rooms) leave(r *room) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.waiting--; r.waiting == 0 {
		r.cancel()
		delete(rs.all, r.queue.Name())
	}
}

// tell notes that there may be room.
func (r *room) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// listen notes what the queue's channel says, until ctx ends. A subscription that fails is made anew. As messages may be lost meanwhile, a new one
// is news.
func (r *room) listen(ctx context.Context) {
	warned := false
	for wait := roomRetry; ctx.Err() == nil; wait = min(2*wait, roomLook) {
		err := r.hear(ctx, func() { wait = roomRetry })
		if server.IsDenied(err) && !warned {
			warned = true
			r.log("scheduler: the Redis user may not hear when a full queue has room, so calls that wait look every 10 s: it needs +subscribe and the channels signalbox:*",
				"queue", r.queue.Name(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// hear makes one subscription, and returns why it ended. It calls stands when Redis has confirmed it.
func (r *room) hear(ctx context.Context, stands func()) error {
	_, rdb, err := r.queue.Channels().Server(ctx, false)
	if err != nil {
		return err
	}
	sub := store.Subscribe(ctx, rdb, false)
	defer context.AfterFunc(ctx, sub.Close)()
	defer sub.Close()
	channel := r.queue.Channels().Room()
	if err := sub.Add(ctx, []string{channel}, nil); err != nil {
		store.SeekServers(ctx, rdb)
		return err
	}
	for {
		m, err := sub.Next(ctx, func(string) bool { return true })
		if err != nil {
			return err
		}
		if m.Kind == store.Subscribed {
			stands()
		}
		r.tell()
	}
}
