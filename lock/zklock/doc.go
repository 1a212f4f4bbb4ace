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
//   - The guard, an empty persistent node beside the lease. All leases of a key have the same guard.
//   - The holder's mark, an ephemeral node. It vanishes with the holder's session.
//   - The queue: one ephemeral sequential node for each waiter.
//
// A grant is one transaction. It creates the lease, the guard and the mark. ZooKeeper refuses it if the guard is there. A
// takeover deletes the old lease instead, with the version that was seen. Both set the key's node, with the version that
// was seen: so each grant is based on the last one.
//
// # What is promised
//
// Mutual exclusion rests on ZooKeeper's order of writes, and on the speed of two clocks: the holder's and the next
// holder's. It doesn't rest on sessions, pings or the servers' clocks. The holder believes in its lock for the TTL, less
// 1 % and 2 ms, from the moment at which it sent the last write that ZooKeeper acknowledged. A waiter takes a lease over
// after it has seen the same version for a whole TTL by its own clock.
//
// A session is too weak for that. A follower that is cut off from the leader goes on answering the pings of its clients.
// Meanwhile the leader ends their sessions.
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
// If the connection breaks, the client looks for another server, and a call is made again. A grant or a place in the
// queue whose reply was lost is found again by its random ID. What an acquire leaves behind is deleted in the background.
//
// # What a dead holder costs
//
// A waiter gets its lock one to two TTLs after its last extension: the waiter reads once each TTL, and waits for a TTL from
// the read that found the last version. SessionTimeout adds nothing to that, except for TryAcquire: see above. A holder that lives but doesn't extend its lock deletes the lease itself when its validity ends.
//
// A waiter whose process dies or is stopped keeps its place until its session ends. Those behind it wait as long.
//
// # Caveats
//
// A lock ends with its session: its context ends with lock.ErrLost as soon as the client learns of that. Locks aren't
// reentrant. ZooKeeper must be 3.5 or later, since keys are container nodes, which ZooKeeper deletes when they are empty.
// If a holder dies and nobody asks for its key again, its lease of some 100 bytes stays. To delete nodes by hand is to
// take locks away from their holders.
//
// New takes addresses and not a *zk.Conn. The locker must know when the session ends, and a *zk.Conn reports that only to
// the callback that it was made with. Its dialer also bounds how long a stopped server can hold the client up.
package zklock
