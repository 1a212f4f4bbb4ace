// Package redistest starts real Redis servers for tests, and breaks them.
//
//   - [Start] returns the server that all tests of a binary share: a redis-server, or the
//     embedded one if there is none. Each test uses names of its own, from [Name].
//   - [New] starts a server for one test, with its own settings. It can be killed,
//     frozen and started again.
//   - [Cluster], [ClusterWithReplicas] and [Sentinel] start the other two kinds of
//     deployment, and make them fail over.
//   - [NewProxy] stands between clients and any of them. It loses replies, holds traffic and
//     answers with errors.
//   - [Main] is the TestMain of every package that uses this one.
//
// The environment variable [Env] chooses between real and embedded. Servers listen on
// loopback only. They keep nothing on disk, unless told to. They end with the test
// binary, on Linux even if it is killed. A method that fails makes its test fail; none
// returns an error.
//
// Helpers wait until the servers report the expected state, for at most 20 s. They never
// wait for a fixed time. Only tests may import this package.
package redistest
