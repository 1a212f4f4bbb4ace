// Package zklock makes locks on ZooKeeper. They are [lock.Lock]s: lock.Do, lock.Hold and the middleware work with them.
//
//	locker, err := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, zklock.Config{})
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//	err = lock.Do(ctx, locker, "digest", build)
//
// # The parts
//
// A key is a node. Its children are:
//
//   - The lease, while the lock is held. It is a persistent node. Its czxid, the number of the transaction that created
//     it, is the fencing token. Its version counts the extensions.
//   - The holder's mark, an ephemeral node. It vanishes with the holder's session.
//   - The queue: one ephemeral sequential node for each waiter.
//
// A grant is one transaction. It creates the lease and the mark, and sets the key's node with the version that was read
// when there was no lease. So of two grants at the same time ZooKeeper refuses one.
//
// # What is promised
//
// Mutual exclusion rests on ZooKeeper's order of writes, and on the speed of two clocks: the holder's and the next
// holder's. It doesn't rest on sessions, pings or the servers' clocks. The holder believes in its lock for the TTL, less
// 1 % and 2 ms, from the moment at which it sent the last write that ZooKeeper acknowledged. A waiter takes a lease over
// after it has seen the same version for a whole TTL by its own clock.
//
// A session is too weak for that. A follower that is cut off from the leader goes on answering pings, while the leader
// ends the session. And a write that goes through a follower doesn't prolong the session at the leader.
//
// The exception is TryAcquire, which can't wait for a TTL. It takes over a lease whose holder's session has ended. It
// does so only if the lease is older than twice its TTL and 10 s, by the clocks of ZooKeeper's leaders.
//
// Fencing: tokens of a key grow with each grant, by ZooKeeper's order of transactions. They also grow if the key's node
// was deleted in between. They go back only if ZooKeeper's data is lost, or restored from a backup.
//
// # Waiting
//
// A waiter watches only the waiter before it. The first one watches the lease. A release wakes one waiter. While the
// lock is held the first waiter reads once each TTL, to find a lease that nobody extends. The others make no calls. The
// only other traffic is the session's pings.
//
// A waiter whose process dies or is stopped keeps its place until its session ends. Those behind it wait as long.
//
// # Caveats
//
// A session that ended takes its locks along: their contexts end with lock.ErrLost. Locks aren't reentrant. ZooKeeper
// must be 3.5 or later, since keys are container nodes: ZooKeeper deletes them when they are empty. If a holder dies and
// nobody ever asks for its key again, its lease of some 100 bytes stays there.
//
// The client keeps its copy of the connection: New takes addresses and not a *zk.Conn. A *zk.Conn has one callback for
// the events of its session, set when it is made. The locker needs it to know that the session ended or the connection is down.
// Its timeouts also depend on how the connection was dialed.
package zklock
