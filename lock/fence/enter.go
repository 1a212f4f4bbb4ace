package fence

import (
	"context"
	"errors"

	"github.com/signalbox-go/signalbox/lock"
)

// Enter raises the marks of the leases' keys. Without leases it takes the innermost one of ctx, as
// [lock.FromContext] returns it. Call it before the transaction's first read, with all leases at once: it enters them in
// the order of their keys, so that two transactions can't wait for each other. Until the transaction ends, other
// holders' Enter waits.
//
// In a [Tx] an Enter that comes after another statement is an error. In a transaction of your own PostgreSQL notices only that it has written or
// locked rows. Nothing notices that it has read. No error comes either if you roll back to a savepoint that is older than the Enter, which
// undoes the mark. In a [Tx] a savepoint can't be older.
//
// If a newer holder has entered and committed, the error is a [StaleError]. It is an [ErrForeign] if the mark is of another issuer. An error
// that the database answers with for a conflict is passed on: [DB.InTx] and [Replay] run the transaction again.
//
// A holder that isn't superseded may enter, even if its lease has ended: nobody else has entered since.
//
// Keys have 1 to 1024 bytes of UTF-8 without NUL.
func (g *Guard) Enter(ctx context.Context, leases ...lock.Lease) error {
	if err := g.ready(ctx); err != nil {
		return err
	}
	grants, err := grantsOf(ctx, leases)
	if err != nil {
		return g.fail(err)
	}
	if g.used {
		return g.fail(errLate())
	}
	g.used = true
	for i, grant := range grants {
		if err := g.enter(ctx, grant, i == 0); err != nil {
			return g.fail(err)
		}
	}
	return nil
}

func errLate() error {
	return invalid("Enter comes too late: a statement or a guard has run in this transaction. Enter first, with all leases at once")
}

// enter raises one mark. PostgreSQL raises the first one only if the transaction has written nothing.
func (g *Guard) enter(ctx context.Context, grant Grant, first bool) error {
	st, doing := g.dialect.statements(), "enter "+grant.resource
	raise := st.raise
	if first && st.first != "" {
		raise = st.first
	}
	rows, err := g.write(ctx, raise, grant.resource, grant.issuer, grant.holder, grant.token)
	if err != nil {
		return g.dialect.explain(doing, err)
	}
	if rows > 0 && g.dialect != MariaDB {
		return nil
	}
	var issuer, holder string
	var token, within int64
	switch err := g.conn.scan(ctx, st.mark, []any{grant.resource}, []any{&issuer, &holder, &token, &within}); {
	case isNoRows(err) && first && g.dialect == PostgreSQL:
		return errLate()
	case err != nil:
		return g.dialect.explain(doing, err)
	case within == 0:
		return g.dialect.explain(doing, ErrNoTransaction)
	}
	err = grant.judge(issuer, holder, token)
	if err == nil && first && g.dialect == PostgreSQL {
		return errLate()
	}
	if err == nil && g.dialect != MariaDB {
		err = errors.New("fence: " + doing + ": the mark wasn't raised, though the token isn't stale; is there a trigger on signalbox_fence?")
	}
	return err
}
