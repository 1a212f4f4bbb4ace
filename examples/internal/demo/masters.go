package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// portTaken is the message of redis-server if its port is taken.
const portTaken = "Address already in use"

// masters are the redis-servers that this process started. They keep nothing on disk. They are Nodes.
type masters []*master

type master struct {
	addr string
	cmd  *exec.Cmd
	log  *bytes.Buffer // may be read when the process has ended
	done chan struct{} // closed when it has ended
}

// StartMasters starts n Redis servers for Redlock, and returns when they answer. Even after an error
// the returned ones must be closed.
func StartMasters(ctx context.Context, n int) (Nodes, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return masters(nil), fmt.Errorf("redlock needs masters, so redis-server must be on the PATH (the other locks don't need it): %w", err)
	}
	var all masters
	for range n {
		m, err := startMaster(ctx, path)
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
	return all, nil
}

// startMaster starts a master on a free port. If another process takes the port before the server
// does, it tries another port.
func startMaster(ctx context.Context, path string) (*master, error) {
	for tries := 0; ; tries++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		m := &master{addr: net.JoinHostPort("127.0.0.1", port), log: &bytes.Buffer{}, done: make(chan struct{})}
		m.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1",
			"--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", os.TempDir())
		m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
		m.cmd.SysProcAttr = dieWithParent()
		if err := m.start(); err != nil {
			return nil, err
		}
		err = m.ready(ctx)
		if err == nil {
			return m, nil
		}
		m.kill()
		if tries == 10 || !strings.Contains(m.log.String(), portTaken) {
			return nil, fmt.Errorf("redis-server on port %s did not start: %w\n%s", port, err, m.log)
		}
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// start starts the process from its own thread: on Linux the process ends when that thread ends.
func (m *master) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(m.done)
		err := m.cmd.Start()
		started <- err
		if err == nil {
			_ = m.cmd.Wait() // its log says how it ended
		}
	}()
	return <-started
}

// ready waits until this process answers, and not another one that has the port.
func (m *master) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("it does not answer"))
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: m.addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Second})
	defer rdb.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", m.addr); err == nil { // otherwise the client would log each try
			_ = conn.Close()
			info, err := rdb.Info(ctx, "server").Result()
			if err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", m.cmd.Process.Pid)) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-m.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Addrs returns their addresses.
func (m masters) Addrs() []string {
	var addrs []string
	for _, master := range m {
		addrs = append(addrs, master.addr)
	}
	return addrs
}

// Kill ends the first n like a crash.
func (m masters) Kill(n int) {
	for _, master := range m[:n] {
		master.kill()
	}
}

// Close ends all of them.
func (m masters) Close() { m.Kill(len(m)) }

func (m *master) kill() {
	_ = m.cmd.Process.Kill() // SIGKILL; an error means that it has ended already
	<-m.done
}
