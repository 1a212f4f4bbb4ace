package interop

import (
	"errors"
	"maps"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// redissonLike takes a reentrant lock that is a hash, as Redisson's are: the field names the
// holder, the value counts how often it has it.
var redissonLike = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 or redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0`)

const redissonHolder = "2f6bf5a5-7e0f-4a41-8d0c-0c5f7f3d9d11:1"

// TestRedissonHolds: a hash at our key is none of ours. We say so and leave it.
func TestRedissonHolds(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := clientsOf(t, []string{s.Addr()})[0]
	locker := newLocker(rdb)
	for name, acquire := range map[string]func(key string) (lock.Lock, error){
		"TryAcquire": func(key string) (lock.Lock, error) { return locker.TryAcquire(t.Context(), key) },
		"Acquire":    func(key string) (lock.Lock, error) { return locker.Acquire(t.Context(), key) },
		"TryAcquireAll": func(key string) (lock.Lock, error) {
			return locker.TryAcquireAll(t.Context(), "{"+key+"}:a", "{"+key+"}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := redistest.Name(t)
			hash := key
			if name == "TryAcquireAll" {
				hash = "{" + key + "}"
			}
			must(t, "their lock", redissonLike.Run(t.Context(), rdb, []string{hash}, redissonHolder, 30_000).Err())
			_, err := acquire(key)
			if !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
				t.Errorf("we asked for a key that is a hash: %v, want ErrInvalid", err)
			}
			got, err := rdb.HGetAll(t.Context(), hash).Result()
			must(t, "HGETALL", err)
			if want := map[string]string{redissonHolder: "1"}; !maps.Equal(got, want) {
				t.Errorf("the hash is %v, want %v", got, want)
			}
			if left, err := rdb.PTTL(t.Context(), hash).Result(); err != nil || left <= 0 || left > long {
				t.Errorf("it lives for %v (%v), want at most %v", left, err, long)
			}
			if others := rdb.Keys(t.Context(), "*"+key+"*").Val(); len(others) != 1 {
				t.Errorf("we left %v", others)
			}
		})
	}
}

// TestRedissonAsks: it gets an error for a key that we hold, and we keep the lock.
func TestRedissonAsks(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := clientsOf(t, []string{s.Addr()})[0]
	key := redistest.Name(t)
	ours := tried(t, newLocker(rdb), key)
	before := rdb.Get(t.Context(), key).Val()
	err := redissonLike.Run(t.Context(), rdb, []string{key}, redissonHolder, 30_000).Err()
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("it asked for a lock that we hold: %v, want WRONGTYPE", err)
	}
	if after := rdb.Get(t.Context(), key).Val(); before == "" || after != before {
		t.Error("the lock has another value now")
	}
	must(t, "our extend", ours.Extend(t.Context()))
	must(t, "our release", ours.Release(t.Context()))
	must(t, "theirs, once it is free", redissonLike.Run(t.Context(), rdb, []string{key}, redissonHolder, 30_000).Err())
}

// TestRedissonHoldsOnMasters: hashes on a quorum of the masters keep a Redlock from being
// granted, and stay.
func TestRedissonHoldsOnMasters(t *testing.T) {
	t.Parallel()
	var nodes []*redis.Options
	var clients []*redis.Client
	key := redistest.Name(t)
	for i := range 3 {
		s := redistest.New(t)
		nodes = append(nodes, &redis.Options{Addr: s.Addr()})
		clients = append(clients, clientsOf(t, []string{s.Addr()})...)
		if i < 2 {
			must(t, "their lock", redissonLike.Run(t.Context(), clients[i], []string{key}, redissonHolder, 30_000).Err())
		}
	}
	r, err := redlock.New(nodes, redlock.Config{NoRestartDelay: true}) // the servers are fresh
	must(t, "NewRedlock", err)
	defer r.Close()
	for name, acquire := range map[string]func() (lock.Lock, error){
		"TryAcquire": func() (lock.Lock, error) { return r.TryAcquire(t.Context(), key) },
		"Acquire":    func() (lock.Lock, error) { return r.Acquire(t.Context(), key) },
	} {
		if _, err := acquire(); !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s where two of three keys are hashes: %v, want ErrInvalid", name, err)
		}
	}
	for i, rdb := range clients {
		kind := rdb.Type(t.Context(), key).Val()
		if want := []string{"hash", "hash", "none"}[i]; kind != want {
			t.Errorf("node %d has a %s at the key, want %s", i, kind, want)
		}
	}
}
