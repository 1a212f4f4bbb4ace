package outboxsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The test of effects: an outbox, a queue, the queue with the copies of its dead jobs, and a third one, to which an operator moves some. A worker works all of them with one
// guarded handler.
const (
	paysQueue   = "pays"
	copiesQueue = "pays-dead"
	movedQueue  = "pays-moved"
	calmKey     = "calm" // in Redis: the end of all faults
	faultsFor   = 7 * time.Second
	keepEffects = 2500 * time.Millisecond // records of effects; so some jobs outlive theirs
)

type pay struct{ N int }

func (pay) Kind() string { return "pay" }

// workerEnv has the settings of a process that is a worker, as JSON.
const workerEnv = "SIGNALBOX_SQLTEST_WORKER"

// A workerProcess is what a process that is a worker is told.
type workerProcess struct {
	Driver, DSN string
	Dialect     outbox.Dialect
	Redis       string
}

// fenced returns the dialect as package fence names it.
func fenced(d outbox.Dialect) fence.Dialect {
	return map[outbox.Dialect]fence.Dialect{outbox.PostgreSQL: fence.PostgreSQL, outbox.MariaDB: fence.MariaDB, outbox.SQLite: fence.SQLite}[d]
}

// run is a worker until the process is killed. Its handler has its effect once, and else does anything: it fails before or after that, kills its process before or after the
// commit, or buries its job. Some of the worker's calls fail before Redis has them, and the replies to some are lost.
func (p *workerProcess) run() error {
	db, err := sql.Open(p.Driver, p.DSN)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(8)
	guarded, err := fence.New(db, fenced(p.Dialect), fence.Config{Tries: 100})
	if err != nil {
		return err
	}
	plain := redis.NewClient(&redis.Options{Addr: p.Redis})
	rdb := redis.NewClient(&redis.Options{Addr: p.Redis, MaxRetries: -1})
	if plain.Exists(bg, calmKey).Val() == 0 {
		rdb.AddHook(lossy{})
	}
	w, err := worker.New(rdb, worker.Config{
		Queues:     worker.Queues{paysQueue: {Concurrency: 4, CopyDead: copiesQueue}, copiesQueue: {Concurrency: 4}, movedQueue: {Concurrency: 4}},
		SessionTTL: time.Second, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	})
	if err != nil {
		return err
	}
	arg := func(query string) string {
		if p.Dialect == outbox.PostgreSQL {
			return strings.Replace(strings.Replace(query, "?", "$1", 1), "?", "$2", 1)
		}
		return query
	}
	errBoom := errors.New("boom")
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in pay) error {
		luck := rand.IntN(100)
		if plain.Exists(ctx, calmKey).Val() > 0 {
			luck = 99
		}
		if luck < 10 {
			return signalbox.Dead(errBoom)
		}
		err := guarded.InTx(ctx, func(tx *fence.Tx) error {
			err := tx.Once(ctx, "pay", func() error {
				_, err := tx.ExecContext(ctx, arg("INSERT INTO paid (n, effect) VALUES (?, ?)"), in.N, job.EffectKey())
				return err
			})
			if err == nil && luck < 11 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return err
		})
		switch {
		case errors.Is(err, fence.ErrForgotten):
			if _, err := db.ExecContext(ctx, arg("INSERT INTO forgotten (n, effect) VALUES (?, ?)"), in.N, job.EffectKey()); err != nil || luck == 99 {
				return err
			}
			return signalbox.Dead(errBoom)
		case err != nil:
			return err
		case luck < 12:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case luck < 60:
			return signalbox.Dead(errBoom)
		case luck < 70:
			return errBoom
		}
		return nil
	}, worker.Retry(worker.ExponentialJitter(time.Millisecond, 50*time.Millisecond)))
	return w.Run(bg)
}

// lossy is a network that loses some scripts, and the replies to others.
type lossy struct{}

func (lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		luck := rand.IntN(100)
		if name := strings.ToLower(cmd.Name()); name != "evalsha" && name != "eval" {
			luck = 99
		}
		if luck < 3 {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		err := next(ctx, cmd)
		if err == nil && luck < 8 {
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// A mortal is a process that is started again when it has ended.
type mortal struct {
	start func() (*exec.Cmd, <-chan struct{})
	cmd   *exec.Cmd
	ended <-chan struct{}
}

// live starts the process, unless it runs.
func (m *mortal) live() {
	if m.ended != nil {
		select {
		case <-m.ended:
		default:
			return
		}
	}
	m.cmd, m.ended = m.start()
}

// kill returns when the process has ended.
func (m *mortal) kill() {
	_ = m.cmd.Process.Kill() // it may have killed itself
	<-m.ended
}

// remains are what is left to do, for the test's last words.
type remains struct {
	rows  bool  // rows or batches of the outbox
	jobs  int64 // in all queues
	notes int64 // whether there are some
	err   error
}

// A payment comes from an outbox, and its job has its effect by Once. It dies in the middle of things, is copied, moved, and retried by an operator, as its copies are. Meanwhile relays and workers
// are killed, replies are lost, Redis comes back with an older file, and records of effects are swept. No payment is made twice, and each of a committed transaction is made, unless its job was told
// that nobody knows.
func TestEffectsFromOutboxToCopies(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		for statement := range strings.SplitSeq(fence.Schema(fenced(b.dialect)), ";\n") {
			if strings.TrimSpace(statement) != "" {
				b.exec(statement)
			}
		}
		b.exec("CREATE TABLE paid (n BIGINT NOT NULL, effect VARCHAR(700) NOT NULL)")
		b.exec("CREATE TABLE forgotten (n BIGINT NOT NULL, effect VARCHAR(700) NOT NULL)")
		guarded, err := fence.New(b.db, fenced(b.dialect), fence.Config{Tries: 100})
		if err != nil {
			t.Fatal(err)
		}
		srv := redistest.New(t)
		rdb := srv.Client()
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			t.Fatal(err)
		}
		relay := func() (*exec.Cmd, <-chan struct{}) {
			return b.child(relayEnv, relayProcess{Driver: b.driver, DSN: b.dsn, Dialect: b.dialect, Redis: srv.Addr(), TakeOver: 200 * time.Millisecond})
		}
		work := func() (*exec.Cmd, <-chan struct{}) {
			return b.child(workerEnv, workerProcess{b.driver, b.dsn, b.dialect, srv.Addr()})
		}
		relays, workers := []*mortal{{start: relay}, {start: relay}}, []*mortal{{start: work}, {start: work}}
		ensure := func() {
			for i := range relays {
				relays[i].live()
				workers[i].live()
			}
		}
		t.Cleanup(func() {
			for i := range relays {
				relays[i].kill()
				workers[i].kill()
			}
		})
		queues := []string{paysQueue, copiesQueue, movedQueue}
		act := func(queue string, a inspect.Action, most int) {
			_, err := ins.DoAll(bg, queue, inspect.Filter{State: signalbox.StateDead, Limit: most}, a, inspect.Bulk{})
			if err != nil && !errors.Is(err, inspect.ErrNoQueue) {
				t.Logf("%T in %s: %v", a, queue, err) // Redis is away
			}
		}
		ensure()
		box, committed, n := b.box(outbox.Config{}), make(map[int]bool), 0
		saved, back, backAgain := false, false, false
		for begin := time.Now(); time.Since(begin) < faultsFor; {
			switch luck := rand.IntN(100); {
			case luck < 40:
				n++
				opts := []scheduler.EnqueueOption{scheduler.Queue(paysQueue), scheduler.MaxAttempts(1 + rand.IntN(3))}
				switch rand.IntN(4) {
				case 0:
					opts = append(opts, scheduler.EffectKey(fmt.Sprint("payment-", n)))
				case 1:
					opts = append(opts, scheduler.ID(fmt.Sprint("pay-", n)))
				case 2:
					opts = append(opts, scheduler.After(time.Duration(rand.IntN(1000))*time.Millisecond))
				}
				err := retry(b, func(tx *sql.Tx) (err error) {
					if _, err = box.Enqueue(bg, tx, pay{n}, opts...); err == nil && rand.IntN(4) == 0 {
						err = errNo
					}
					return err
				})
				if committed[n] = err == nil; err != nil && !errors.Is(err, errNo) {
					t.Error(err)
				}
			case luck < 70:
				act(queues[rand.IntN(3)], inspect.Retry{}, 1+rand.IntN(20))
			case luck < 75:
				act(copiesQueue, inspect.Move{To: movedQueue}, 1+rand.IntN(5))
			case luck < 80:
				if _, err := guarded.Sweep(bg, keepEffects); err != nil {
					t.Error(err)
				}
			case luck < 84:
				workers[rand.IntN(2)].kill()
			case luck < 88:
				relays[rand.IntN(2)].kill()
			case luck < 90 && !saved:
				saved = rdb.Save(bg).Err() == nil
			case luck < 92 && saved && !backAgain && time.Since(begin) > faultsFor/3:
				backAgain = back
				back = true
				srv.Kill()
				srv.Restart()
				saved = false
			}
			ensure()
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // the pace of the operator
		}
		var left remains
		done := func() bool {
			ensure()
			left = remains{}
			if !settled(b, 0) {
				left.rows = true
				return false
			}
			for _, name := range queues {
				act(name, inspect.Retry{}, 0)
				q, err := ins.Queue(bg, name)
				if errors.Is(err, inspect.ErrNoQueue) {
					continue
				}
				if left.err = err; err != nil {
					return false
				}
				left.jobs += q.Ready + q.Scheduled + q.Running + q.Dead
			}
			left.notes = rdb.Exists(bg, "signalbox:{default:"+paysQueue+"}:notes").Val()
			return left == remains{}
		}
		if err := rdb.Set(bg, calmKey, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		for _, w := range workers { // the next ones lose no calls, and copy at once what these have left
			w.kill()
		}
		redistest.Eventually(t, done, "the payments are not done: %v", &left)

		text := "SELECT n, COUNT(*), COUNT(DISTINCT effect) FROM %s GROUP BY n"
		paid, forgotten := make(map[int]int), make(map[int]int)
		for table, into := range map[string]map[int]int{"paid": paid, "forgotten": forgotten} {
			rows, err := b.db.Query(fmt.Sprintf(text, table))
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var n, times, keys int
				if err := rows.Scan(&n, &times, &keys); err != nil {
					t.Fatal(err)
				}
				if into[n] = times; keys != 1 {
					t.Errorf("payment %d has %d effect keys in %s", n, keys, table)
				}
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
		}
		lost, twice, strange, unknown := 0, 0, 0, 0
		for i := 1; i <= n; i++ {
			switch {
			case !committed[i] && paid[i]+forgotten[i] > 0:
				strange++
			case paid[i] > 1:
				twice++
			case committed[i] && paid[i] == 0 && forgotten[i] > 0:
				unknown++
			case committed[i] && paid[i] == 0:
				lost++
			}
		}
		if lost+twice+strange > 0 {
			t.Errorf("of %d payments %d are lost, %d are made more than once, %d were rolled back and are made", n, lost, twice, strange)
		}
		totals, err := ins.Totals(bg, paysQueue)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("payments=%d lost=%d twice=%d strange=%d unknown=%d forgotten=%d back=%v died=%d", n, lost, twice, strange, unknown, len(forgotten), back, totals.Dead)
	})
}
