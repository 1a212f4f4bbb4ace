// Package pglock grants the locks of package lock on PostgreSQL, with pgx.
//
// A [Locker] keeps one row for each key that was ever locked: the last fencing token, who got it, and until when. To
// grant a lock is one statement, which takes the row if its time is over. The server's clock says so. A transaction is
// not needed, and no connection is held meanwhile. A holder extends and releases a lock by its random value. So what it
// does late changes nothing.
//
// Create the table with [Schema], as a migration. Then:
//
//	locker, err := pglock.New(pool, pglock.Config{}) // one for all keys
//	if err != nil {
//		return err
//	}
//	err = lock.Do(ctx, locker, "digest", build)
//
// # Waiting
//
// Waiters queue twice. In each process there is a queue per key, in the order of coming. Only its first waiter asks
// PostgreSQL. Among processes there is no order. A release notifies the processes that wait (LISTEN and NOTIFY), and
// nobody polls: a waiter asks again when it is notified, and when the holder's time is over. A locker listens on one
// connection of its own, beside the pool, only while somebody waits. If that connection breaks, waiters ask every 250 to
// 500 ms until there is a new one.
//
// A release without waiters sends no notification. With waiters it does, and PostgreSQL lets transactions that notify
// commit only one after the other.
//
// # What is promised
//
// Mutual exclusion, as package lock describes it, as long as the server keeps what it has committed, and its clock
// doesn't step forward. It survives a crash of the server and its restart. A server that hangs, or is cut off, grants
// nothing; a holder that can't extend its lock knows that it has lost it before anybody else gets it.
//
// Fencing: a token is larger than all earlier tokens of its key, whatever the clock does. It is the server's clock in
// µs or the last token plus one, whichever is larger. That rests on the row. If it is gone, tokens go on from the
// clock. So never delete rows. A row with a short key takes some 150 bytes.
//
// # Caveats
//
//   - Failover to an asynchronous replica: the replica may not have seen the latest grants. Then two can hold a lock until
//     the first one's time is over, and the order of their tokens rests on the servers' clocks. Use a synchronous replica,
//     or check tokens in a store that didn't fail over with the locks.
//   - A restored backup forgets grants in the same way.
//   - If the server's clock steps forward by more than what is left of a lease, another can get the lock while its
//     holder still believes in it. If it steps back, the lock of a dead holder stays held for longer.
//   - With synchronous_commit off, a crash forgets grants. Such a server is refused, and so is an unlogged table.
//     The check is made once, with the first lock. fsync = off does the same, and isn't checked.
//   - A transaction pooler, such as PgBouncer, can be between pool and server. Set [Config].Listen to the server's own
//     address. Otherwise waiters ask every 250 to 500 ms. A pooler that doesn't know prepared statements needs
//     default_query_exec_mode=exec in the pool's connection string.
//   - Each call needs a connection of the pool for a moment. Functions that hold all of its connections while they wait
//     for locks get an error, after 5 s or the TTL if that is shorter. Give locks a pool of their own then.
//   - Every grant and every release is a commit. It costs what a commit costs, some ms on a disk that flushes.
//   - Keys are compared byte by byte: "a" and "A" are two keys. A key has 1 to 1024 bytes of UTF-8, without zero bytes.
//     Whoever may listen in the database sees hashes of keys, not the keys.
//   - Locks aren't reentrant, and are no part of the caller's transactions.
package pglock
