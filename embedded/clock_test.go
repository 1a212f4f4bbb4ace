package embedded_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// slack is the allowed error of a TTL.
const slack = 10 * time.Millisecond

func TestTTLTicks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, rdb := start(t)
	const ttl = 300 * time.Millisecond
	sent := time.Now()
	if err := rdb.Set(ctx, "k", "v", ttl).Err(); err != nil {
		t.Fatal(err)
	}
	set := time.Now()
	redistest.Eventually(t, func() bool {
		asked := time.Now()
		left := rdb.PTTL(ctx, "k").Val()
		answered := time.Now()
		if left < 0 {
			left = 0 // gone
		}
		if low := ttl - answered.Sub(sent) - slack; left < low {
			t.Errorf("%v left, expected at least %v", left, low)
		}
		if high := max(0, ttl-asked.Sub(set)+slack); left > high {
			t.Errorf("%v left, expected at most %v", left, high)
		}
		return left == 0 && rdb.Exists(ctx, "k").Val() == 0 // PTTL rounds down
	}, "the key is gone")
}

// One client at a time gets the lock, and not before the TTL of the last holder is over.
func TestKeyExpiresOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, rdb := start(t)
	const ttl, grants = 30 * time.Millisecond, 8
	const script = `return redis.call('SET', KEYS[1], 'me', 'NX', 'PX', ARGV[1]) and redis.call('INCR', KEYS[2]) or 0`
	type grant struct {
		number    int64 // as the server counts
		sent, got time.Time
	}
	var (
		mu  sync.Mutex
		all []grant
		wg  sync.WaitGroup
	)
	for range 16 {
		wg.Go(func() {
			for {
				sent := time.Now()
				number, err := rdb.Eval(ctx, script, []string{"lock", "grants"}, ttl.Milliseconds()).Int64()
				got := time.Now()
				mu.Lock()
				if number > 0 {
					all = append(all, grant{number, sent, got})
				}
				done := len(all) >= grants
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if done || err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b grant) int { return cmp.Compare(a.number, b.number) })
	for i := 1; i < len(all); i++ {
		if apart := all[i].got.Sub(all[i-1].sent); apart < ttl-slack {
			t.Errorf("grant %d came %v after the last, the TTL is %v", i, apart, ttl)
		}
	}
}

func TestTimeIsReal(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, rdb := start(t)
	const script = `local t = redis.call('TIME') return t[1] * 1000000 + t[2]`
	last := int64(0)
	for range 200 {
		before := time.Now()
		micros, err := rdb.Eval(ctx, script, nil).Int64()
		if err != nil {
			t.Fatal(err)
		}
		if at := time.UnixMicro(micros); at.Before(before.Add(-slack)) || at.After(time.Now()) {
			t.Fatalf("TIME is %v, asked at %v", at, before)
		}
		if micros < last {
			t.Fatalf("TIME went back from %d to %d", last, micros)
		}
		last = micros
	}
}

// A script sees one moment: a key that it has found does not expire while it runs.
func TestTimeStandsStillInScript(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, rdb := start(t)
	const ttl = 20 * time.Millisecond
	const script = `
		redis.call('SET', KEYS[1], 'v', 'PX', ARGV[1])
		local first = redis.call('TIME')
		for i = 1, tonumber(ARGV[2]) do local _ = i * i end
		local last = redis.call('TIME')
		return {redis.call('EXISTS', KEYS[1]), first[1] == last[1] and first[2] == last[2] and 1 or 0}`
	for loops := 1_000_000; ; loops *= 2 {
		began := time.Now()
		got, err := rdb.Eval(ctx, script, []string{"k"}, ttl.Milliseconds(), loops).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		// Meanwhile other clients connect. Their commands try to move the clock.
		_ = rdb.Ping(ctx).Err()
		if !slices.Equal(got, []int64{1, 1}) {
			t.Fatalf("EXISTS, same TIME = %v at the end of a script", got)
		}
		if time.Since(began) > 3*ttl {
			return
		}
	}
}

func TestIdleServerExpires(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, rdb := start(t)
	if err := rdb.Set(ctx, "k", "v", 5*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(50 * time.Millisecond) // nobody touches the server
	defer timer.Stop()
	<-timer.C
	if n := rdb.DBSize(ctx).Val(); n != 0 {
		t.Errorf("DBSIZE = %d after the TTL of the only key", n)
	}
}
