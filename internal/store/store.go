// Package store keeps the jobs of a queue in Redis. It has one Go method, and one Lua script,
// per transition of a job; scheduler and worker are built on it and see no key, no script
// and no byte of a record.
//
// Every call that changes something can be made again when its reply was lost: calls that
// are not idempotent by nature go through a [Lane].
package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

const (
	// MaxBatch is the most jobs in one call. An enqueue has four arguments a job, and some servers take
	// less than 4,000 in a call.
	MaxBatch = 950
	// MaxSpecial is the most jobs in one call that have a group or a unique key, or may expire. Such a job takes Redis several times as long as a
	// plain one.
	MaxSpecial = 160
	// SuspectAt is the number of crashes from which on a job is a suspect.
	SuspectAt = facts.SuspectAt
	// CrashLimit is the number of crashes at which a job is dead, unless the worker that takes it back says another.
	CrashLimit = facts.CrashLimit
	// SurvivedAt is how many deliveries in a row that end by themselves end a job's crashes.
	SurvivedAt = 5
	// MaxCrashLimit is the highest number that it can say: a record counts no more crashes.
	MaxCrashLimit = 255
)

// A Queue is a queue in Redis. It is safe for concurrent use.
type Queue struct {
	rdb       redis.UniversalClient
	namespace string // "" for DefaultNamespace
	name      string
	keys      layout.Keys
	kept      signalbox.Retention // what the settings don't say; replaced by tests only
	room      int                 // bytes of records that a call returns; replaced by tests only
	looked    int                 // IDs that a call of Jobs looks at; replaced by tests only
	patience  int                 // in which round Move takes over a job from another mover; replaced by tests only
	worker    string              // that makes the calls; ""
	operator  string              // who sets settings, as scripts want it
	crashes   int                 // at which a job is dead
	ttl       time.Duration       // of the sessions whose jobs it takes back
	times     *Times              // that its renewals take along; nil: none
}

// New returns the queue of that name, which ValidateQueue accepts, in a namespace that ValidateNamespace accepts.
func New(rdb redis.UniversalClient, namespace, name string) *Queue {
	if namespace == layout.DefaultNamespace {
		namespace = ""
	}
	return &Queue{rdb: rdb, namespace: namespace, name: name, keys: layout.KeysOf(namespace, name), kept: settings.DefaultRetention, room: MaxBytes, looked: looks.MaxLooked, patience: takeOverAt, crashes: CrashLimit, operator: settings.OperatorName(""), ttl: 30 * time.Second}
}

// Site returns where the queue is.
func (q *Queue) Site() *facts.Site {
	return &facts.Site{Client: q.rdb, Name: q.name, Keys: q.keys, Readable: settings.Readable}
}

// Settings returns the queue for those who read its settings or make them.
func (q *Queue) Settings() *settings.Settings {
	return &settings.Settings{Site: q.Site(), Operator: q.operator}
}

// Looks returns the queue for those who look at it.
func (q *Queue) Looks() *looks.Looks {
	return &looks.Looks{Site: q.Site(), Namespace: q.namespace, Room: q.room, Looked: q.looked}
}

// On returns the queue for calls over another client.
func (q *Queue) On(rdb redis.UniversalClient) *Queue {
	other := *q
	other.rdb = rdb
	return &other
}

// As returns the queue for calls of the worker of that ID. What the queue's settings say of the worker holds for them.
func (q *Queue) As(worker string) *Queue {
	as := *q
	as.worker = worker
	return &as
}

// WithCrashLimit returns the queue for calls that take jobs back: at that many crashes, 1 to MaxCrashLimit, a job is dead. Below
// CrashLimit a job can die of crashes that others caused.
func (q *Queue) WithCrashLimit(n int) *Queue {
	limited := *q
	limited.crashes = n
	return &limited
}

// WithSessionTTL returns the queue for calls that take jobs back: how long its workers' sessions live from each renewal. It says when a process died.
func (q *Queue) WithSessionTTL(ttl time.Duration) *Queue {
	of := *q
	of.ttl = ttl
	return &of
}

// Apart returns for how long a suspect that has begun keeps others out of its session, which lives for ttl from each renewal. A worker renews every third
// of ttl. If a job has killed its process at once, Redis has last heard of that process less than this before it missed it.
func Apart(ttl time.Duration) time.Duration { return ttl * 5 / 12 }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Namespace returns the name of the queue's namespace.
func (q *Queue) Namespace() string { return cmp.Or(q.namespace, layout.DefaultNamespace) }

// Key returns one of the queue's keys. All of them are in one slot of a Cluster.
func (q *Queue) Key() string { return q.keys.Jobs }

// Keys returns a key of each of the queues.
func Keys(queues []*Queue) []string {
	keys := make([]string, len(queues))
	for i, q := range queues {
		keys[i] = q.Key()
	}
	return keys
}

// Denied adds an explanation to err, the error of a call that Redis denied on the queue, as the function Denied does.
func (q *Queue) Denied(ctx context.Context, err error, role server.Role) error {
	return server.Denied(ctx, q.rdb, q.keys.Jobs, err, role)
}

// A Lane numbers calls, so that a call whose reply was lost can be made again: Redis
// keeps the number and the outcome of a lane's last call for an hour. A lane has one
// call under way at a time.
type Lane struct {
	key string
	seq int64

	sending // of the enqueue under way

	// The last claim that was answered.
	answered int64
	session  string
	at       time.Time
	served   time.Time // when the server answered the last call that was no repeat, by its clock
}

// laneTTL is how long Redis keeps a lane; trusted is how long we rely on it.
const (
	laneTTL = time.Hour
	trusted = laneTTL - 10*time.Minute
)

// remember notes that the lane's call for the session was answered at a time of the server's clock. known is the number of the
// last call that Redis had before: that of the call, if it was made again. Then the time of the call itself is not known.
func (l *Lane) remember(session string, known int64, at time.Time) {
	l.answered, l.session, l.at = l.seq, session, time.Now()
	if known != l.seq {
		l.served = at
	}
}

// forgotten returns when a call of the lane was answered that Redis must have at that time, by its own clock, and has not:
// known is the last call that it has. It returns zero if there is none.
func (l *Lane) forgotten(known int64, at time.Time) time.Time {
	if known >= l.answered || at.Sub(l.served) > trusted {
		return time.Time{}
	}
	return l.served
}

// known is the number of a call that Redis must have, or 0.
func (l *Lane) known(session string) int64 {
	if session != l.session || time.Since(l.at) > trusted {
		return 0
	}
	return l.answered
}

// NewLane returns a lane of the queue that nobody else uses.
func (q *Queue) NewLane() *Lane { return &Lane{key: q.keys.Lane(NewID())} }

// Next begins a new call. Until Next, a call of the lane is the same call made again.
func (l *Lane) Next() {
	l.seq++
	l.Rearm()
}

// Number returns the number of the lane's call.
func (l *Lane) Number() int64 { return l.seq }

// TakesWrites returns nil if Redis takes writes to the queue's keys now, and else its error. It changes nothing: it sets a key only if that is there, and no lane has its name. Redis
// refuses the command as it refuses an enqueue: as a replica, while it loads, and when it is out of memory or can't save.
func (q *Queue) TakesWrites(ctx context.Context) error {
	err := q.rdb.SetArgs(ctx, q.keys.Lane("none"), "", redis.SetArgs{Mode: "XX"}).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// NewID returns a unique ID of 22 letters and digits that sorts by its time: as a ULID,
// 48 bits of milliseconds and 80 random bits, but in base 62 to be shorter in Redis.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails
	ms := uint64(time.Now().UnixMilli())
	hi := ms<<16 | uint64(binary.BigEndian.Uint16(b[6:]))
	lo := binary.BigEndian.Uint64(b[8:])
	var id [22]byte
	base62(id[:11], hi)
	base62(id[11:], lo)
	return string(id[:])
}

func base62(dst []byte, v uint64) {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = alphabet[v%62]
		v /= 62
	}
}

// By returns the queue for calls of an operator: the name of a person or a program, for those who look at who has set what. What can't be part of such a name is replaced.
func (q *Queue) By(operator string) *Queue {
	by := *q
	by.operator = settings.OperatorName(operator)
	return &by
}

// Now returns the server's clock.
func (q *Queue) Now(ctx context.Context) (time.Time, error) { return q.rdb.Time(ctx).Result() }
