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
// If a newer holder has entered and committed, the error is a [StaleError]. It is an [ErrForeign] if the mark is of another issuer. An error
// that the database answers with for a conflict is passed on: [DB.InTx] and [Replay] run the transaction again.
//
// A holder that isn't superseded may enter, even if its lease has ended: nobody else has entered since.
//
// Keys have 1 to 1024 bytes of UTF-8 without NUL.
func (g *Guard) Enter(ctx context.Context, leases ...lock.Lease) error {
	if err := g.ready(); err != nil {
		return err
	}
	grants, err := grantsOf(ctx, leases)
	if err != nil {
		return g.fail(err)
	}
	if g.used {
		return g.fail(invalid("Enter comes too late: a statement or a guard has run in this transaction. Enter first, with all leases at once"))
	}
	g.used = true
	for _, grant := range grants {
		if err := g.enter(ctx, grant); err != nil {
			return g.fail(err)
		}
	}
	return nil
}

func (g *Guard) enter(ctx context.Context, grant Grant) error {
	st, doing := g.dialect.statements(), "enter "+grant.resource
	rows, err := g.conn.exec(ctx, st.raise, grant.resource, grant.issuer, grant.holder, grant.token)
	if err != nil {
		return g.dialect.explain(doing, err)
	}
	if rows > 0 && g.dialect != MariaDB {
		return nil
	}
	var issuer, holder string
	var token, within int64
	switch err := g.conn.scan(ctx, st.mark, []any{grant.resource}, []any{&issuer, &holder, &token, &within}); {
	case err != nil:
		return g.dialect.explain(doing, err)
	case within == 0:
		return g.dialect.explain(doing, errNoTransaction)
	}
	err = grant.judge(issuer, holder, token)
	if err == nil && g.dialect != MariaDB {
		err = errors.New("fence: " + doing + ": the mark wasn't raised, though the token isn't stale; is there a trigger on signalbox_fence?")
	}
	return err
}

// errNoTransaction says that MariaDB has ended the transaction, because of a deadlock that the caller hasn't noticed.
var errNoTransaction = errors.New("the server has no transaction: an earlier error, such as a deadlock, has ended it; roll it back and run all of it again")
