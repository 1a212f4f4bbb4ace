package zklock

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

const childAddr, childKey = "ZKLOCK_TEST_ADDR", "ZKLOCK_TEST_KEY"

// A child is another process of this test that acquires a lock with a TTL of a second and extends it.
// Its session lasts 4 s.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	ended <-chan struct{}
}

func startChild(t *testing.T, addr, key string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childAddr+"="+addr, childKey+"="+key)
	cmd.Stderr = os.Stderr
	out, in, err := os.Pipe() // that of exec.Cmd would be closed with the child, even if it isn't read yet
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	cmd.Stdout = in
	ended, err := servertest.Start(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, lines: bufio.NewScanner(out), ended: ended}
	t.Cleanup(c.kill)
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// says returns the rest of the next line, which must begin with a word.
func (c *child) says(t *testing.T, word string) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child has ended instead of saying %q", word)
	}
	rest, ok := strings.CutPrefix(c.lines.Text(), word)
	if !ok {
		t.Fatalf("the child says %q; want %q", c.lines.Text(), word)
	}
	return strings.TrimSpace(rest)
}

// holdInChild is what a child does. After each step it says what it knows.
func holdInChild() {
	ctx := context.Background()
	l, err := New([]string{os.Getenv(childAddr)}, Config{TTL: time.Second, SessionTimeout: 4 * time.Second, Owner: "child"})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("asks")
	k, err := l.Acquire(ctx, os.Getenv(childKey))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("holds", k.Token())
	for k.Context().Err() == nil {
		time.Sleep(50 * time.Millisecond)
		if k.Context().Err() == nil {
			_ = k.Extend(ctx)
		}
	}
	fmt.Println("lost", time.Now().UnixNano(), context.Cause(k.Context()))
	fmt.Println("extend", k.Extend(ctx))
	fmt.Println("release", k.Release(ctx))
}
