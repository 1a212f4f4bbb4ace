// Package servertest starts servers for tests, as processes of this machine, and breaks them.
//
//   - [PostgreSQL] and [MariaDB] start a database.
//   - [Etcd] and [ZooKeeper] start one server, or the members of an ensemble.
//   - A [Server] can be killed, stopped by SIGSTOP and started again on its data.
//   - A [Link] stands between clients and a server. It cuts, refuses and holds traffic.
//   - [ReservePort] reserves a port, and [Start] starts a child that ends with this process.
//
// Servers listen on loopback only and end with the test. Package redistest does the same for Redis. Only tests may
// import this package, and programs in modules of their own that prove, measure or show something.
//
// Without the binary a test is skipped, with the name of Debian's package. If SIGNALBOX_TEST_REDIS is "required", as in
// CI, the test fails.
package servertest
