// Package fence keeps effects right when a lease has ended and its holder doesn't know. It has two kinds of guards.
//
// A guard on the token refuses a holder that was superseded. It keeps, for each resource, the largest fencing token
// that has entered: its mark. The resource is the lease's key. The promise is: no effect of a superseded holder lands
// after a newer holder has entered. In SQL call [Guard.Enter] before the transaction's first read. If the token were
// compared on the write only, two holders could read the same state, and the second write would undo the first.
//
// [Guard.Once] has an effect once per job, however often the job is delivered. It records the job's effect key in the
// transaction of the effect.
//
// In a handler each is one line, since the lease and the effect key come from the context:
//
//	err := db.InTx(ctx, func(tx *fence.Tx) error {
//		if err := tx.Enter(ctx); err != nil {
//			return err
//		}
//		return tx.Once(ctx, "debit", func() error {
//			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 7")
//			return err
//		})
//	})
//
// [DB.InTx] owns the transaction and replays it after a serialization failure or a deadlock. A transaction of your own
// is guarded by [SQL] or [Pgx]. Then you replay it, as a whole, if the database asks for that.
//
// Other stores: [Redis] for Redis, [Transport] and [Gate] for HTTP, [WriteFile] for files.
//
// # Caveats
//
// Each resource has one issuer of tokens. Tokens of another issuer are [ErrForeign]: they can't be compared. The token
// of a job's lease guards that job only. To guard an account, take a lock on the account, and enter with its lease.
//
// An effect outside of the guarded transaction isn't guarded. Marks are never deleted: each resource costs a row.
package fence
