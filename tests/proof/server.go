package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// portTaken is the message of redis-server if its port is taken.
const portTaken = "Address already in use"

// A server is a redis-server. It keeps nothing on disk, unless a fault needs that. So a crash loses
// its memory. Its address never changes.
type server struct {
	path, port, addr string
	dir              string        // of this server alone
	admin            *redis.Client // not through the proxy; for faults

	process *process
	log     *bytes.Buffer // may be read when the process has ended
}

// startServer starts a server on a free port. If another process takes the port before the server
// does, it tries another port.
func startServer(ctx context.Context) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("the proof needs redis-server on the PATH: %w", err)
	}
	for tries := 0; ; tries++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "lock-proof-")
		if err != nil {
			return nil, err
		}
		s := &server{path: path, port: port, addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
		s.admin = redis.NewClient(&redis.Options{
			Addr: s.addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second,
		})
		err = s.run(ctx, fromNothing)
		if err == nil {
			return s, nil
		}
		s.close()
		if tries == 10 || !strings.Contains(err.Error(), portTaken) {
			return nil, err
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

// An origin is the data that a server starts with.
type origin int

const (
	fromNothing  origin = iota
	fromSnapshot        // the RDB file in its folder
	fromLog             // the append-only file in its folder
)

// run starts the process, for the first time or after a kill. It returns when the server answers.
func (s *server) run(ctx context.Context, from origin) error {
	appendOnly := "no"
	switch from {
	case fromNothing:
		if err := errors.Join(os.RemoveAll(s.snapshot()), os.RemoveAll(s.logFolder())); err != nil {
			return err
		}
	case fromLog:
		appendOnly = "yes"
	}
	s.log = &bytes.Buffer{}
	cmd := exec.Command(s.path, "--port", s.port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", appendOnly, "--appendfsync", "everysec", "--daemonize", "no", "--dir", s.dir)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	var err error
	if s.process, err = startProcess(cmd, nil); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		s.process.kill()
		return fmt.Errorf("redis-server on port %s did not start: %w\n%s", s.port, err, s.log)
	}
	return nil
}

// ready waits until this process answers, and not another one that has the port.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("it does not answer"))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", s.addr); err == nil { // otherwise the client would log each try
			_ = conn.Close()
			info, err := s.admin.Info(ctx, "server").Result()
			ours := err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.process.cmd.Process.Pid))
			if ours && s.admin.Ping(ctx).Err() == nil { // otherwise it still loads its data from disk
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-s.process.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// close ends the process and removes its files.
func (s *server) close() {
	_ = s.admin.Close()
	if s.process != nil {
		s.process.kill()
	}
	_ = os.RemoveAll(s.dir)
}
