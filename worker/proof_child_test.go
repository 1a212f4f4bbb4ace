package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// proofConfig configures a process of a proof.
type proofConfig struct {
	Role            string // "producer", "worker" or "scheduler"
	Number          int    // of this process among those of its role
	Addrs, Queues   []string
	Ledger          string
	Jobs, Lines     int // of all producers
	Producers       int
	Kills           int // of processes, after which the last fifth of each producer's jobs comes in: on a slow machine, all might have run before
	TTL             time.Duration
	Rate, GroupRate signalbox.Rate
}

// An errand is a job of a proof: number N of a producer. A tick of a cron entry has no N, and comes from fromCron. One that comes from fromAll has a
// unique key, which any producer may give to a job, and no group.
type errand struct {
	From int    `json:"from"`
	N    int    `json:"n"`
	Line string `json:"line"`
	Prio int    `json:"prio"`
}

const (
	fromCron = -1
	fromAll  = -2
)

func (errand) Kind() string { return "errand" }

// shared returns an errand with one of 24 unique keys that all producers use: the line's name.
func (cfg *proofConfig) shared(n int) scheduler.Item {
	line := (n + 3*cfg.Number) % 24
	e := errand{From: fromAll, N: n, Line: fmt.Sprint("u", line)}
	return scheduler.Item{Args: e, Options: []scheduler.EnqueueOption{
		scheduler.Queue(cfg.Queues[line%len(cfg.Queues)]), scheduler.Unique(e.Line, scheduler.UntilEnded),
	}}
}

// errand returns job n of a producer, and how it is enqueued.
func (cfg *proofConfig) errand(n int) (errand, []scheduler.EnqueueOption) {
	line := n * 7919 % cfg.Lines
	e := errand{From: cfg.Number, N: n, Line: fmt.Sprint("l", line), Prio: n / 3 % 3}
	return e, []scheduler.EnqueueOption{
		scheduler.Queue(cfg.Queues[line%len(cfg.Queues)]), scheduler.Serial(e.Line),
		scheduler.Priority([]signalbox.Priority{signalbox.PriorityNormal, signalbox.PriorityHigh, signalbox.PriorityLow}[e.Prio]),
		scheduler.Unique(fmt.Sprintf("p%d-%d", cfg.Number, n), scheduler.UntilEnded),
		scheduler.ID(fmt.Sprintf("p%d-%d", cfg.Number, n)), scheduler.IfAbsent(),
		// The job's ID stays taken. So a call that is made again by the next process enqueues nothing twice.
		scheduler.Retain(time.Hour),
	}
}

// main is the main function of the process.
func (cfg *proofConfig) main() error {
	ledger, err := os.OpenFile(cfg.Ledger, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cfg.Addrs, ContextTimeoutEnabled: true, IsClusterMode: len(cfg.Addrs) > 1})
	defer rdb.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch cfg.Role {
	case "producer":
		return cfg.produce(ctx, rdb, ledger)
	case "scheduler":
		return cfg.schedule(ctx, rdb)
	}
	return cfg.work(ctx, rdb, ledger)
}

func quietLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// produce enqueues the producer's jobs in order, and says in the ledger how far it has come. It begins where the process before it ended: the last
// call of that one may have been lost, so its jobs are enqueued again.
func (cfg *proofConfig) produce(ctx context.Context, rdb redis.UniversalClient, ledger *os.File) error {
	const batch = 25
	text, err := os.ReadFile(cfg.Ledger)
	if err != nil {
		return err
	}
	at := 0
	for _, line := range bytes.Split(text, []byte("\n")) {
		var from, n int
		if _, err := fmt.Sscanf(string(line), "put %d %d", &from, &n); err == nil && from == cfg.Number {
			at = max(at, n)
		}
	}
	s, err := scheduler.New(rdb, scheduler.Config{Logger: quietLogger()})
	if err != nil {
		return err
	}
	each := cfg.Jobs / cfg.Producers
	last := each
	if cfg.Number == 0 {
		last += cfg.Jobs - each*cfg.Producers
	}
	for at < last {
		if 5*at >= 4*last {
			if err := cfg.killed(ctx); err != nil {
				return err
			}
		}
		var items []scheduler.Item
		for n := at; n < min(at+batch, last); n++ {
			e, opts := cfg.errand(n)
			items = append(items, scheduler.Item{Args: e, Options: opts})
		}
		at += len(items)
		items = append(items, cfg.shared(at/batch))
		if _, err := s.EnqueueMany(ctx, items); err != nil {
			return err
		}
		fmt.Fprintf(ledger, "put %d %d\n", cfg.Number, at)
	}
	return nil
}

// killed waits until the ledger has as many kills as are wanted.
func (cfg *proofConfig) killed(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for cfg.Kills > 0 {
		text, err := os.ReadFile(cfg.Ledger)
		if err != nil {
			return err
		}
		if bytes.Count(text, []byte("kill ")) >= cfg.Kills {
			cfg.Kills = 0 // it needn't look again
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// schedule runs cron entries of a second each. Their jobs are of groups, too.
func (cfg *proofConfig) schedule(ctx context.Context, rdb redis.UniversalClient) error {
	s, err := scheduler.New(rdb, scheduler.Config{Logger: quietLogger()})
	if err != nil {
		return err
	}
	for i := range 6 {
		line := fmt.Sprint("cron-", i)
		err := s.Cron(line, "@every 1s", errand{From: fromCron, Line: line}, scheduler.Queue(cfg.Queues[i%len(cfg.Queues)]), scheduler.Serial(line))
		if err != nil {
			return err
		}
	}
	return s.Run(ctx)
}

// work runs jobs. Each handler writes a line when it begins and one when it ends. Some jobs fail the first time.
func (cfg *proofConfig) work(ctx context.Context, rdb redis.UniversalClient, ledger *os.File) error {
	queues := make(worker.Queues)
	for _, name := range cfg.Queues {
		queues[name] = worker.Queue{Concurrency: 32, Limits: signalbox.Limits{Rate: cfg.Rate}, GroupLimits: signalbox.Limits{Rate: cfg.GroupRate}}
	}
	w, err := worker.New(rdb, worker.Config{Queues: queues, SessionTTL: cfg.TTL, Logger: quietLogger()})
	if err != nil {
		return err
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, e errand) error {
		say := func(what string) {
			n := strconv.Itoa(e.N)
			if e.From == fromCron {
				n = strconv.FormatInt(job.ScheduledAt.UnixMilli(), 10)
			}
			fmt.Fprintf(ledger, "%s %d %s %s %d %d %s %s %d %d\n",
				what, os.Getpid(), job.Queue, e.Line, e.From, e.Prio, n, job.ID, job.Token, job.ClaimedAt.UnixMicro())
		}
		say("start")
		takes := time.Duration(e.N%4) * time.Millisecond
		if e.From == fromAll {
			takes = 30 * time.Millisecond // so that another one with the key would run beside it
		}
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
		switch {
		case ctx.Err() != nil:
			say("lost")
			return context.Cause(ctx)
		case (e.N%37 == 5 || e.From == fromAll) && job.Attempt == 1:
			say("failed")
			return errors.New("once more")
		}
		say("done")
		return nil
	}, worker.Retry(worker.Constant(20*time.Millisecond)))
	return w.Run(ctx)
}

// A proofDelivery is a handler that began.
type proofDelivery struct {
	pid         int
	queue, line string
	job         string
	alone       bool // it has no group
	claimed     time.Time
}

// A proofLedger is what a ledger says.
type proofLedger struct {
	wrong      []string
	deliveries int
	lost       int // handlers whose leases had ended
	shared     int // jobs with unique keys of all producers that are done
	starts     []proofDelivery
	killed     map[int]bool
	open       map[string]*proofDelivery // by line: what runs
	begun      map[string]int            // by line, producer and priority: the number of the last job that began for the first time
	seen, ends map[string]bool           // jobs that began, and those that are done
	tick       map[string]string         // by entry and time: the job's ID
}

func newProofLedger() *proofLedger {
	return &proofLedger{
		killed: make(map[int]bool), open: make(map[string]*proofDelivery), begun: make(map[string]int), seen: make(map[string]bool),
		ends: make(map[string]bool), tick: make(map[string]string),
	}
}

// add adds a line. Lines come in the order of the events.
func (l *proofLedger) add(text string) error {
	words := strings.Fields(text)
	switch {
	case len(words) == 3 && words[0] == "put":
		return nil
	case len(words) == 2 && words[0] == "kill":
		pid, err := strconv.Atoi(words[1])
		l.killed[pid] = true
		return err
	case len(words) != 10:
		return errors.New("unknown")
	}
	var numbers [5]int
	for i, at := range []int{1, 4, 6, 8, 9} {
		n, err := strconv.Atoi(words[at])
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	pid, from, n, claimed := numbers[0], numbers[1], numbers[2], numbers[4]
	d := &proofDelivery{pid: pid, queue: words[2], line: words[3], job: words[7], alone: from == fromAll, claimed: time.UnixMicro(int64(claimed))}
	line := d.queue + " " + d.line
	if words[0] != "start" {
		l.end(words[0], line, d, from)
		return nil
	}
	l.deliveries++
	l.starts = append(l.starts, *d)
	if other := l.open[line]; other != nil && !l.killed[other.pid] {
		l.wrong = append(l.wrong, fmt.Sprintf("job %s of %s begins in process %d while %s runs in process %d, which is alive", d.job, line, pid, other.job, other.pid))
	}
	l.open[line] = d
	if from == fromCron {
		at := fmt.Sprint(line, " ", n)
		if other := l.tick[at]; other != "" && other != d.job {
			l.wrong = append(l.wrong, fmt.Sprintf("jobs %s and %s are of the same tick, %s", d.job, other, at))
		}
		l.tick[at] = d.job
	} else if from >= 0 && !l.seen[d.job] {
		of := fmt.Sprint(line, " ", from, " ", words[5])
		if last, ok := l.begun[of]; ok && n < last {
			l.wrong = append(l.wrong, fmt.Sprintf("job %s of %s begins after number %d of the same producer and priority", d.job, line, last))
		}
		l.begun[of] = n
	}
	l.seen[d.job] = true
	return nil
}

// end notes that a handler has ended.
func (l *proofLedger) end(how, line string, d *proofDelivery, from int) {
	if open := l.open[line]; open != nil && open.pid == d.pid && open.job == d.job {
		delete(l.open, line)
	}
	switch {
	case how == "lost":
		l.lost++
		// Its lease had ended: another job may have begun beside it.
		l.wrong = slices.DeleteFunc(l.wrong, func(text string) bool {
			return strings.HasSuffix(text, fmt.Sprintf("while %s runs in process %d, which is alive", d.job, d.pid))
		})
	case how == "done" && from >= 0:
		l.ends[d.job] = true
	case how == "done" && from == fromAll:
		l.shared++
	}
}

// done returns how many jobs of producers are done, ticks how many ticks began.
func (l *proofLedger) done() int  { return len(l.ends) }
func (l *proofLedger) ticks() int { return len(l.tick) }

// early returns by how much a claim came too early for the rate of a queue or group, which it is for group to say. A claim for which that is "" doesn't count.
func (l *proofLedger) early(r signalbox.Rate, group func(proofDelivery) string) (most time.Duration) {
	if r.Jobs == 0 {
		return 0
	}
	starts := slices.DeleteFunc(slices.Clone(l.starts), func(d proofDelivery) bool { return group(d) == "" })
	slices.SortStableFunc(starts, byClaim)
	step := float64(r.Per.Microseconds()) / float64(r.Jobs)
	next := make(map[string]float64)
	for _, d := range starts {
		now := float64(d.claimed.UnixMicro())
		at := max(next[group(d)], now)
		early := at - step*float64(r.Burst-1) - now
		if us := math.Floor(early); us > 1 {
			most = max(most, time.Duration(us)*time.Microsecond)
		}
		next[group(d)] = at + step
	}
	return most
}
