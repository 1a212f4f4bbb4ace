package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// The environment tells a process what to do. URLs aren't in a command line, where all users of the machine could read their passwords.
const (
	envClient   = "FENCING_CLIENT" // the account
	envCheck    = "FENCING_CHECK"
	envRedis    = "REDIS_URL"
	envDatabase = "DATABASE_URL"
)

// leaseTTL is short, so that the demonstration is.
const leaseTTL = time.Second

// client is the main function of a client. It takes the lock, says its token, waits for a line, and writes.
func client(ctx context.Context, in io.Reader, out io.Writer) error {
	account := os.Getenv(envClient)
	opt, err := parseRedis(os.Getenv(envRedis))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	store, err := openStorage(os.Getenv(envDatabase))
	if err != nil {
		return err
	}
	defer store.close()
	locker, err := lock.New(rdb, lock.Config{TTL: leaseTTL})
	if err != nil {
		return err
	}
	lease, err := locker.Acquire(ctx, account)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }() // that of client 1 has ended by then
	if lease.Context().Err() != nil {
		return context.Cause(lease.Context())
	}
	fmt.Fprintf(out, "token %d\n", lease.Token())

	// The lease was checked a moment ago. What comes now may take long, and nobody notices.
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	err = store.write(ctx, account, lease, os.Getenv(envCheck) == "true")
	switch {
	case err == nil:
		fmt.Fprintln(out, "write accepted")
	case errors.Is(err, fence.ErrStale):
		fmt.Fprintf(out, "write rejected: %v\n", err)
	default:
		return err
	}
	return nil
}

// write sets the account's content.
func (s *storage) write(ctx context.Context, account string, lease lock.Lease, check bool) error {
	content := fmt.Sprint("by the holder of token ", lease.Token())
	if !check {
		return s.set(ctx, s.pool, account, content)
	}
	return s.db.InTx(ctx, func(tx *fence.Tx) error {
		if err := tx.Enter(ctx, lease); err != nil { // in a handler of a job: tx.Enter(ctx)
			return err
		}
		return s.set(ctx, tx, account, content)
	})
}

// set writes without any check.
func (s *storage) set(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, account, content string,
) error {
	_, err := db.ExecContext(ctx, "UPDATE fencing_example SET content = $1 WHERE account = $2", content, account)
	return err
}
