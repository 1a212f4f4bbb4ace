package pglock_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// One locker serves all keys, as long as the process runs. Here the table is created at the start; in production that
// is a migration.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	schema, err := pglock.Schema("") // the default table
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		fmt.Println(err)
		return
	}
	locker, err := pglock.New(pool, pglock.Config{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = lock.Do(ctx, locker, "report:2024-05", func(ctx context.Context) error {
		lease, _ := lock.FromContext(ctx)
		return write(ctx, lease.Token()) // the store refuses a token that is smaller than the largest it has seen
	})
	if err != nil {
		fmt.Println(err)
	}
}

func write(context.Context, int64) error { return nil }

func ExampleSchema() {
	schema, err := pglock.Schema("app.locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(schema) > 0)
	_, err = pglock.Schema("app.locks; DROP TABLE users")
	fmt.Println(err)
	// Output:
	// true
	// lock: invalid: Table is "app.locks; DROP TABLE users"; it must be name or schema.name, each of 1 to 63 of a-z, 0-9 and _, and not begin with a digit
}
