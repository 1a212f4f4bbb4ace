package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// The environment tells a process its role. The URL of Redis is not in a command line, where
// all users of the machine could read its password.
const (
	envRole   = "ITEMS_ROLE"
	envLock   = "ITEMS_LOCK"
	envPrefix = "ITEMS_PREFIX"
	envNodes  = "ITEMS_NODES" // as JSON
	envRedis  = "REDIS_URL"
)

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 5 * time.Second

// settings are shared by all servers.
type settings struct {
	redisURL string
	lock     string
	prefix   string // of all keys of this run
	nodes    []string
}

func (s settings) environ() []string {
	nodes, err := json.Marshal(s.nodes)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return append(os.Environ(), envRole+"=server", envLock+"="+s.lock, envPrefix+"="+s.prefix,
		envNodes+"="+string(nodes), envRedis+"="+s.redisURL)
}

// shared returns what a lock may see of the settings.
func (s settings) shared(rdb *redis.Client) Settings {
	return Settings{Redis: rdb, Key: s.prefix + "create_item", Nodes: s.nodes}
}

// IsChild reports whether this process is a server that the program has started.
func IsChild() bool { return os.Getenv(envRole) != "" }

// runChild is the main function of a server process. It serves on a free port, which it writes
// to its standard output, until its standard input ends. The parent closes that, or has ended.
func runChild(locks []Lock) (err error) {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent handles it
	logging.Disable()           // go-redis logs each call to a dead master; the replies say more about it
	s := settings{redisURL: os.Getenv(envRedis), lock: os.Getenv(envLock), prefix: os.Getenv(envPrefix)}
	if err := json.Unmarshal([]byte(os.Getenv(envNodes)), &s.nodes); err != nil {
		return errors.New(envNodes + " can't be read; want a list of addresses as JSON")
	}
	l := find(locks, s.lock)
	if l == nil {
		return fmt.Errorf("%s=%q: want one of %q", envLock, s.lock, names(locks))
	}
	opt, err := parseURL(s.redisURL)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(FarAway(opt))
	defer rdb.Close()
	guard, closeGuard, err := l.New(s.shared(rdb))
	if err != nil {
		return err
	}
	if closeGuard != nil {
		defer func() { err = errors.Join(err, closeGuard()) }()
	}
	items := store{rdb, s.prefix + "items"}
	if _, err := items.count(context.Background()); err != nil { // now it has a connection
		return err
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: (&service{items, guard}).handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close() // also ends the contexts of its requests
	}()
	fmt.Println("http://" + listener.Addr().String())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A crew has the servers that this process started.
type crew []*server

type server struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

// startCrew starts servers and returns when they serve. Even after an error the crew must be
// stopped.
func startCrew(ctx context.Context, s settings, n int) (crew, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all crew
	for range n {
		cmd := exec.CommandContext(ctx, path)
		cmd.Env, cmd.Stderr = s.environ(), os.Stderr
		stdin, err1 := cmd.StdinPipe()
		stdout, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2); err != nil {
			return all, err
		}
		if err := cmd.Start(); err != nil {
			return all, err
		}
		srv := &server{cmd: cmd, stdin: stdin}
		all = append(all, srv)
		srv.url, err = bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			return all, fmt.Errorf("server %d did not start: %w", len(all), err)
		}
		srv.url = strings.TrimSpace(srv.url)
	}
	return all, nil
}

func (c crew) urls() []string {
	var urls []string
	for _, s := range c {
		urls = append(urls, s.url)
	}
	return urls
}

// stop asks the servers to end and waits until they have.
func (c crew) stop() {
	for _, s := range c {
		_ = s.stdin.Close()
	}
	for _, s := range c {
		late := time.AfterFunc(stopTimeout, func() { _ = s.cmd.Process.Kill() })
		_ = s.cmd.Wait() // its result doesn't matter any more
		late.Stop()
	}
}
