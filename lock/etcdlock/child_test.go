package etcdlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// With this environment variable, "<address> <key> <TTL>", the test binary is a holder in a process of its own.
const childEnv = "SIGNALBOX_ETCDLOCK_TEST_CHILD"

// childMain gets the lock and prints its token. It holds the lock without extending it, until the context ends. Then it prints
// what it finds.
func childMain(args string) {
	var addr, key string
	var ttl time.Duration
	words := strings.Fields(args)
	addr, key = words[0], words[1]
	ttl, _ = time.ParseDuration(words[2])
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := New(client, Config{TTL: ttl, Owner: "child"})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := r.Acquire(context.Background(), key)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("token", l.Token())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // the parent has ended
	<-l.Context().Done()
	fmt.Println("lost", errors.Is(context.Cause(l.Context()), lock.ErrLost), "extend", errors.Is(l.Extend(context.Background()), lock.ErrLost),
		"taken", errors.Is(l.Release(context.Background()), lock.ErrTaken))
}

// A child is a holder in a process of its own.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	token int64
	ended <-chan struct{}
}

func startChild(t *testing.T, addr, key string, ttl time.Duration) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+fmt.Sprint(addr, " ", key, " ", ttl))
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c.cmd.Stdout = w
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.ended, err = servertest.Start(c.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
		stdin.Close()
		out.Close()
	})
	c.lines = bufio.NewScanner(out)
	if line := c.line(); !scan(line, "token %d", &c.token) {
		t.Fatalf("the child said %q", line)
	}
	return c
}

func scan(line, format string, v ...any) bool {
	n, err := fmt.Sscanf(line, format, v...)
	return err == nil && n == len(v)
}

func (c *child) line() string {
	c.lines.Scan()
	return c.lines.Text()
}
