package embedded_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// These are the commands that our scripts and clients use. The order makes their replies
// definite. %s is the test's key.
var commands = [][]any{
	{"HSET", "%s:h", "a", "1", "b", "2", "c", "3"},
	{"HMGET", "%s:h", "a", "none", "c"},
	{"HDEL", "%s:h", "a", "none"},
	{"HLEN", "%s:h"},
	{"HINCRBY", "%s:h", "n", 5},
	{"HSETNX", "%s:h", "n", 1},
	{"HSTRLEN", "%s:h", "n"},
	{"HGETALL", "%s:none"},
	{"RPUSH", "%s:l", "a", "b", "c", "d"},
	{"LPUSH", "%s:l", "z"},
	{"LPOP", "%s:l", 2},
	{"LPOP", "%s:none", 2},
	{"LPOP", "%s:l"},
	{"LRANGE", "%s:l", 0, -1},
	{"LREM", "%s:l", 1, "c"},
	{"LLEN", "%s:l"},
	{"BLPOP", "%s:none", "%s:l", 1},
	{"BLPOP", "%s:none", "0.05"},
	{"ZADD", "%s:z", "1776000000123456", "a", 2, "b", 3, "c"},
	{"ZADD", "%s:z", "NX", 9, "a"},
	{"ZADD", "%s:z", "XX", "CH", 9, "b"},
	{"ZADD", "%s:z", "GT", 1, "b"},
	{"ZSCORE", "%s:z", "a"},
	{"ZRANGEBYSCORE", "%s:z", "-inf", "(9", "LIMIT", 0, 10},
	{"ZRANGE", "%s:z", 0, -1},
	{"ZCARD", "%s:z"},
	{"ZCOUNT", "%s:z", "-inf", 9},
	{"ZREM", "%s:z", "b", "none"},
	{"ZREMRANGEBYSCORE", "%s:z", "-inf", 3},
	{"ZREMRANGEBYRANK", "%s:z", 0, -1},
	{"SET", "%s:s", "v", "NX", "PX", 60000},
	{"SET", "%s:s", "v", "NX", "PX", 60000},
	{"SET", "%s:s", "w", "XX", "GET"},
	{"PEXPIRE", "%s:s", 60000},
	{"PEXPIRE", "%s:none", 60000},
	{"PTTL", "%s:none"},
	{"PERSIST", "%s:s"},
	{"PTTL", "%s:s"},
	{"PEXPIRE", "%s:s", 0},
	{"EXISTS", "%s:s", "%s:h"},
	{"INCRBY", "%s:n", 5},
	{"TYPE", "%s:n"},
	{"HGET", "%s:n", "wrong type"},
	{"RENAME", "%s:n", "%s:m"},
	{"DEL", "%s:m", "%s:none"},
	{"SCRIPT", "LOAD", "return 7"},
	{"EVALSHA", "35e0dd1b93ba27a4ab6a4b0a9c4b6b6a3a1f8b0a", 0}, // NOSCRIPT
	{"ROLE"},
	{"CONFIG", "GET", "maxmemory-policy"},
	{"CLIENT", "SETNAME", "signalbox"},
}

// Scripts get KEYS[1] = the test's key and ARGV = {"a\x00b\xff", "7"}.
var scripts = []string{
	`return {1, 2, false, 3}`,
	`return {1, 2, nil, 3}`,
	`return 3.99`,
	`return true`,
	`return {ok = 'FINE'}`,
	`return redis.error_reply('BUSYKEY taken')`,
	`return redis.status_reply('FINE')`,
	`return string.format('%.0f', 1776000000123456)`,
	`return tonumber('1776000000123456') + 1`,
	`return {#ARGV, #ARGV[1], ARGV[1]}`,
	`return {tonumber(ARGV[2]) + 1, ARGV[2] + 1}`,
	`return string.byte(string.sub(ARGV[1], 4, 4))`,
	`local t = redis.call('TIME') return {#t, type(t[1])}`,
	`return redis.call('HSET', KEYS[1] .. ':lh', 'f', string.format('%.0f', 1776000000123456))`,
	`return redis.call('HGET', KEYS[1] .. ':lh', 'f')`,
	`return redis.call('HGET', KEYS[1] .. ':lh', 'none') == false`,
	`return redis.call('HMGET', KEYS[1] .. ':lh', 'none', 'f')`,
	`return type(redis.call('LPOP', KEYS[1] .. ':none', 5))`,
	`return type(redis.call('GET', KEYS[1] .. ':none'))`,
	`return redis.call('SET', KEYS[1] .. ':ls', 'me', 'NX', 'PX', 60000)`,
	`return redis.call('SET', KEYS[1] .. ':ls', 'me', 'NX', 'PX', 60000)`,
	`if redis.call('GET', KEYS[1] .. ':ls') == 'me' then return redis.call('PEXPIRE', KEYS[1] .. ':ls', ARGV[2] * 1000) end`,
	`return redis.pcall('GET', KEYS[1] .. ':lh').err`,
	`return redis.call('ZADD', KEYS[1] .. ':lz', string.format('%.0f', 1776000000123456), 'a', 2.5, 'b')`,
	`return redis.call('ZRANGEBYSCORE', KEYS[1] .. ':lz', '-inf', '+inf', 'LIMIT', 0, 1)`,
	`return redis.call('ZRANGE', KEYS[1] .. ':lz', 0, 0, 'WITHSCORES')`,
	`return type(redis.call('ZSCORE', KEYS[1] .. ':lz', 'b'))`,
	`return redis.call('ZSCORE', KEYS[1] .. ':lz', 'a')`,
	`local ids = {} for i = 1, 2000 do ids[i] = 'id' .. i end return redis.call('RPUSH', KEYS[1] .. ':ll', unpack(ids))`,
	`return #redis.call('LPOP', KEYS[1] .. ':ll', 1000)`,
	`return cjson.encode({1, 'x', true})`,
	`return cjson.decode('{"a":[1,2]}').a[2]`,
	`return redis.sha1hex('x')`,
	`return redis.call('EXISTS', KEYS[1] .. ':lh', KEYS[1] .. ':none')`,
}

// The embedded server gives the same replies as a real one.
func TestCommandsAsOnRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, ours := start(t)
	rdb := redistest.New(t).Client()
	key := redistest.Name(t)
	compare := func(args []any) {
		t.Helper()
		got, gotErr := ours.Do(ctx, args...).Result()
		want, wantErr := rdb.Do(ctx, args...).Result()
		same := fmt.Sprint(gotErr) == fmt.Sprint(wantErr) ||
			redis.HasErrorPrefix(gotErr, "NOSCRIPT") && redis.HasErrorPrefix(wantErr, "NOSCRIPT") // Valkey words it differently
		if !reflect.DeepEqual(got, want) || !same {
			t.Errorf("%.200q\n embedded: %v, %v\n redis:    %v, %v", args, got, gotErr, want, wantErr)
		}
	}
	for _, cmd := range commands {
		args := make([]any, len(cmd))
		for i, a := range cmd {
			args[i] = a
			if s, ok := a.(string); ok && len(s) > 1 && s[:2] == "%s" {
				args[i] = key + s[2:]
			}
		}
		compare(args)
	}
	for _, script := range scripts {
		compare([]any{"EVAL", script, 1, key, "a\x00b\xff", "7"})
	}
}

func TestScriptRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, rdb := start(t)
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	for want := int64(1); want <= 3; want++ {
		if got, err := script.Run(ctx, rdb, []string{"n"}).Int64(); got != want || err != nil {
			t.Fatalf("%d, %v; want %d", got, err, want)
		}
	}
	if ok := script.Exists(ctx, rdb).Val(); len(ok) != 1 || !ok[0] {
		t.Errorf("SCRIPT EXISTS = %v after EVALSHA", ok)
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, a := start(t)
	_, b := start(t)
	field := func(rdb *redis.Client, section, name string) string {
		t.Helper()
		v, ok := rdb.InfoMap(ctx, section).Item(section, name), true
		if v == "" || !ok {
			t.Errorf("INFO %s has no %s", section, name)
		}
		return v
	}
	if got := field(a, "Memory", "maxmemory_policy"); got != "noeviction" {
		t.Errorf("maxmemory_policy is %q", got)
	}
	if got := field(a, "Replication", "role"); got != "master" {
		t.Errorf("role is %q", got)
	}
	if field(a, "Server", "run_id") == field(b, "Server", "run_id") {
		t.Error("two servers with the same run_id")
	}
	if got := a.Info(ctx, "nosuchsection").Val(); got != "" {
		t.Errorf("INFO of an unknown section is %q", got)
	}
}
