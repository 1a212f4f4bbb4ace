package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// A Durability says where the writes of a call must be before the call has done its work. The zero value asks for nothing.
type Durability struct {
	Replicas int           // that must have them
	AOF      bool          // on the master's disk, and on those of so many replicas
	Timeout  time.Duration // how long that is waited for
}

// Reached says where the writes of a call are, at the least.
type Reached struct {
	Replicas int  // that have them; with AOF: on their disks
	Local    bool // on the master's disk; only with AOF
}

// Meets reports whether the writes are where d says.
func (r Reached) Meets(d Durability) bool { return r.Replicas >= d.Replicas && (r.Local || !d.AOF) }

// ErrForgotten says that Redis doesn't know the last call of a lane, which was answered: a failover has forgotten it.
var ErrForgotten = errors.New("store: a failover has forgotten the call")

// confirmSlice bounds one wait for replicas. The client would give up a longer one after its read timeout, and each of them keeps a connection.
const confirmSlice = 500 * time.Millisecond

// Confirm waits until the writes of the lane's last call are where d says, for half a second at most. The call must have been answered.
//
// WAIT looks at the writes of its own connection. The call may have gone over another one, or have been answered as a repeated call that
// writes nothing. So Confirm writes, too: on one connection it checks that the server has the call, sets the expiry of the lane's key, which is
// a write, and waits. What the call wrote came before that on the same server.
func (du *Durable) Confirm(ctx context.Context, lane *Lane, d Durability) (Reached, error) {
	node, err := du.master(ctx, lane.key)
	if err != nil {
		return Reached{}, err
	}
	slice := min(confirmSlice, d.Timeout)
	if c, ok := node.(interface{ Options() *redis.Options }); ok && c.Options().ReadTimeout > 0 {
		slice = min(slice, c.Options().ReadTimeout/2)
	}
	slice = max(slice, time.Millisecond) // 0 is no bound
	pipe := node.Pipeline()
	last, mark := pipe.Get(ctx, lane.key), pipe.PExpire(ctx, lane.key, laneTTL)
	replicas, both := redis.NewIntCmd(ctx, "wait", d.Replicas, slice.Milliseconds()), waitAOF(ctx, d.Replicas, slice)
	if d.AOF {
		_ = pipe.Process(ctx, both)
	} else {
		_ = pipe.Process(ctx, replicas)
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	number, _, _ := strings.Cut(last.Val(), " ")
	switch err := errors.Join(ignoreNil(last.Err()), mark.Err()); {
	case err != nil:
		du.moved(ctx, err)
		return Reached{}, err
	case number != strconv.FormatInt(lane.seq, 10) || !mark.Val():
		return Reached{}, ErrForgotten
	case d.AOF:
		if n := both.Val(); len(n) == 2 {
			return Reached{Local: n[0] > 0, Replicas: int(n[1])}, both.Err()
		}
		return Reached{}, both.Err()
	}
	return Reached{Replicas: int(replicas.Val())}, replicas.Err()
}

// master returns the client of the server that has a key: WAIT has no key, so a client of a Cluster would send it to any server.
func (du *Durable) master(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := du.q.rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return du.q.rdb, nil
}

// moved has a client of a Cluster look for the server of the key again.
func (du *Durable) moved(ctx context.Context, err error) {
	if cluster, ok := du.q.rdb.(interface{ ReloadState(ctx context.Context) }); ok {
		cluster.ReloadState(ctx)
		return
	}
	scripts.SeekMaster(ctx, du.q.rdb, err)
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// HasAOF returns an error if the queue's server can't wait for its disk: it has no WAITAOF, or no append-only file. An error of another kind, such as
// that of a broken connection, is nil: it says nothing of that.
func (du *Durable) HasAOF(ctx context.Context) error {
	node, err := du.master(ctx, du.q.keys.Jobs)
	if err != nil {
		return nil
	}
	if err := node.Process(ctx, waitAOF(ctx, 0, time.Millisecond)); CantWait(err) {
		return err
	}
	return nil
}

func waitAOF(ctx context.Context, replicas int, timeout time.Duration) *redis.IntSliceCmd {
	return redis.NewIntSliceCmd(ctx, "waitaof", 1, replicas, timeout.Milliseconds())
}

// CantWait reports whether an error of Confirm says that the server can't do what is asked: it has no such command, or no append-only file, or
// the user has no right to it.
func CantWait(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "unknown command") || strings.Contains(err.Error(), "appendonly is disabled") || server.IsDenied(err))
}
