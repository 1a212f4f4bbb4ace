// Package embedded is a Redis inside your process. It is for development, examples and tests,
// on a machine without a Redis.
//
//	srv, err := embedded.Start()
//	if err != nil {
//		return err
//	}
//	defer srv.Close()
//	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
//
// It is [miniredis] with a clock that runs: TTLs end by themselves, and TIME is the real time.
// While a script runs, both stand still, as they do in Redis. The server listens on loopback.
// So other processes of the machine can use it while this process lives.
//
// # What it is not
//
// It is not a Redis for production. All data is gone when the process ends. There is no
// persistence, replication, Cluster, password or memory limit. So none of Signalbox's promises
// hold when the process ends. It can't show how a server behaves while it is out of memory,
// loads its data or is a replica. It is slow: it has one lock, runs Lua in Go, executes some
// 20,000 commands/s, and needs one or two goroutines for each connection.
//
// # Known differences from Redis
//
// Try scripts on a real server first. Some scripts work here and fail there, and some work
// there and fail here.
//
//   - Numbers in Lua: tostring and .. write 1776000000123456 where Redis writes
//     1.7760000001235e+15. Use string.format("%.0f", n). A numeric for over a
//     string bound (for i = 1, ARGV[1]) fails here; use tonumber.
//   - unpack and redis.call take about 5,100 values (Redis: 8,000).
//   - No cmsgpack, struct or bit in Lua; no #!lua header; no FUNCTION or FCALL. os is there.
//   - An error that ends a script arrives as "ERR Error compiling script (new function):
//     ..." with the original, such as WRONGTYPE or OOM, in the middle. A command
//     outside a script gives the same errors as Redis, nearly in the same words.
//   - A blocking command in a script is not refused, and doesn't block. Redis refuses it.
//   - If a client disconnects while it blocks, the server notices that at the next write to any key.
//   - INFO, ROLE and CONFIG GET have few fields, all true of this server
//     (server_name:signalbox-embedded identifies it). They can't be queued in a
//     MULTI. CONFIG SET, CLIENT ID, CLIENT UNBLOCK, CLIENT LIST, DEBUG, LATENCY, SLOWLOG,
//     OBJECT ENCODING, BLMPOP, ZRANGESTORE and SORT are missing.
//   - The reply to WITHSCORES is flat in RESP3 as well. go-redis' typed commands read both forms.
//   - WAIT answers 0 at once. Nothing is ever evicted.
//   - TTLs are right to 1 ms with up to about 500 keys, to 10 ms with 5,000 and to 100 ms
//     with 50,000, because each move of the clock visits every key.
//
// [miniredis]: https://github.com/alicebob/miniredis
package embedded
