// Package redistest starts real Redis servers for tests, and breaks them.
//
//   - [Start] gives the server that all tests of a binary share: a redis-server, or the
//     embedded one where there is none. [Name] keeps tests apart on it.
//   - [New] starts a server for one test, with settings of its own, that can be killed,
//     frozen and started again.
//   - [Cluster], [ClusterWithReplicas] and [Sentinel] start the other two kinds of
//     deployment, and make them fail over.
//   - [NewProxy] stands before any of them and loses replies, holds traffic, answers with
//     errors.
//   - [Main] is the TestMain of every package that uses this one.
//
// The environment variable [Env] chooses between real and embedded. Servers listen on
// loopback only, keep nothing on disk unless told to, and end with the test binary,
// on Linux also when it is killed. A method that can't do its work fails the test
// that it belongs to; none returns an error.
//
// Helpers wait by asking until the servers say so, for at most 20 s, and never for a
// fixed time. Only tests may import this package.
package redistest
