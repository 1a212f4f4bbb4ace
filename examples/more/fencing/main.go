// Command fencing shows why a lock isn't enough, and what a fencing token is for.
//
//	cd examples/more/fencing
//	go run . -check=false
//	go run . -check=true
//
// Two clients, each a process, change the same row of a database. Each takes a lock first. Client 1 has the lock and is
// about to write. Then it is stopped by SIGSTOP, for longer than its lease lasts. That stands for a pause of the garbage collector, of the virtual machine, or
// of the network. Client 2 gets the lock, with a larger token, and writes. Then client 1 wakes up. It doesn't know how long
// it slept, and writes late.
//
// With -check=false the storage takes both writes: the late one undoes that of client 2. With -check=true, the default, each transaction
// enters by its token first, and that of client 1 is refused: see write in client.go.
//
// It needs only Go: the lock is in a Redis inside its own process, and the storage is SQLite in a temporary file. With REDIS_URL
// it uses a real Redis, and with DATABASE_URL a PostgreSQL (postgres://...), in tables named signalbox_fence and fencing_example, where it deletes its rows at the end. It
// runs on systems that have SIGSTOP: Linux, macOS, BSD.
//
// The last line of the output counts:
//
//	fencing: check=true accepted=1 rejected=1 corrupted=0
//
// The exit status is 1 if the check let the late write pass, or if without it nothing was corrupted.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
)

// timeLimit bounds the whole run, on a slow machine.
const timeLimit = time.Minute

func main() {
	if os.Getenv(envClient) != "" {
		exitOn(client(context.Background(), os.Stdin, os.Stdout))
		return
	}
	check := flag.Bool("check", true, "the storage `compares` the fencing tokens")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "what is %q?\n", flag.Args())
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done after %v", timeLimit))
	defer cancel()
	sum, err := run(ctx, *check, os.Getenv(envRedis), os.Getenv(envDatabase), os.Stdout)
	if err == nil {
		fmt.Println(sum)
		err = sum.problem()
	}
	exitOn(err)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// A summary is what became of the two writes.
type summary struct {
	check                         bool
	accepted, rejected, corrupted int
}

func (s summary) String() string {
	return fmt.Sprintf("fencing: check=%v accepted=%d rejected=%d corrupted=%d", s.check, s.accepted, s.rejected, s.corrupted)
}

// problem returns an error if the run didn't show what it should.
func (s summary) problem() error {
	want := summary{check: s.check, accepted: 2, corrupted: 1}
	if s.check {
		want = summary{check: true, accepted: 1, rejected: 1}
	}
	if s != want {
		return fmt.Errorf("want %v", want)
	}
	return nil
}

// run runs the whole demonstration. Without URLs it uses a Redis in this process and a SQLite in a temporary folder.
func run(ctx context.Context, check bool, redisURL, databaseURL string, out io.Writer) (sum summary, err error) {
	defer func() {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}()
	sum.check = check
	if redisURL == "" {
		server, err := embedded.Start()
		if err != nil {
			return sum, err
		}
		defer server.Close()
		redisURL = "redis://" + server.Addr()
	}
	if databaseURL == "" {
		dir, err := os.MkdirTemp("", "fencing-")
		if err != nil {
			return sum, err
		}
		defer os.RemoveAll(dir)
		databaseURL = "file:" + filepath.ToSlash(filepath.Join(dir, "storage.db"))
	}
	account := "fencing-example-" + strings.ToLower(rand.Text()[:12])
	store, err := openStorage(databaseURL)
	if err != nil {
		return sum, err
	}
	defer store.close()
	if err := store.create(ctx, account); err != nil {
		return sum, err
	}
	defer func() {
		err = errors.Join(err, store.remove(context.WithoutCancel(ctx), account), forget(redisURL, account))
	}()
	fmt.Fprintf(out, "fencing: the storage is %v, check=%v\n", store.dialect, check)

	// Client 1 gets the lock, and is about to write.
	first, err := start(ctx, 1, account, check, redisURL, databaseURL)
	if err != nil {
		return sum, err
	}
	defer first.end()
	token1, err := first.hears("token")
	if err != nil {
		return sum, err
	}
	fmt.Fprintf(out, "  client 1 has the lock, with token %s, and is about to write\n", token1)
	if err := pause(first.cmd.Process); err != nil {
		return sum, err
	}
	fmt.Fprintf(out, "  client 1 is stopped\n")
	if err := first.says("write"); err != nil { // it will read that when it wakes up
		return sum, err
	}

	// Client 2 waits for the lock, until the lease of client 1 has ended.
	second, err := start(ctx, 2, account, check, redisURL, databaseURL)
	if err != nil {
		return sum, err
	}
	defer second.end()
	token2, err := second.hears("token")
	if err != nil {
		return sum, err
	}
	fmt.Fprintf(out, "  client 2 has the lock, with token %s\n", token2)
	if err := errors.Join(second.says("write"), sum.hear(second, out, "client 2 writes")); err != nil {
		return sum, err
	}

	if err := wake(first.cmd.Process); err != nil {
		return sum, err
	}
	if err := sum.hear(first, out, "client 1 wakes up and writes late"); err != nil {
		return sum, err
	}
	content, err := store.content(ctx, account)
	if err != nil {
		return sum, err
	}
	fmt.Fprintf(out, "  the storage has: %s\n", content)
	if want := "by the holder of token " + token2; content != want {
		sum.corrupted++
	}
	return sum, nil
}

// hear counts what became of a client's write.
func (s *summary) hear(p *process, out io.Writer, what string) error {
	outcome, err := p.hears("write")
	if err != nil {
		return err
	}
	if outcome == "accepted" {
		s.accepted++
	} else {
		s.rejected++
	}
	fmt.Fprintf(out, "  %s: %s\n", what, outcome)
	return nil
}

// A process is a client. It says lines of two words or more.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

func start(ctx context.Context, n int, account string, check bool, redisURL, databaseURL string) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: fmt.Sprint("client ", n), cmd: exec.CommandContext(ctx, path)} // at the end of ctx it is killed, also while it is stopped
	p.cmd.Env = append(os.Environ(), envClient+"="+account, fmt.Sprintf("%s=%v", envCheck, check), envRedis+"="+redisURL, envDatabase+"="+databaseURL)
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(stdout)
	return p, p.cmd.Start()
}

// hears returns the rest of the client's next line, which begins with a word.
func (p *process) hears(word string) (string, error) {
	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s has ended early: %w", p.name, err)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" ")
	if !ok {
		return "", fmt.Errorf("%s says %q", p.name, line)
	}
	return rest, nil
}

func (p *process) says(word string) error {
	_, err := fmt.Fprintln(p.stdin, word)
	return err
}

// end ends the client, also if it is stopped.
func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // its result doesn't matter any more
}

// forget deletes the lock's record from Redis, since nobody locks that key again.
func forget(redisURL, account string) error {
	opt, err := parseRedis(redisURL)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	return rdb.Del(context.Background(), account, account+"{"+account+"}:fence", account+"{"+account+"}:wait").Err()
}
