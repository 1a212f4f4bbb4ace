package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Redis that all measurements use, one after the other.
type server struct {
	addr string
	bus  int           // the port that other nodes of a Cluster talk to; 0: it is in none
	rdb  *redis.Client // for what is not measured

	cmd   *exec.Cmd // nil: it was there before
	ended chan struct{}
	dir   string
}

// open uses the Redis at addr, or starts one if addr is empty.
func open(ctx context.Context, addr string) (*server, error) {
	if addr == "" {
		return start(ctx)
	}
	if err := checkLoopback(ctx, addr); err != nil {
		return nil, err
	}
	s := &server{addr: addr, rdb: redis.NewClient(&redis.Options{Addr: addr})}
	keyspace, err := s.info(ctx, "keyspace")
	if err == nil && len(keyspace) > 0 {
		err = fmt.Errorf("it holds keys (%v), and bench would delete them: give an empty one", keyspace)
	}
	if err != nil {
		s.rdb.Close()
		return nil, fmt.Errorf("the Redis at %s: %w", addr, err)
	}
	return s, nil
}

// checkLoopback refuses an address of another machine: its Redis would be flushed, and the
// network measured.
func checkLoopback(ctx context.Context, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("-redis: %w; want host:port", err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); !ip.IsLoopback() {
			return fmt.Errorf("-redis %s: %s is not on loopback, and bench deletes everything in the Redis it uses", addr, ip)
		}
	}
	return nil
}

// start starts a redis-server without persistence on a free port of loopback.
func start(ctx context.Context) (*server, error) { return startServer(ctx, false) }

// startServer is start for a server on its own, or for a node that can join a Cluster.
func startServer(ctx context.Context, node bool) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: install Redis 7 or newer, or give the address of an empty one with -redis", err)
	}
	var errs []error
	for range 5 { // another process can take the port before Redis does
		s, err := tryToStart(ctx, path, node)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func tryToStart(ctx context.Context, path string, node bool) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	args := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"}
	bus := 0
	if node {
		if bus, err = freePort(); err != nil {
			return nil, err
		}
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
	}
	dir, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: addr, bus: bus, dir: dir, ended: make(chan struct{})}
	s.cmd = exec.Command(path, append(args, "--dir", dir, "--logfile", s.logPath())...)
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // how it ended is in its log
	}()
	s.rdb = redis.NewClient(&redis.Options{Addr: addr})
	if err := s.ready(ctx); err != nil {
		err = fmt.Errorf("redis-server on %s: %w\n%s", addr, err, s.log())
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// freePort returns a TCP port of loopback that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *server) logPath() string { return filepath.Join(s.dir, "redis.log") }

func (s *server) log() string {
	b, _ := os.ReadFile(s.logPath())
	return strings.TrimSpace(string(b[max(0, len(b)-2048):]))
}

// ready waits until our process answers: another server could have won the port.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		info, err := s.info(ctx, "server")
		if err == nil {
			if info["process_id"] == strconv.Itoa(s.cmd.Process.Pid) {
				return nil
			}
			return errors.New("another server has taken the port")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}

// close leaves the server empty, and ends it if we started it.
func (s *server) close() error {
	if s.cmd == nil {
		err := s.flush(context.Background())
		return errors.Join(err, s.rdb.Close())
	}
	err := s.rdb.Close()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-s.ended:
	case <-time.After(5 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// flush deletes everything; when it returns, the memory is free.
func (s *server) flush(ctx context.Context) error {
	return s.rdb.Do(ctx, "FLUSHALL", "SYNC").Err()
}

// info returns a section of INFO.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// memory returns used_memory, in bytes, once it no longer changes: hash tables that grow hold
// two copies for a moment, and buffers of clients that left are freed a little later.
func (s *server) memory(ctx context.Context) (float64, error) {
	previous := ""
	for range 60 {
		info, err := s.info(ctx, "memory")
		if err != nil {
			return 0, err
		}
		used := info["used_memory"]
		if used == previous {
			return strconv.ParseFloat(used, 64)
		}
		previous = used
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, errors.New("the memory that Redis uses does not settle: is somebody else using it?")
}

// cpu returns how much processor time the server has used.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	info, err := s.info(ctx, "cpu")
	if err != nil {
		return 0, err
	}
	user, err1 := strconv.ParseFloat(info["used_cpu_user"], 64)
	system, err2 := strconv.ParseFloat(info["used_cpu_sys"], 64)
	return time.Duration((user + system) * float64(time.Second)), errors.Join(err1, err2)
}

// watchScripts has the server keep calls that take least or longer, from now on. It forgets those that it kept before.
func (s *server) watchScripts(ctx context.Context, least time.Duration) error {
	return errors.Join(
		s.rdb.ConfigSet(ctx, "slowlog-log-slower-than", strconv.FormatInt(least.Microseconds(), 10)).Err(),
		s.rdb.ConfigSet(ctx, "slowlog-max-len", "100000").Err(),
		s.rdb.Do(ctx, "SLOWLOG", "RESET").Err(),
	)
}

// slowScripts returns how long the scripts took that the server kept.
func (s *server) slowScripts(ctx context.Context) ([]time.Duration, error) {
	calls, err := s.rdb.SlowLogGet(ctx, -1).Result()
	var took []time.Duration
	for _, call := range calls {
		if len(call.Args) > 0 && strings.HasPrefix(strings.ToUpper(call.Args[0]), "EVAL") {
			took = append(took, call.Duration)
		}
	}
	return took, err
}
