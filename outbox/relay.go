package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/deadline"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Defaults of a [RelayConfig].
const (
	DefaultPoll        = 200 * time.Millisecond
	DefaultWindow      = 10 * time.Minute
	DefaultConcurrency = 4
	DefaultTakeOver    = 5 * time.Second
)

const (
	lookEvery    = time.Second      // how often the lanes of shards are looked at
	statsEvery   = 5 * time.Second  // how often a queue's numbers are published
	statsTTL     = time.Minute      // how long they stay in Redis
	countedMost  = 100_000          // how many waiting rows of a shard are counted
	listEvery    = 10 * time.Minute // how often a queue is put into the namespace's registry
	callTimeout  = 10 * time.Second // of a call to Redis, and of a transaction
	batchBytes   = 2 << 20          // of the envelopes of a batch, unless one row alone has more
	maxTries     = 5                // after so many refusals a batch is split
	fullPause    = 250 * time.Millisecond
	maxBatchRows = 500
	maxTakeOver  = time.Minute
)

// A Waker says when there may be rows to relay, so that they don't wait for the next look. Package outbox/pgnotify has one for PostgreSQL.
type Waker interface {
	// Wait returns nil when rows may have come since the last call. It returns an error if it can't tell, or if ctx has ended.
	Wait(ctx context.Context) error
}

// RelayConfig configures a [Relay]. The zero value is usable but for Dialect.
type RelayConfig struct {
	// Dialect is that of the database.
	Dialect Dialect
	// Poll is how often an idle relay looks for rows. 10 ms to 1 min. Default [DefaultPoll].
	Poll time.Duration
	// Window is how long rows stay in the database after they were sent. If Redis loses its memory of no longer than that, they are sent again. 1 s to 24 h. Default [DefaultWindow].
	Window time.Duration
	// Concurrency is how many shards are worked on at a time, 1 to 64. Each needs a connection of the database. Default [DefaultConcurrency].
	Concurrency int
	// TakeOver is after how long another relay sends a batch that this one has taken, and not finished. 100 ms to 1 min. Default [DefaultTakeOver].
	// A batch that two relays send is enqueued once all the same.
	TakeOver time.Duration
	// Waker ends the pause between two looks. The default, nil, is none.
	Waker Waker
	// Logger gets the relay's log records. The default is [slog.Default].
	Logger *slog.Logger
	// MeterProvider takes the metrics. The default is the global one.
	MeterProvider metric.MeterProvider
}

// A Relay moves committed rows from the database to Redis.
type Relay struct {
	db      *sql.DB
	rdb     redis.UniversalClient
	cfg     RelayConfig
	log     *slog.Logger
	metrics *telemetry.OutboxMetrics
	box     string // the name of the outbox in Redis; set by Run

	mu     sync.Mutex
	shards map[string]*shardState
	queues map[string]*store.Queue // by namespace:queue
	listed map[string]time.Time
	depths map[string]telemetry.OutboxDepth

	troubles troubles
	enqueued atomic.Int64 // rows that this relay has enqueued
}

// shardState is what a relay remembers of a shard.
type shardState struct {
	shard
	busy     bool      // a goroutine works on it
	after    time.Time // don't work on it before
	refusal  refusal   // of a batch whose rows Redis refused
	refusals int       // how often in a row Redis refused a batch whose rows are not the cause
}

// NewRelay returns a relay from db to rdb: a client of a single Redis, of Sentinel or of a Cluster. It connects to neither. The error names every wrong
// argument and field, and wraps [signalbox.ErrInvalid]. db must be the primary.
func NewRelay(db *sql.DB, rdb redis.UniversalClient, c RelayConfig) (*Relay, error) {
	errs := []error{c.Dialect.validate(), server.CheckClient(rdb)}
	if db == nil {
		errs = append(errs, fmt.Errorf("%w db: it is nil", signalbox.ErrInvalid))
	}
	within := func(field string, d *time.Duration, least, most, or time.Duration) {
		if *d = cmp.Or(*d, or); *d < least || *d > most {
			errs = append(errs, fmt.Errorf("%w %s: %v; want %v to %v", signalbox.ErrInvalid, field, *d, least, most))
		}
	}
	within("Poll", &c.Poll, 10*time.Millisecond, time.Minute, DefaultPoll)
	within("Window", &c.Window, time.Second, 24*time.Hour, DefaultWindow)
	within("TakeOver", &c.TakeOver, 100*time.Millisecond, maxTakeOver, DefaultTakeOver)
	if c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency); c.Concurrency < 1 || c.Concurrency > 64 {
		errs = append(errs, fmt.Errorf("%w Concurrency: %d; want 1 to 64", signalbox.ErrInvalid, c.Concurrency))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Relay{
		db: db, rdb: rdb, cfg: c, log: c.Logger, metrics: telemetry.NewOutboxMetrics(c.MeterProvider),
		shards: make(map[string]*shardState), queues: make(map[string]*store.Queue), listed: make(map[string]time.Time),
		depths: make(map[string]telemetry.OutboxDepth),
	}, nil
}

// Run relays until ctx ends, and returns nil then. It waits for a database and for a Redis that aren't there. It returns an error that wraps [ErrSchema] if
// the database lacks the tables, and an error if it is no database of the Dialect. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	r.says(ctx)
	deadline.Warn(r.rdb, r.log)
	began := time.Now()
	defer func() {
		r.log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "outbox: the relay has stopped",
			slog.String("ran", time.Since(began).Round(time.Millisecond).String()), slog.Int64("enqueued", r.enqueued.Load()))
	}()
	stop := r.metrics.ObserveDepths(r.observed)
	defer stop()
	var helpers sync.WaitGroup
	woken := make(chan struct{}, 1)
	helpers.Go(func() { r.every(ctx, lookEvery, "look at Redis", r.look) })
	helpers.Go(func() { r.every(ctx, statsEvery, "publish the backlog", r.publish) })
	if r.cfg.Waker != nil {
		helpers.Go(func() { r.wake(ctx, woken) })
	}
	defer helpers.Wait()

	free := make(chan struct{}, r.cfg.Concurrency)
	idle := make(chan struct{}, 1)
	defer func() { // the goroutines that work end soon, as ctx has ended
		for range cap(free) {
			free <- struct{}{}
		}
	}()
	for ctx.Err() == nil {
		started, err := r.start(ctx, free, idle)
		if r.failed(ctx, "look for rows", err) {
			started = false
		}
		pause := r.cfg.Poll - rand.N(r.cfg.Poll/4+1)
		if started {
			pause = r.cfg.Poll // the goroutines look for more by themselves
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-woken:
		case <-idle:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// begin reads the name of the outbox, and begins a transaction: only the right dialect can.
func (r *Relay) begin(ctx context.Context) error {
	for n := 0; ; n++ {
		var found int64
		err := r.db.QueryRowContext(ctx, "SELECT id, version FROM signalbox_outbox_box WHERE one = 1").Scan(&r.box, &found)
		if err == nil {
			err = r.inTx(ctx, func(context.Context, dbTx) error { return nil })
		}
		switch err = explain(r.cfg.Dialect, err); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("outbox: relay: %w: the table signalbox_outbox_box is empty; run the statements of outbox.Schema", ErrSchema)
		case errors.Is(err, ErrSchema), errors.Is(err, errDialect):
			return fmt.Errorf("outbox: relay: %w", err)
		case err == nil && found != version:
			return fmt.Errorf("outbox: relay: %w: the tables are of version %d; this release needs version %d", ErrSchema, found, version)
		case err == nil:
			return nil
		}
		r.failed(ctx, "reach the database", err)
		r.sleep(ctx, min(time.Second, 20*time.Millisecond<<min(n, 6)))
	}
}

// says logs what the relay is about to do.
func (r *Relay) says(ctx context.Context) {
	const most = 10 // of the queues' names
	shards, queues := 0, make(map[string]bool)
	err := r.plain().each(ctx, "SELECT shard FROM signalbox_outbox_shard", nil, func(scan func(...any) error) (bool, error) {
		var name string
		err := scan(&name)
		if s, ok := parseShard(name); ok {
			shards++
			queues[s.namespace+":"+s.queue] = true
		}
		return true, err
	})
	names := slices.Sorted(maps.Keys(queues))
	text := strings.Join(names[:min(len(names), most)], " ")
	if len(names) > most {
		text = fmt.Sprintf("%s and %d more", text, len(names)-most)
	}
	r.log.LogAttrs(ctx, slog.LevelInfo, "outbox: the relay runs", slog.String("dialect", string(r.cfg.Dialect)), slog.String("table", "signalbox_outbox"), slog.String("outbox", r.box),
		slog.Int("shards", shards), slog.String("queues", text), slog.String("window", r.cfg.Window.String()), slog.Int("concurrency", r.cfg.Concurrency))
	r.failed(ctx, "read the shards", err)
}

// start starts goroutines for shards that have something to send. It reports whether it started any.
func (r *Relay) start(ctx context.Context, free, idle chan struct{}) (started bool, err error) {
	names, err := r.waiting(ctx)
	if err != nil {
		return false, err
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if _, ok := parseShard(name); !ok {
			r.failed(ctx, "put away rows of no shard", r.stray(ctx, name))
			continue
		}
		s := r.claim(name)
		if s == nil {
			continue
		}
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			r.release(s, 0)
			return started, nil
		}
		started = true
		go func() {
			pause := r.drain(ctx, s)
			r.release(s, pause)
			<-free
			if pause == 0 {
				select {
				case idle <- struct{}{}:
				default:
				}
			}
		}()
	}
	return started, nil
}

// claim returns the shard of that name for a goroutine to work on, or nil.
func (r *Relay) claim(name string) *shardState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shards[name]
	if s == nil {
		parsed, ok := parseShard(name)
		if !ok {
			return nil
		}
		s = &shardState{shard: parsed}
		r.shards[name] = s
	}
	if s.busy || time.Now().Before(s.after) {
		return nil
	}
	s.busy = true
	return s
}

func (r *Relay) release(s *shardState, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.busy, s.after = false, time.Now().Add(pause)
}

// queue returns the queue of a shard. From time to time it puts the queue into its namespace's registry.
func (r *Relay) queue(ctx context.Context, s shard) *store.Queue {
	name := s.namespace + ":" + s.queue
	r.mu.Lock()
	q := r.queues[name]
	if q == nil {
		q = store.New(r.rdb, s.namespace, s.queue)
		r.queues[name] = q
	}
	due := time.Since(r.listed[name]) > listEvery
	if due {
		r.listed[name] = time.Now()
	}
	r.mu.Unlock()
	if due {
		_ = q.Presence().Register(ctx) // the registry is for tools: there is a next time
	}
	return q
}

// every calls do at once and then so often, until ctx ends.
func (r *Relay) every(ctx context.Context, d time.Duration, what string, do func(context.Context) error) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.failed(ctx, what, do(ctx))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// wake passes on what the waker says.
func (r *Relay) wake(ctx context.Context, woken chan<- struct{}) {
	for ctx.Err() == nil {
		if err := r.cfg.Waker.Wait(ctx); err != nil {
			r.failed(ctx, "wait for the waker", err)
			r.sleep(ctx, time.Second)
			continue
		}
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

func (r *Relay) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
