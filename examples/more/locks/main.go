// Command locks is examples/items with locks that don't rest on Redis. It is in a module beside the library's, since it needs the
// clients of etcd, ZooKeeper and PostgreSQL.
//
//	go run . -lock etcd
//	go run . -lock zookeeper -members 5 -kill 2
//	go run . -lock postgres
//
// It does what examples/items does: five processes on loopback serve POST /items, each item is created under the lock,
// and at most three items are allowed. The items are in a Redis inside its own process, or in that of REDIS_URL.
//
// It starts the servers of the lock itself: three of etcd or ZooKeeper, or one of PostgreSQL. So etcd, Java with
// zookeeper.jar, or PostgreSQL must be installed. With -kill n it kills n of them before the requests: two of five
// change nothing, and without a majority all requests get a 503. To use servers that run already, name them:
//
//   - ETCD_ENDPOINTS: host:port, separated by commas
//   - ZOOKEEPER_SERVERS: host:port, separated by commas
//   - DATABASE_URL: postgres://user:password@host:port/database. The lock's table gets a name of its own there, and is
//     dropped at the end
//
// The last line is that of examples/items:
//
//	items: lock=etcd created=3 rejected=2 limit=3
package main

import "github.com/signalbox-go/signalbox/examples/internal/demo"

func main() { demo.Main(locks) }
