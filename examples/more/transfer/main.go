// Command transfer moves money between accounts by jobs from the outbox, while everything is killed.
//
//	go run .
//	DATABASE_URL=postgres://... go run .
//
// A web process writes a transfer and its job in one transaction. A relay moves the job to Redis. A worker runs it: it takes the money from one account and gives it to the other, in
// a transaction that also notes the job's effect ([fence.Guard.Once]). So a job that runs twice moves the money once. Meanwhile the web process, the relay, the worker and Redis are killed by
// SIGKILL, one after the other, and started again. Redis writes its file at each command (appendfsync always).
//
// At the end each transfer that the web process committed must have been made once, and the sum of all accounts must be what it was. The last line says so:
//
//	transfer: ok transfers=N lost=0 doubled=0 kills=N
//
// It needs redis-server on the PATH. The database is a file of SQLite, or a PostgreSQL if DATABASE_URL is set: there it makes a schema of its own, and drops it.
//
// roles.go has the web process, the relay and the worker: that is the application. The rest is the demonstration.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const accounts, each = 10, 1000

func main() {
	transfers := flag.Int("transfers", 200, "how many transfers to commit, at least")
	role := flag.String("role", "", "used by the program itself")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *role == "" {
		err = demonstrate(ctx, *transfers, os.Getenv("DATABASE_URL"), os.Stdout)
	} else {
		go endWithParent()
		err = run(ctx, *role, siteOfEnv())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

// A child is a process that is started again whenever it is killed. It ends with this process, also if that is killed: the standard input of the roles ends then, and
// the kernel ends redis-server.
type child struct {
	args  []string
	env   []string
	cmd   *exec.Cmd
	stdin io.Closer // nobody writes to it
}

func (c *child) start() (err error) {
	c.cmd = exec.Command(c.args[0], c.args[1:]...)
	c.cmd.Env = append(os.Environ(), c.env...)
	c.cmd.SysProcAttr = dieWithParent()
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w; this needs redis-server on the PATH", c.args[0], err)
	}
	return nil
}

func (c *child) kill() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// endWithParent ends this process when its parent has ended.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// demonstrate commits transfers while everything is killed, and reports to out what became of them. The error says what is wrong.
func demonstrate(ctx context.Context, transfers int, databaseURL string, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "transfer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	here := site{url: databaseURL, file: filepath.Join(dir, "bank.db"), redis: filepath.Join(dir, "redis.sock"), schema: filepath.Base(dir)}

	db, d, err := here.open()
	if err != nil {
		return err
	}
	defer db.Close()
	defer func() { err = errors.Join(err, here.remove(context.WithoutCancel(ctx), db)) }()
	if err := here.install(ctx, db, d); err != nil {
		return err
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := &child{args: []string{"redis-server", "--port", "0", "--unixsocket", here.redis, "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"}}
	all := []*child{server}
	for _, role := range []string{"web", "relay", "worker"} {
		all = append(all, &child{args: []string{self, "-role", role}, env: here.env()})
	}
	for _, c := range all {
		if err := c.start(); err != nil {
			return err
		}
		defer c.kill()
	}
	kills := 0
	for n := 0; n < transfers || kills < len(all); {
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
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
	fmt.Fprintf(out, "killed %d times; waiting for the last transfers\n", kills)

	rdb := here.client()
	defer rdb.Close()
	for end := time.Now().Add(2 * time.Minute); ; {
		left, err := count(ctx, db, "SELECT COUNT(*) FROM transfers WHERE NOT EXISTS (SELECT 1 FROM moves WHERE moves.transfer = transfers.id)")
		if err != nil {
			return err
		}
		jobs, err := rdb.HLen(ctx, "signalbox:{default:money}:jobs").Result()
		if left == 0 && err == nil && jobs == 0 || time.Now().After(end) {
			break
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return judge(ctx, db, kills, out)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// judge compares what was committed with what was moved. The error says that they differ.
func judge(ctx context.Context, db *sql.DB, kills int, out io.Writer) error {
	var made, lost, doubled, sum, wrong int
	for query, into := range map[string]*int{
		"SELECT COUNT(*) FROM transfers": &made,
		"SELECT COUNT(*) FROM transfers WHERE NOT EXISTS (SELECT 1 FROM moves WHERE moves.transfer = transfers.id)": &lost,
		"SELECT COUNT(*) FROM (SELECT transfer FROM moves GROUP BY transfer HAVING COUNT(*) > 1) AS twice":          &doubled,
		"SELECT COUNT(*) FROM moves WHERE NOT EXISTS (SELECT 1 FROM transfers WHERE transfers.id = moves.transfer)": &wrong,
		"SELECT SUM(balance) FROM accounts": &sum,
	} {
		n, err := count(ctx, db, query)
		if err != nil {
			return err
		}
		*into = n
	}
	n, err := count(ctx, db, fmt.Sprintf("SELECT COUNT(*) FROM accounts WHERE balance <> %d + COALESCE((SELECT SUM(amount) FROM moves WHERE payee = accounts.id), 0) - COALESCE((SELECT SUM(amount) FROM moves WHERE payer = accounts.id), 0)", each))
	if err != nil {
		return err
	}
	word := "ok"
	if lost+doubled+wrong+n > 0 || sum != accounts*each {
		word, err = "failed", errors.New("the money is not where it should be")
	}
	fmt.Fprintf(out, "accounts: sum=%d of %d, %d with a wrong balance; moves of no transfer: %d\n", sum, accounts*each, n, wrong)
	fmt.Fprintf(out, "transfer: %s transfers=%d lost=%d doubled=%d kills=%d\n", word, made, lost, doubled, kills)
	return err
}

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
