// Package etcdlock holds locks in etcd. Use it where a lock must outlive the loss of a machine, and must not rest on the
// memory of one Redis: etcd writes each grant to the disks of a majority before it answers.
//
// A [Locker] is a [lock.Locker]. The locks, the errors and the promises are those of package lock.
//
//	locker, err := etcdlock.New(client, etcdlock.Config{TTL: 10 * time.Second})
//	if err != nil {
//		return err
//	}
//	err = lock.Do(ctx, locker, "digest", build)
//
// # How it works
//
// Each lock has a place in a queue, which is a key of its own, and a lease, which is etcd's word for a time after which
// it deletes that key. The first in the queue holds the lock. The others wait: each watches only the place before its
// own, and extends its lease once in a third of the TTL. A waiter calls etcd for nothing else.
//
// When a lock is released its lease is kept for the next lock of the same [Locker]. So an acquire and a release usually cost etcd two
// writes to disk. Two locks never share a lease at the same time. Nobody renews a lease without a lock: it ends by itself.
//
// The token is the create revision of the holder's key. etcd counts one revision up with each write, for all keys. So
// the tokens of all keys of one etcd are in the order of the grants.
//
// The validity of a lock counts from the moment before the call that granted or renewed it, and lasts for the TTL minus
// 1 % and 2 ms. No clock of a server is read. An acknowledged renewal counts only if a majority writes in the same term of
// the leader that the key is there: a leader that was paused and replaced goes on acknowledging for a moment. No read
// proves a lock: after a pause some releases of etcd answer reads with old data.
//
// # What is promised
//
// Mutual exclusion rests on time, as with any lease: on an etcd whose leader doesn't expire a lease before its TTL, and
// on holders that notice their pauses. A lease's context helps with the latter. Fencing doesn't rest on time: tokens grow
// while etcd keeps its data. Check the token where two holders would do harm.
//
// # Caveats
//
//   - etcd counts leases in whole seconds, and has a shortest one: 2 s with its default settings. A TTL of 1.5 s is a
//     lease of 2 s. The holder believes in its TTL or the lease, whichever is shorter. So the lock of a dead holder lives
//     until the lease ends. The server looks for ended leases twice a second. After a change of leader and after a restart
//     every lease begins again with its full time.
//   - A leader that was paused and has been replaced may end leases that were renewed meanwhile (etcd's issue 15247).
//     etcd has a remedy since 3.4.31, 3.5.13 and 3.6 (its change 16822). Debian 12 has 3.4.23, without it. The holder
//     learns of it when it next extends the lock; another may have it by then. The tokens tell them apart.
//   - After a restore from a snapshot revisions begin again at that of the snapshot, and so do tokens. Stop all holders first, and
//     restore with etcdutl's --bump-revision and --mark-compacted, which etcd has since 3.5.10 and 3.6. Without them
//     a store that has seen later tokens refuses all holders until the tokens have passed those.
//   - A member that hangs with its connections open is left only if the client has DialKeepAliveTime and
//     DialKeepAliveTimeout set, and several endpoints.
//   - Locks aren't reentrant. Two lockers exclude each other only if they have the same Prefix.
//   - If etcd has users, the client's needs the permission to read and write the keys with the Prefix. If such an
//     etcd is older than 3.5, set [Relogin]: otherwise the first call is refused.
package etcdlock
