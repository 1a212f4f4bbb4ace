package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// A testLease is a lease of a test.
type testLease struct {
	key, issuer, holder string
	token               int64
}

func (l testLease) Key() string      { return l.key }
func (l testLease) Token() int64     { return l.token }
func (l testLease) Until() time.Time { return time.Now().Add(time.Hour) }
func (l testLease) Issuer() string   { return l.issuer }
func (l testLease) Holder() string   { return l.holder }

func under(t testing.TB, key string, token int64) context.Context {
	return lock.NewContext(t.Context(), testLease{key, "redis", fmt.Sprint("holder-", token), token})
}

// A write of a superseded holder changes nothing. Tokens are compared as decimals: as numbers of Lua the last two would be equal.
func TestRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	guard, key := NewRedis(rdb), redistest.Name(t)
	concat := NewScript(`-- with a comment at the end
local before = redis.call('GET', KEYS[1]) or ''
redis.call('SET', KEYS[1], before .. ARGV[1])
return {before, #KEYS, #ARGV} -- end`)
	for i, c := range []struct {
		token int64
		want  error
		value string
	}{
		{9, nil, "9"},
		{9, nil, "9"},
		{10, nil, "10"},
		{9, ErrStale, "10"},
		{100, nil, "100"},
		{99, ErrStale, "100"},
		{1<<62 - 1, nil, fmt.Sprint(int64(1<<62 - 1))},
		{1 << 62, nil, fmt.Sprint(int64(1 << 62))},
		{1<<62 - 1, ErrStale, fmt.Sprint(int64(1 << 62))},
	} {
		ctx := under(t, key, c.token)
		for name, write := range map[string]func() error{
			"Set":  func() error { return guard.Set(ctx, key+"-s", c.token, 0) },
			"HSet": func() error { return guard.HSet(ctx, key+"-h", "f", c.token, "g", "x") },
		} {
			if err := write(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("case %d, %s: %v, want %v", i, name, err, c.want)
			}
		}
		if s, h := rdb.Get(ctx, key+"-s").Val(), rdb.HGet(ctx, key+"-h", "f").Val(); s != c.value || h != c.value {
			t.Errorf("case %d: %s and %s; want %s", i, s, h, c.value)
		}
	}
	stale, ok := errors.AsType[*StaleError](guard.Enter(under(t, key, 5)))
	if !ok || stale.Token != 5 || stale.Highest != 1<<62 || stale.Resource != key {
		t.Errorf("%+v", stale)
	}
	if ttl := rdb.PTTL(t.Context(), "signalbox:fence:{"+key+"}").Val(); ttl != -1 {
		t.Errorf("the mark expires in %v", ttl)
	}
	other := lock.NewContext(t.Context(), testLease{key, "redis", "another", 1 << 62})
	if err := guard.Enter(other); !errors.Is(err, ErrStale) {
		t.Errorf("an equal token of another holder: %v", err)
	}
	foreign := lock.NewContext(t.Context(), testLease{key, "etcd", "another", 1<<62 + 1})
	if err := guard.Enter(foreign); !errors.Is(err, ErrForeign) {
		t.Errorf("another issuer: %v", err)
	}
	ctx := under(t, key, 1<<62)
	for i, want := range []string{"[ 1 1]", "[a 1 1]"} {
		if got, err := guard.Run(ctx, concat, []string{key + "-c"}, "a"); err != nil || fmt.Sprint(got) != want {
			t.Errorf("call %d of a script: %v, %v", i, got, err)
		}
	}
	if got, err := guard.Run(ctx, NewScript("return nil"), nil); got != nil || err != nil {
		t.Errorf("nil: %v, %v", got, err)
	}
	if _, err := guard.Run(ctx, NewScript("return redis.error_reply('MINE it fails')"), nil); err == nil || !strings.Contains(err.Error(), "MINE it fails") {
		t.Errorf("an error of the script: %v", err)
	}
	if err := guard.Set(ctx, key+"-s", 1, time.Minute); err != nil || rdb.PTTL(ctx, key+"-s").Val() <= 0 {
		t.Errorf("with a TTL: %v", err)
	}
}

// The trap: without Enter before the read, the older holder's write lands after the newer one has read.
func TestRedisEnterBeforeTheRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	guard := NewRedis(rdb)
	for enter, want := range map[bool]int{true: 1, false: 2} {
		key := fmt.Sprint(redistest.Name(t), enter)
		older, newer := under(t, key, 5), under(t, key, 6)
		read := func(ctx context.Context) int {
			if enter {
				if err := guard.Enter(ctx); err != nil {
					t.Error(err)
				}
			}
			n, _ := rdb.Get(ctx, key).Int()
			return n
		}
		landed := 0
		a, b := read(older), read(newer)
		if guard.Set(older, key, a+1, 0) == nil {
			landed++
		}
		if guard.Set(newer, key, b+1, 0) == nil {
			landed++
		}
		if n, _ := rdb.Get(t.Context(), key).Int(); landed != want || n != 1 {
			t.Errorf("entered first %v: %d writes landed, want %d; the number is %d", enter, landed, want, n)
		}
	}
}

// Every mistake is an error before anything is sent, or says what is wrong in Redis.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	guard, key := NewRedis(rdb), redistest.Name(t)
	ctx := under(t, key, 5)
	for name, err := range map[string]error{
		"no lease":    guard.Enter(t.Context()),
		"an odd HSet": guard.HSet(ctx, key, "f"),
		"no fields":   guard.HSet(ctx, key),
		"a short TTL": guard.Set(ctx, key, 1, time.Microsecond),
		"an old TTL":  guard.Set(ctx, key, 1, -time.Second),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mark := markKey(key)
	if err := rdb.Set(ctx, mark, "something", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := guard.Set(ctx, key, 1, 0); err == nil || !strings.Contains(err.Error(), "BADMARK") || !strings.Contains(err.Error(), mark) {
		t.Errorf("a mark of another kind: %v", err)
	}
	if err := errors.Join(rdb.Del(ctx, mark).Err(), rdb.SAdd(ctx, mark, "x").Err()); err != nil {
		t.Fatal(err)
	}
	if err := guard.Set(ctx, key, 1, 0); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a mark of another type: %v", err)
	}
	if n := rdb.Exists(ctx, key).Val(); n != 0 {
		t.Error("it was written")
	}
}

// A Cluster takes a write if lock and data have the same hash tag.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t).Client()
	guard := NewRedis(rdb)
	ctx := under(t, "{account:7}:lock", 5)
	if err := errors.Join(guard.Enter(ctx), guard.Set(ctx, "{account:7}:balance", 10, 0)); err != nil {
		t.Error(err)
	}
	if err := guard.Set(under(t, "{account:7}:lock", 4), "{account:7}:balance", 9, 0); !errors.Is(err, ErrStale) {
		t.Errorf("an older one: %v", err)
	}
	if err := guard.Set(ctx, "{account:8}:balance", 10, 0); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "hash tag") {
		t.Errorf("another slot: %v", err)
	}
}
