package servertest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each server keeps its address, and answers again after a crash and after a shutdown.
func TestServersStartAgain(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *servertest.Server{
		"PostgreSQL": func(t testing.TB) *servertest.Server { return servertest.PostgreSQL(t) },
		"MariaDB":    func(t testing.TB) *servertest.Server { return servertest.MariaDB(t) },
		"etcd":       func(t testing.TB) *servertest.Server { return servertest.Etcd(t, 1)[0] },
		"ZooKeeper":  func(t testing.TB) *servertest.Server { return servertest.ZooKeeper(t, 1)[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			first := s.Pid()
			s.Kill()
			if _, err := net.Dial("tcp", s.Addr()); err == nil {
				t.Error("a killed server accepts connections")
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if err := s.Terminate(); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if s.Pid() == first {
				t.Error("the server was not started again")
			}
		})
	}
}

// A link passes bytes, holds them, and refuses connections.
func TestLink(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // an echo server; ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	link := servertest.NewLink(t, l.Addr().String())
	c, err := net.Dial("tcp", link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	echo := func(within time.Duration) error {
		if _, err := c.Write([]byte("a")); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if err := echo(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for name, hold := range map[string]func(){"Hold": link.Hold, "HoldReplies": link.HoldReplies} {
		hold()
		if err := echo(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("under %s a byte came back: %v", name, err)
		}
		link.Heal()
		if err := echo(10 * time.Second); err != nil { // the byte that was held, or its successor
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // at once, and whatever else this process starts meanwhile
		link.Cut()
		if err := echo(10 * time.Second); err == nil {
			t.Error("a byte passed a link that was cut")
		}
		if c, err := net.Dial("tcp", link.Addr()); err == nil {
			c.Close()
			t.Error("a link that was cut accepts connections")
		}
		link.Heal()
		c.Close()
		if c, err = net.Dial("tcp", link.Addr()); err != nil {
			t.Fatal(err)
		}
		if err := echo(10 * time.Second); err != nil {
			t.Fatalf("after Heal: %v", err)
		}
	}
	c.Close()
}
