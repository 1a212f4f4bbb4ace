// Command transfer moves money between accounts by jobs from the outbox, while everything is killed.
//
//	go run .
//	DATABASE_URL=postgres://... go run .
//
// A web process writes a transfer and its job in one transaction. A relay moves the job to Redis. A worker runs it: it takes the money from one account and gives it to the other, in
// a transaction that also records the job's effect key. So a job that runs twice moves the money once. Meanwhile the web process, the relay, the worker and Redis are killed by
// SIGKILL, one after the other, and started again. Redis writes its file at each command (appendfsync always).
//
// At the end each transfer that the web process committed must have been made once, and the sum of all accounts must be what it was. The last line says so:
//
//	transfer: ok transfers=N lost=0 doubled=0 kills=N
//
// It needs redis-server on the PATH. The database is a file of SQLite, or a PostgreSQL if DATABASE_URL is set, in which it makes tables and drops them.
//
// roles.go has the web process, the relay and the worker: that is the application. The rest is the demonstration.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const accounts, each = 10, 1000

func main() {
	transfers := flag.Int("transfers", 200, "how many transfers to commit")
	role := flag.String("role", "", "used by the program itself")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *role == "" {
		err = demonstrate(ctx, *transfers)
	} else {
		err = run(ctx, *role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

// A child is a process that is started again whenever it is killed.
type child struct {
	args []string
	env  []string
	cmd  *exec.Cmd
}

func (c *child) start() error {
	c.cmd = exec.Command(c.args[0], c.args[1:]...)
	c.cmd.Env = append(os.Environ(), c.env...)
	return c.cmd.Start()
}

func (c *child) kill() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

func demonstrate(ctx context.Context, transfers int) (err error) {
	dir, err := os.MkdirTemp("", "transfer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if os.Getenv("TRANSFER_FILE") == "" {
		_ = os.Setenv("TRANSFER_FILE", filepath.Join(dir, "bank.db"))
	}
	_ = os.Setenv("TRANSFER_REDIS", addr)

	db, d, err := openBank()
	if err != nil {
		return err
	}
	defer db.Close()
	if err := install(ctx, db, d); err != nil {
		return err
	}
	defer func() { dropTables(ctx, db) }()

	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := &child{args: []string{"redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"}}
	all := []*child{server, {args: []string{self, "-role", "web"}}, {args: []string{self, "-role", "relay"}}, {args: []string{self, "-role", "worker"}}}
	for _, c := range all {
		if err := c.start(); err != nil {
			return fmt.Errorf("start %s: %w; this needs redis-server on the PATH", c.args[0], err)
		}
		defer c.kill()
	}
	kills := 0
	for n := 0; n < transfers; {
		time.Sleep(300 * time.Millisecond)
		victim := all[kills%len(all)]
		victim.kill()
		kills++
		if err := victim.start(); err != nil {
			return err
		}
		if n, err = count(ctx, db, "SELECT COUNT(*) FROM transfers"); err != nil {
			return err
		}
	}
	all[1].kill() // no more transfers
	fmt.Printf("killed %d times; waiting for the last transfers\n", kills)

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left, err := count(ctx, db, "SELECT COUNT(*) FROM transfers WHERE NOT EXISTS (SELECT 1 FROM moves WHERE moves.transfer = transfers.id)")
		if err != nil {
			return err
		}
		jobs, err := rdb.HLen(ctx, "signalbox:{default:money}:jobs").Result()
		if left == 0 && err == nil && jobs == 0 || time.Now().After(end) {
			break
		}
	}
	return judge(ctx, db, kills)
}

// judge compares what was committed with what was moved.
func judge(ctx context.Context, db *sql.DB, kills int) error {
	var made, lost, doubled, sum, wrong int
	for query, into := range map[string]*int{
		"SELECT COUNT(*) FROM transfers": &made,
		"SELECT COUNT(*) FROM transfers WHERE NOT EXISTS (SELECT 1 FROM moves WHERE moves.transfer = transfers.id)": &lost,
		"SELECT COUNT(*) FROM (SELECT transfer FROM moves GROUP BY transfer HAVING COUNT(*) > 1) AS twice":          &doubled,
		"SELECT SUM(balance) FROM accounts": &sum,
		"SELECT COUNT(*) FROM accounts WHERE balance <> 1000 + COALESCE((SELECT SUM(amount) FROM moves WHERE payee = accounts.id), 0) - COALESCE((SELECT SUM(amount) FROM moves WHERE payer = accounts.id), 0)": &wrong,
	} {
		n, err := count(ctx, db, query)
		if err != nil {
			return err
		}
		*into = n
	}
	word := "ok"
	if lost+doubled+wrong > 0 || sum != accounts*each {
		word = "failed"
	}
	fmt.Printf("accounts: sum=%d of %d, wrong=%d\n", sum, accounts*each, wrong)
	fmt.Printf("transfer: %s transfers=%d lost=%d doubled=%d kills=%d\n", word, made, lost, doubled, kills)
	if word != "ok" {
		os.Exit(1)
	}
	return nil
}
