// Command items shows why a service with several processes needs a lock, and which locks work.
//
//	go run ./examples/items -lock none
//	go run ./examples/items -lock naive
//	go run ./examples/items -lock single
//	go run ./examples/items -lock redlock -masters 5 -kill 2
//
// POST /items creates an item. At most three items are allowed. Five processes on loopback serve
// it, with one store. Five requests come at the same time, one to each process. A request counts
// the items, works for a moment and then adds its own item. If two requests do so at the same time,
// both count the items before either adds one. The work takes 100 ms and each call to Redis 5 ms,
// as in a network. On loopback "naive" would succeed too often by luck.
//
// It needs only Go: the store, and the lock of "naive" and "single", are in a Redis inside its own
// process. With REDIS_URL it uses a real Redis, with keys of its own, which it deletes at the end.
// For "redlock" it starts the masters itself. So redis-server must be on the PATH.
//
// locks.go has the locks. The rest is in examples/internal/demo: service.go is the application, with its items
// in store.go. The other files are the demonstration: run.go has its steps, process.go starts this
// program again as the servers, masters.go starts the masters, client.go makes the requests.
//
// The same with locks in etcd, ZooKeeper and PostgreSQL is in examples/more/locks.
//
// The last line of the output counts the replies:
//
//	items: lock=single created=3 rejected=2 limit=3
//
// The exit status is 1 if a lock failed: "single" and "redlock" must create three items. If most
// masters are killed, all requests must get a 503. The exit status is 2 for a mistake in the flags.
package main

import "github.com/signalbox-go/signalbox/examples/internal/demo"

func main() { demo.Main(locks) }
