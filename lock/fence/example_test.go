package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// A grant is a lease of which the holder has been superseded, or not.
type grant struct {
	lock.Lease
	token int64
}

func (g grant) Key() string    { return "{account:7}:lock" }
func (g grant) Token() int64   { return g.token }
func (g grant) Issuer() string { return "redis" }
func (g grant) Holder() string { return fmt.Sprint("holder of ", g.token) }

// under returns a context as a handler has it under a lock.
func under(token int64) context.Context {
	return lock.NewContext(context.Background(), grant{token: token})
}

// A handler enters first, then reads, computes and writes.
func ExampleDB_InTx() {
	handle := func(ctx context.Context, db *fence.DB) error {
		return db.InTx(ctx, func(tx *fence.Tx) error {
			if err := tx.Enter(ctx); err != nil {
				return err
			}
			var balance int64
			if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", balance+balance/100)
			return err
		})
	}
	_ = handle
}

// The next delivery of the job gets the ID that the first one has drawn.
func ExampleResult() {
	handle := func(ctx context.Context, db *fence.DB) (invoice int64, err error) {
		err = db.InTx(ctx, func(tx *fence.Tx) error {
			invoice, err = fence.Result(ctx, tx.Guard, "invoice", func() (id int64, err error) {
				err = tx.QueryRowContext(ctx, "INSERT INTO invoices DEFAULT VALUES RETURNING id").Scan(&id)
				return id, err
			})
			return err
		})
		return invoice, err
	}
	_ = handle
}

// A transaction of your own stays yours.
func ExampleSQL() {
	handle := func(ctx context.Context, tx *sql.Tx) error {
		return fence.SQL(tx, fence.PostgreSQL).Enter(ctx)
	}
	_ = handle
}

func ExampleRedis() {
	server, err := embedded.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	guard := fence.NewRedis(rdb)
	fmt.Println(guard.Set(under(6), "{account:7}:balance", 100, 0))
	err = guard.Set(under(5), "{account:7}:balance", 90, 0) // it comes late
	fmt.Println(errors.Is(err, fence.ErrStale), rdb.Get(context.Background(), "{account:7}:balance").Val())
	// Output:
	// <nil>
	// true 100
}

func ExampleGate() {
	gate := &fence.Gate{Authorize: func(r *http.Request, g fence.Grant) error {
		return nil // authenticate the sender here
	}}
	server := httptest.NewServer(gate.OneProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("served")
	})))
	defer server.Close()

	client := &http.Client{Transport: &fence.Transport{}}
	for _, token := range []int64{6, 5} {
		req, err := http.NewRequestWithContext(under(token), http.MethodPut, server.URL, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		stale, _ := errors.AsType[*fence.StaleError](fence.CheckResponse(resp))
		resp.Body.Close()
		if stale != nil {
			fmt.Println(resp.StatusCode, stale.Token, stale.Highest)
		}
	}
	client.CloseIdleConnections()
	// Output:
	// served
	// 409 5 6
}

func ExampleWriteFile() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "report")

	fmt.Println(fence.WriteFile(under(6), name, []byte("new"), 0o600))
	err = fence.WriteFile(under(5), name, []byte("late"), 0o600)
	fmt.Println(errors.Is(err, fence.ErrStale))
	data, token, err := fence.ReadFile(name)
	fmt.Printf("%s %d %v\n", data, token, err)
	// Output:
	// <nil>
	// true
	// new 6 <nil>
}
