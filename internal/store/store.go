// Package store keeps the jobs of a queue in Redis. It has one Go method, and one Lua script,
// per transition of a job; scheduler and worker are built on it and see no key, no script
// and no byte of a record.
//
// Every call that changes something can be made again when its reply was lost: calls that
// are not idempotent by nature go through a [Lane].
package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxBatch is the most jobs in one call: unpack in Lua fails at 8,000 values.
	MaxBatch = 1000
	// SuspectAt is the number of crashes from which on a job is a suspect.
	SuspectAt = 2
	// CrashLimit is the number of crashes at which a job is dead.
	CrashLimit = 5
)

// Retention bounds the terminal jobs that are kept, of each kind: dead and cancelled.
type retention struct {
	count int
	bytes int64
	age   time.Duration
}

var defaultRetention = retention{count: 100_000, bytes: 256 << 20, age: 30 * 24 * time.Hour}

// A Queue is a queue in Redis. It is safe for concurrent use.
type Queue struct {
	rdb  redis.UniversalClient
	name string
	keys keys
	kept retention // replaced by tests only
}

// New returns the queue of that name, which ValidateQueue accepts.
func New(rdb redis.UniversalClient, name string) *Queue {
	return &Queue{rdb: rdb, name: name, keys: newKeys(name), kept: defaultRetention}
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// A Lane numbers calls, so that a call whose reply was lost can be made again: Redis
// keeps the number and the outcome of a lane's last call for an hour. A lane has one
// call under way at a time.
type Lane struct {
	key string
	seq int64

	// The last claim that was answered.
	answered int64
	session  string
	at       time.Time
}

// laneTTL is how long Redis keeps a lane; trusted is how long we rely on it.
const (
	laneTTL = time.Hour
	trusted = laneTTL - 10*time.Minute
)

// remember notes that the lane's call for the session was answered.
func (l *Lane) remember(session string) {
	l.answered, l.session, l.at = l.seq, session, time.Now()
}

// known is the number of a call that Redis must have, or 0.
func (l *Lane) known(session string) int64 {
	if session != l.session || time.Since(l.at) > trusted {
		return 0
	}
	return l.answered
}

// NewLane returns a lane of the queue that nobody else uses.
func (q *Queue) NewLane() *Lane { return &Lane{key: q.keys.lane(NewID())} }

// Next begins a new call. Until Next, a call of the lane is the same call made again.
func (l *Lane) Next() { l.seq++ }

// Now returns the server's clock.
func (q *Queue) Now(ctx context.Context) (time.Time, error) { return q.rdb.Time(ctx).Result() }

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

// IsNil tells a nil client also if its type is known, as that of an uninitialised variable.
func IsNil(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	case *redis.Ring:
		return c == nil
	}
	return false
}
