// Package embedded is a Redis inside your process. It is for development, examples and tests,
// on a machine without a Redis.
//
//	srv, err := embedded.Start()
//	if err != nil {
//		return err
//	}
//	defer srv.Close()
//	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
//
// It is [miniredis] with a clock that runs: TTLs end by themselves, and TIME is the real time.
// While a script runs, both stand still, as they do in Redis. It listens on
// loopback, so other processes of the machine can use it as long as this one lives.
//
// # What it is not
//
// It is not a Redis for production. Nothing is kept: all data is gone with the
// process. There is no persistence, replication, Cluster, password or memory limit.
// So none of Signalbox's promises hold when the process ends. It can't show what a
// server does when it is out of memory, while it loads or as a replica. It is slow: one
// lock, Lua in Go, some 20,000 commands/s, and one or two goroutines a connection.
//
// # Known differences from Redis
//
// Try scripts on a real server first: what works here can fail there, and the other way
// round.
//
//   - Numbers in Lua: tostring and .. write 1776000000123456 where Redis writes
//     1.7760000001235e+15. Use string.format("%.0f", n). A numeric for over a
//     string bound (for i = 1, ARGV[1]) fails here; use tonumber.
//   - unpack and redis.call take about 5,100 values (Redis: 8,000).
//   - No cmsgpack, struct or bit in Lua; no #!lua header; no FUNCTION or FCALL. os is there.
//   - An error that ends a script arrives as "ERR Error compiling script (new function):
//     ..." with the original, such as WRONGTYPE or OOM, in the middle. A command
//     outside a script gives the same errors as Redis, nearly in the same words.
//   - A blocking command in a script blocks nothing but is not refused either.
//   - A client that goes away while it blocks is noticed at the next write to any key.
//   - INFO, ROLE and CONFIG GET say what is true of this server, in few fields
//     (server_name:signalbox-embedded tells it apart), and can't be queued in a
//     MULTI. CONFIG SET, CLIENT ID, CLIENT UNBLOCK, CLIENT LIST, DEBUG, LATENCY, SLOWLOG,
//     OBJECT ENCODING, BLMPOP, ZRANGESTORE and SORT are missing.
//   - WITHSCORES answers flat in RESP3 too. go-redis' typed commands read both.
//   - WAIT answers 0 at once. Nothing is ever evicted.
//   - TTLs are right to 1 ms with up to about 500 keys, to 10 ms with 5,000 and to 100 ms
//     with 50,000: each move of the clock visits every key.
//
// [miniredis]: https://github.com/alicebob/miniredis
package embedded
