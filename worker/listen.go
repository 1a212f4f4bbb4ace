package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A listener hears messages of Redis for the worker's queues, also while all slots are full. For that it has one subscription on
// each server that has queues of the worker: one, but in a Cluster. A message is only a hint to make a call. What holds is in keys,
// and renewals look at them too. So a lost message costs time, and nothing else.
type listener struct {
	rdb     redis.UniversalClient // with connections of its own, if the caller's client is of a kind that we know
	log     *slog.Logger
	queues  []*queue
	sharded bool          // Redis is a Cluster
	stirred chan struct{} // a session has begun or ended, or a subscription has failed
	done    chan struct{} // run has ended

	mu     sync.Mutex
	ears   map[string]*ear // by the name of the server
	failed bool            // a subscription has ended that never began
	said   map[string]time.Time
}

// An ear is a subscription on one server. The listener's mu guards its fields.
type ear struct {
	sub      *store.Subscription
	controls map[string]*queue   // by channel
	sessions map[string]*session // by channel
	begun    bool                // the server has answered
}

// listen returns the listener of the queues. sharded says that Redis is a Cluster.
func listen(rdb redis.UniversalClient, log *slog.Logger, queues []*queue, sharded bool) *listener {
	l := &listener{
		rdb: rdb, log: log, queues: queues, sharded: sharded,
		stirred: make(chan struct{}, 1), done: make(chan struct{}), ears: make(map[string]*ear), said: make(map[string]time.Time),
	}
	for _, q := range queues {
		q.listener = l
	}
	return l
}

// lookEvery is how often an idle queue makes a call whose renewals come less often than that: a message may have been lost unnoticed.
const lookEvery = 10 * time.Second

// rarelyRenewed reports whether the sessions' renewals, which say whether there is work, come less often than lookEvery.
func rarelyRenewed(ttl time.Duration) bool { return ttl/3 > lookEvery }

// lookRarely makes idle queues look that are rarely renewed.
func (l *listener) lookRarely() {
	for _, q := range l.queues {
		q.mu.Lock()
		idle := q.idle()
		q.mu.Unlock()
		if idle && rarelyRenewed(q.w.cfg.SessionTTL) {
			q.hint(false)
		}
	}
}

// update is called when a queue has another session. It doesn't block.
func (l *listener) update() {
	select {
	case l.stirred <- struct{}{}:
	default:
	}
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	defer close(l.done)
	var hearing sync.WaitGroup
	defer hearing.Wait()
	retry := newBackoff(10 * time.Second)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			l.lookRarely()
			continue
		case <-l.stirred:
		}
		l.mu.Lock()
		failed := l.failed
		l.failed = false
		l.mu.Unlock()
		if !failed {
			retry.Reset()
		} else {
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry.NextBackOff()):
			}
		}
		l.tune(ctx, func(server string, e *ear) { hearing.Go(func() { l.hear(ctx, server, e) }) })
	}
}

// tune makes the subscriptions those that the queues' sessions need. It calls start for each new one.
func (l *listener) tune(ctx context.Context, start func(server string, e *ear)) {
	wanted := make(map[string]*ear)
	for _, q := range l.queues {
		q.mu.Lock()
		s := q.session
		q.mu.Unlock()
		if s == nil {
			continue // it opens one, and calls update
		}
		server, rdb, err := q.own.Channels().Server(ctx, l.sharded)
		if err != nil {
			l.fail(err)
			continue
		}
		e := wanted[server]
		if e == nil {
			e = &ear{sub: store.Subscribe(ctx, rdb, l.sharded), controls: make(map[string]*queue), sessions: make(map[string]*session)}
			wanted[server] = e
		}
		e.controls[q.store.Channels().Control()] = q
		e.sessions[q.store.Channels().Of(s.id)] = s
	}
	for server, e := range wanted {
		l.mu.Lock()
		old := l.ears[server]
		if old == nil {
			l.ears[server] = e
			l.mu.Unlock()
			start(server, e)
			continue
		}
		controls, sessions := missing(old.controls, e.controls), missing(old.sessions, e.sessions)
		over := missing(e.sessions, old.sessions)
		old.controls, old.sessions = e.controls, e.sessions
		l.mu.Unlock()
		if len(controls)+len(sessions) > 0 && old.sub.Add(ctx, controls, sessions) != nil || len(over) > 0 && old.sub.Drop(ctx, over) != nil {
			old.sub.Close() // hear makes another
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for server, e := range l.ears {
		if wanted[server] == nil {
			e.sub.Close()
		}
	}
}

// missing returns the keys of b that a doesn't have.
func missing[V any](a, b map[string]V) (keys []string) {
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// hear acts on what comes from one server, until the subscription fails or ctx ends.
func (l *listener) hear(ctx context.Context, server string, e *ear) {
	defer context.AfterFunc(ctx, e.sub.Close)() // ends what it waits for
	l.mu.Lock()
	controls, sessions := missing(nil, e.controls), missing(nil, e.sessions)
	l.mu.Unlock()
	err := e.sub.Add(ctx, controls, sessions)
	for err == nil {
		var m store.Message
		if m, err = e.sub.Next(ctx, func(channel string) bool { return l.wants(e, channel) }); err == nil {
			l.heard(e, m)
		}
	}
	e.sub.Close()
	l.mu.Lock()
	delete(l.ears, server)
	deaf, begun := e.sessions, e.begun
	l.mu.Unlock()
	for _, s := range deaf {
		s.queue.listening(s, "")
	}
	if ctx.Err() != nil {
		return
	}
	store.SeekServers(ctx, l.rdb)
	if begun {
		l.log.Debug("signalbox: a subscription was lost, and is made anew", "error", err)
		l.update()
		return
	}
	l.fail(err)
}

// fail has the listener try again in a moment. It logs the error as a warning if Redis refuses the subscription, at most once a
// minute: nothing else says so. If Redis is away, the queues' calls log that.
func (l *listener) fail(err error) {
	l.mu.Lock()
	l.failed = true
	refused, _ := errors.AsType[redis.Error](err)
	warn := refused != nil && !redis.HasErrorPrefix(err, "MOVED") && sayAgain(l.said, "refused")
	l.mu.Unlock()
	level := slog.LevelDebug
	if warn {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "signalbox: no subscription could be made; the worker hears of jobs and settings late, when it renews its sessions", "error", err)
	l.update()
}

// wants reports whether a channel is one that the ear is to hear.
func (l *listener) wants(e *ear, channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return e.controls[channel] != nil || e.sessions[channel] != nil
}

// heard acts on a message.
func (l *listener) heard(e *ear, m store.Message) {
	l.mu.Lock()
	q, s := e.controls[m.Channel], e.sessions[m.Channel]
	e.begun = e.begun || m.Kind == store.Subscribed
	l.mu.Unlock()
	switch {
	case q != nil && m.Kind == store.Look:
		q.keeper.look()
		q.hint(true)
	case q != nil && m.Kind == store.Subscribed:
		q.keeper.look() // a message may have been missed before
	case s == nil:
	case m.Kind == store.Subscribed:
		s.queue.listening(s, s.queue.store.Channels().Address(s.id, l.sharded))
	case m.Kind == store.Work:
		s.queue.hint(true)
	case m.Kind == store.Cancel:
		s.queue.claimer.cancel(m.Deliveries())
	case m.Kind == store.StandBy:
		s.queue.claimer.standBy()
	}
}

// distrust makes the subscription anew that should hear the session's messages: the server says that nobody does.
func (l *listener) distrust(s *session) {
	channel := s.queue.store.Channels().Of(s.id)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.ears {
		if e.sessions[channel] != nil {
			e.sub.Close()
		}
	}
}

// listening notes at which address the session's wake-ups are heard from now on; "": at none. Messages may have been missed
// before. So a call is made, which registers the session, and cancelled jobs are looked for.
func (q *queue) listening(s *session, address string) {
	q.mu.Lock()
	s.address = address
	if address != "" {
		q.claimer.unsure = q.dispatch.calls > 0
		if s.running > 0 {
			q.keeper.lookForCancels()
		}
	}
	q.mu.Unlock()
	if address != "" {
		q.hint(true)
	}
}

// standByFor is how long a worker has to make a call when it was woken. Then another one looks.
const standByFor = 750 * time.Millisecond

// standBy makes a call after standByFor, unless a lane makes one before: another worker was woken, and may have been stopped.
func (cl *claimer) standBy() {
	cl.q.mu.Lock()
	defer cl.q.mu.Unlock()
	cl.stoodBy = cl.asked
	if cl.onCall || cl.q.dispatch.stopping {
		return
	}
	cl.onCall = true
	time.AfterFunc(standByFor, func() {
		cl.q.mu.Lock()
		cl.onCall = false
		look := cl.asked == cl.stoodBy
		cl.q.mu.Unlock()
		if look {
			cl.q.hint(false)
		}
	})
}
