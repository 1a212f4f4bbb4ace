// Package outbox enqueues a job if and only if a database transaction commits.
//
// [Outbox.Enqueue] writes the job into a table, in the caller's transaction. A [Relay] moves committed rows to Redis. Any number of processes may run
// one: there is no leader.
//
//	box, err := outbox.New(outbox.PostgreSQL, outbox.Config{})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	// change what there is to change
//	id, err := box.Enqueue(ctx, tx, Welcome{UserID: 42}, scheduler.Queue("mail"))
//	err = tx.Commit()
//
// The tables are those of [Schema]. docs/effects/outbox.md is the guide, with pgx and gorm.
//
// # What is promised
//
// The job of each transaction that commits is enqueued, and no other. While the database and Redis keep their memory it is enqueued once, also if relays
// are killed or stopped at any point. Relays number their batches, and Redis keeps the number of the last one beside the jobs, in the same script.
//
// If Redis loses what it knew (a restart from an old file, a failover), the relays see it within a second or so and send again what they sent in the last
// [RelayConfig].Window. Jobs of these batches that had completed run again, with the same [signalbox.Job.EffectKey]. What Redis lost from before that, and a database
// that went back, are reported: as an error in the log and in the metric signalbox.outbox.repairs. After the latter, jobs may be enqueued twice.
//
// # Order
//
// Rows have no order by default: transactions don't commit in the order in which they write. With [Config].Ordered, the jobs of a group ([scheduler.Group],
// [scheduler.Serial]) are enqueued in the order in which their transactions commit. For that, such transactions wait for each other from Enqueue on until they end. [Sequence]
// returns the number of a job in this order.
package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/litetx"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/scheduler"
)

// An Execer is the caller's transaction: a *sql.Tx, or a *sql.Conn with a transaction begun, gorm's Statement.ConnPool, or a few lines around a pgx.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Config configures an [Outbox]. The zero value is usable. The fields that scheduler.Config also has mean the same here.
type Config struct {
	// Namespace is that of the queues. Default "default".
	Namespace string
	// Codec encodes the args. The default is JSON.
	Codec signalbox.Codec
	// Ordered says that jobs of a group are enqueued in the order in which their transactions commit. It makes Enqueue of a job with a group wait until
	// other transactions have ended that enqueued jobs of the group, or of one of the groups that share its lock: there are 1,024 locks. These jobs have a [Sequence].
	Ordered bool
	// TracerProvider makes the spans. The default is the global one.
	TracerProvider trace.TracerProvider
	// Propagator writes the trace context into the jobs' headers. The default is the global one.
	Propagator propagation.TextMapPropagator
	// Baggage names the members of the baggage that travel with the jobs of a trace. The default is none.
	Baggage []string
}

// An Outbox writes jobs into transactions. It is safe for concurrent use.
type Outbox struct {
	dialect     Dialect
	make        parcelseam.Maker
	ordered     bool
	order       string
	insert, row string // the statement that writes rows, and what stands in it for each
}

// The shards of a queue, and how many locks there are for its groups. A change of these numbers needs a new version of the tables.
const (
	loose  = parcelseam.Loose
	strict = parcelseam.Strict
	slots  = 1024
)

// New returns an outbox for a kind of database. The error names every wrong argument and field, and wraps [signalbox.ErrInvalid].
func New(d Dialect, c Config) (*Outbox, error) {
	maker, err := parcelseam.New(scheduler.Config{
		Namespace: c.Namespace, Codec: c.Codec, TracerProvider: c.TracerProvider, Propagator: c.Propagator, Baggage: c.Baggage,
	})
	if err := errors.Join(d.validate(), err); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	order := "INSERT INTO signalbox_outbox_order (slot, n) VALUES (?, 1) ON CONFLICT (slot) DO UPDATE SET n = signalbox_outbox_order.n + 1"
	if d == MariaDB {
		order = "INSERT INTO signalbox_outbox_order (slot, n) VALUES (?, 1) ON DUPLICATE KEY UPDATE n = n + 1"
	}
	shard := "?"
	if d == MariaDB {
		// A deadlock ends the transaction on the server. A caller who overlooks the error would enqueue by a statement that commits by itself. So without a
		// transaction the row has no shard, which is error 1048. INSERT ... SELECT ... WHERE would hold a lock of the table, since it may have many rows.
		shard = "IF(@@in_transaction = 1, ?, NULL)"
	}
	return &Outbox{
		dialect: d, make: maker, ordered: c.Ordered, order: d.sql(order),
		insert: "INSERT INTO signalbox_outbox (shard, id, class, due, born, envelope) VALUES ", row: "(" + shard + ", ?, ?, ?, ?, ?)",
	}, nil
}

// Enqueue writes a job into the transaction tx, and returns the job's ID. The job is enqueued soon after tx commits. If tx is rolled back, it never is.
//
// A *sql.DB is refused. In MariaDB and SQLite the error is an [ErrNoTransaction] if there is no transaction, or none any more: there some errors, such as a deadlock, end
// it on the server, and the next statement would commit by itself. PostgreSQL refuses all statements after an error. But after a COMMIT or ROLLBACK that was run by hand in
// PostgreSQL, Enqueue commits by itself, without an error: end tx by its own methods. And of a *sql.Conn, or another type with the method,
// only you know there whether it is in a transaction.
//
// args and opts are those of [scheduler.Scheduler.Enqueue]. The times of After, Debounce and ExpireAfter count from this call on, by this process's clock.
// WaitReplicas and WaitAOF are errors. WaitForRoom has no effect: a row waits until the queue has room.
// A job that Redis leaves out, since another one has its ID or its unique key, is gone; the metric signalbox.outbox.relayed counts it.
//
// Enqueue never commits tx and never rolls it back. If an argument is wrong, the error wraps [signalbox.ErrInvalid] and tx is untouched. After any other error
// roll tx back: most databases refuse to commit it, and MariaDB may have rolled it back already. [ErrSchema] says that the tables are missing or of another version.
func (b *Outbox) Enqueue(ctx context.Context, tx Execer, args signalbox.Args, opts ...scheduler.EnqueueOption) (id string, err error) {
	if err := refuse(tx); err != nil {
		return "", fmt.Errorf("outbox: enqueue: %w", err)
	}
	now := time.Now()
	id, err = b.make(ctx, args, opts, now, func(ctx context.Context, m parcelseam.Made) error {
		if err := b.fits(m); err != nil {
			return err
		}
		return explain(b.dialect, b.write(ctx, tx, []parcelseam.Made{m}, now))
	})
	if err != nil {
		return "", fmt.Errorf("outbox: enqueue: %w", err)
	}
	return id, nil
}

// EnqueueMany writes many jobs into the transaction tx, each with opts and its own options, in few statements: up to 500 jobs, or about 1 MiB, in each. It returns their
// IDs in the order of the items. All else is as of [Outbox.Enqueue]: the jobs are enqueued soon after tx commits, all of them or none.
//
// All jobs are made before the first is written. So if an argument is wrong, tx is untouched: the error wraps [signalbox.ErrInvalid], and names the first such item by its
// place, from 0. After any other error roll tx back, as some may be written. All jobs are in memory until it returns; for more than some 100,000 call it several times in one
// transaction.
//
// With [Config].Ordered jobs of a group keep the order of the items. The locks of the groups are taken in one order, whatever that of the items: two calls that
// are the first of their transactions don't deadlock.
func (b *Outbox) EnqueueMany(ctx context.Context, tx Execer, items []scheduler.Item, opts ...scheduler.BulkOption) (ids []string, err error) {
	if err := refuse(tx); err != nil {
		return nil, fmt.Errorf("outbox: enqueue many: %w", err)
	}
	now := time.Now()
	made := make([]parcelseam.Made, 0, len(items))
	ids = make([]string, 0, len(items))
	for i, item := range items {
		all := make([]scheduler.EnqueueOption, 0, len(opts)+len(item.Options))
		for _, opt := range opts {
			all = append(all, opt)
		}
		all = append(all, item.Options...)
		id, err := b.make(ctx, item.Args, all, now, func(_ context.Context, m parcelseam.Made) error {
			made = append(made, m)
			return b.fits(m)
		})
		if err != nil {
			return nil, fmt.Errorf("outbox: enqueue many: item %d: %w", i, err)
		}
		ids = append(ids, id)
	}
	if len(made) == 0 {
		return ids, nil
	}
	if err := explain(b.dialect, b.write(ctx, tx, made, now)); err != nil {
		return nil, fmt.Errorf("outbox: enqueue many: %w", err)
	}
	return ids, nil
}

// inOrder reports whether a job keeps the order of its group.
func (b *Outbox) inOrder(m *parcelseam.Made) bool { return b.ordered && m.Group != "" }

// fits returns an error for a job that is too large for what the relay adds to it.
func (b *Outbox) fits(m parcelseam.Made) error {
	if !b.inOrder(&m) {
		return nil
	}
	return m.Parcel.HasRoomForSequence()
}

// refuse returns an error for what can't be a transaction.
func refuse(tx Execer) error {
	if tx == nil {
		return fmt.Errorf("%w tx: it is nil; want a transaction", signalbox.ErrInvalid)
	}
	if _, ok := tx.(*sql.DB); ok {
		return fmt.Errorf("%w tx: it is a *sql.DB; want a transaction, since nothing can be rolled back without one", signalbox.ErrInvalid)
	}
	return nil
}

// Bounds of a statement that writes rows.
const (
	maxInsertRows  = 500
	maxInsertBytes = 1 << 20 // of the envelopes, unless one row alone has more
)

// write writes rows, after it has taken the locks of their groups.
func (b *Outbox) write(ctx context.Context, tx Execer, made []parcelseam.Made, now time.Time) error {
	if b.dialect == SQLite {
		if within, err := litetx.Within(ctx, tx); err != nil {
			return err
		} else if !within {
			return ErrNoTransaction
		}
	}
	shards := make([]string, len(made))
	var locks []int64
	for i := range made {
		m := &made[i]
		number := rand.IntN(loose)
		if b.inOrder(m) {
			h := hash(m.Namespace, m.Queue, m.Group)
			number = loose + int(h%strict)
			locks = append(locks, int64(h/strict%slots))
		}
		shards[i] = shardName(m.Namespace, m.Queue, number)
	}
	slices.Sort(locks)
	for _, slot := range slices.Compact(locks) {
		if _, err := tx.ExecContext(ctx, b.order, slot); err != nil {
			return err
		}
	}
	for begin := 0; begin < len(made); {
		args, bytes, n := []any(nil), 0, 0
		for ; n < maxInsertRows && begin+n < len(made); n++ {
			m := &made[begin+n]
			if bytes += len(m.Parcel.Envelope); n > 0 && bytes > maxInsertBytes {
				break
			}
			due := int64(0)
			if !m.Parcel.Due.IsZero() {
				due = max(m.Parcel.Due.UnixMicro(), 1)
			}
			args = append(args, shards[begin+n], m.Parcel.ID, m.Parcel.Class, due, now.UnixMicro(), m.Parcel.Envelope)
			if begin == 0 && b.dialect == MariaDB { // see New: of several rows it would take the missing shard of one for an empty one, unless its mode is strict
				n++
				break
			}
		}
		if _, err := tx.ExecContext(ctx, b.dialect.sql(b.insert+b.row+strings.Repeat(", "+b.row, n-1)), args...); err != nil {
			return err
		}
		begin += n
	}
	return nil
}

func hash(namespace, queue, group string) uint32 {
	h := fnv.New32a()
	for _, s := range []string{namespace, queue, group} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum32()
}

// shardName returns the name of a shard, as the tables have it.
func shardName(namespace, queue string, number int) string {
	return parcelseam.ShardName(namespace, queue, number)
}

// A shard is a part of the rows of a queue.
type shard struct {
	name             string
	namespace, queue string
	number           int
}

// parseShard returns the shard of that name. ok is false if it is none.
func parseShard(name string) (s shard, ok bool) {
	namespace, queue, number, ok := parcelseam.ParseShard(name)
	return shard{name: name, namespace: namespace, queue: queue, number: number}, ok
}

func (s shard) strict() bool { return parcelseam.IsStrict(s.number) }
