package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

var bg = context.Background()

// both runs a test in RESP2 and in RESP3.
func both(t *testing.T, test func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient)) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, redistest.Start(t).Addr())
			test(t, p, p.ClientWith(func(o *redis.UniversalOptions) { o.Protocol = protocol }))
		})
	}
}

func TestProxyPassesEverything(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient) {
		key := redistest.Name(t)
		big := strings.Repeat("x\r\n$5\x00", 50_000)
		pipe := rdb.Pipeline()
		pipe.Set(bg, key+"s", big, time.Minute)
		pipe.HSet(bg, key+"h", "a", 1, "b", 2)
		pipe.ZAdd(bg, key+"z", redis.Z{Score: 1.5, Member: "m"})
		pipe.SAdd(bg, key+"set", "m")
		get, all := pipe.Get(bg, key+"s"), pipe.HGetAll(bg, key+"h")
		zs, set := pipe.ZRangeWithScores(bg, key+"z", 0, -1), pipe.SMembers(bg, key+"set")
		none := pipe.Get(bg, key+"none")
		if _, err := pipe.Exec(bg); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if get.Val() != big || all.Val()["b"] != "2" || len(zs.Val()) != 1 || zs.Val()[0].Score != 1.5 ||
			!slices.Equal(set.Val(), []string{"m"}) || !errors.Is(none.Err(), redis.Nil) {
			t.Errorf("got %d bytes, %v, %v, %v, %v", len(get.Val()), all, zs, set, none)
		}
		cmds, err := rdb.TxPipelined(bg, func(tx redis.Pipeliner) error {
			tx.Incr(bg, key+"n")
			tx.Incr(bg, key+"n")
			return nil
		})
		if err != nil || cmds[1].(*redis.IntCmd).Val() != 2 {
			t.Errorf("MULTI: %v, %v", cmds, err)
		}
		nested, err := rdb.Eval(bg, `return {1, {2, {}, 'x'}, redis.call('HGETALL', KEYS[1]), false}`, []string{key + "h"}).Slice()
		if err != nil || len(nested) != 4 {
			t.Errorf("EVAL: %v, %v", nested, err)
		}
		if err := rdb.Do(bg, "HGET", key+"s", "wrong type").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			t.Errorf("an error came as %v", err)
		}
		if n := p.Count(redistest.Command("incr", key+"n")); n != 2 {
			t.Errorf("%d INCR counted, want 2", n)
		}
		if n := p.Count(redistest.Command("SET", key+"s")); n != 1 {
			t.Errorf("%d SET counted, want 1", n)
		}
	})
}

// The client repeats a command that the server has run, since it doesn't know that.
func TestProxyCutReply(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient) {
		key := redistest.Name(t)
		incr := redistest.Command("INCR", key)
		cut := p.CutReply(incr, 2)
		for i, want := range []int64{1, 3, 4} { // reply 2 was lost
			if got, err := rdb.Incr(bg, key).Result(); got != want || err != nil {
				t.Errorf("call %d: %d, %v; want %d", i+1, got, err, want)
			}
		}
		<-cut
		if n := p.Count(incr); n != 4 {
			t.Errorf("the proxy saw %d calls, want 4", n)
		}
	})
}

func TestProxyCutRequest(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient) {
		key := redistest.Name(t)
		cut := p.CutRequest(redistest.Command("INCR"), 1)
		if got, err := rdb.Incr(bg, key).Result(); got != 1 || err != nil {
			t.Errorf("%d, %v; want 1: the first try did not reach the server", got, err)
		}
		<-cut
	})
}

// When the client notices the cut, the channel is closed.
func TestProxyReportsCutsFirst(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, _ redis.UniversalClient) {
		key := redistest.Name(t)
		rdb := p.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
		incr := redistest.Command("INCR", key)
		for i := range 200 {
			cut := p.CutReply
			if i%2 == 0 {
				cut = p.CutRequest
			}
			made := cut(incr, 1)
			if rdb.Incr(bg, key).Err() == nil {
				t.Fatal("nothing was cut")
			}
			select {
			case <-made:
			default:
				t.Fatal("the client notices the cut before the test")
			}
		}
	})
}

// Commands after the cut command in a pipeline do not reach the server.
func TestProxyCutInPipeline(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, _ redis.UniversalClient) {
		key := redistest.Name(t)
		rdb := p.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
		p.CutReply(redistest.Command("INCRBY", key), 2)
		pipe := rdb.Pipeline()
		first := pipe.IncrBy(bg, key, 1)
		second := pipe.IncrBy(bg, key, 10)
		third := pipe.IncrBy(bg, key, 100)
		if _, err := pipe.Exec(bg); err == nil {
			t.Fatal("the pipeline succeeded")
		}
		if first.Val() != 1 || second.Err() == nil || third.Err() == nil {
			t.Errorf("%v, %v, %v; want the first alone", first, second, third)
		}
		if got := rdb.Get(bg, key).Val(); got != "11" {
			t.Errorf("the server has %s, want 11", got)
		}
	})
}

func TestProxyReply(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient) {
		key := redistest.Name(t)
		p.Reply(redistest.Command("SET", key), "-OOM command not allowed when used memory > 'maxmemory'.", 1)
		pipe := rdb.Pipeline()
		before, set, after := pipe.Incr(bg, key+"n"), pipe.Set(bg, key, "v", 0), pipe.Incr(bg, key+"n")
		_, _ = pipe.Exec(bg)
		if before.Val() != 1 || !redis.IsOOMError(set.Err()) || after.Val() != 2 {
			t.Errorf("%v, %v, %v; want an error for SET alone, in its place", before, set, after)
		}
		if n := rdb.Exists(bg, key).Val(); n != 0 {
			t.Error("the server got the command that was answered for it")
		}
		if err := rdb.Set(bg, key, "v", 0).Err(); err != nil {
			t.Errorf("the second SET: %v", err)
		}

		p.Reply(redistest.Command("GET"), "-READONLY You can't write against a read only replica.", -1)
		for range 3 {
			if err := rdb.Get(bg, key).Err(); !redis.IsReadOnlyError(err) {
				t.Errorf("GET: %v", err)
			}
		}
		p.Reset()
		if got, err := rdb.Get(bg, key).Result(); got != "v" || err != nil {
			t.Errorf("GET after Reset: %q, %v", got, err)
		}
	})
}

func TestProxyPause(t *testing.T) {
	both(t, func(t *testing.T, p *redistest.Proxy, rdb redis.UniversalClient) {
		key := redistest.Name(t)
		if err := rdb.Set(bg, key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		p.Pause()
		done := make(chan error, 1)
		go func() { done <- rdb.Incr(bg, key).Err() }()
		direct := redistest.Start(t).Client()
		timer := time.NewTimer(50 * time.Millisecond)
		defer timer.Stop()
		select {
		case err := <-done:
			t.Fatalf("INCR returned %v while the proxy was paused", err)
		case <-timer.C:
		}
		if got := direct.Get(bg, key).Val(); got != "1" {
			t.Errorf("%s on the server while the proxy was paused", got)
		}
		p.Resume()
		if err := <-done; err != nil {
			t.Errorf("INCR after Resume: %v", err)
		}
	})
}

func TestProxySeverAndRefuse(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb := p.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1; o.DialerRetries = 1 })
	blocked := make(chan error, 1)
	key := redistest.Name(t)
	go func() { blocked <- rdb.BLPop(bg, 0, key).Err() }()
	redistest.Eventually(t, func() bool { return p.Count(redistest.Command("BLPOP")) == 1 }, "the client blocks")
	p.Refuse(true)
	if err := rdb.Ping(bg).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("PING on a new connection: %v, want refused", err)
	}
	p.Sever()
	if err := <-blocked; err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("BLPOP over a severed connection: %v", err)
	}
	p.Refuse(false)
	if err := rdb.Ping(bg).Err(); err != nil {
		t.Errorf("PING after Refuse(false): %v", err)
	}
}

// A connection that ends while replies are due or held delays neither other connections nor
// the proxy's end.
func TestProxyManyClients(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb := p.ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 30; o.MaxRetries = 10 })
	key := redistest.Name(t)
	for k := range 20 {
		p.CutReply(redistest.Command("INCR", key), 1+10*k)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				if err := rdb.Incr(bg, key).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got, want := rdb.Get(bg, key).Val(), fmt.Sprint(p.Count(redistest.Command("INCR", key))); got != want {
		t.Errorf("the server has counted %s, the proxy %s", got, want)
	}
	p.Pause()
}
