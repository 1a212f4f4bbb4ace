package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ports are below the range that Linux uses for outgoing connections. So no client takes the
// port of a master that is about to start again.
const (
	firstPort = 12000
	lastPort  = 21999
)

// portTaken is the message of redis-server if its port is taken.
const portTaken = "Address already in use"

// A master is a redis-server that keeps nothing on disk, and whose clock can be moved.
type master struct {
	*process
	stage *stage
	addr  string
	clock string // the file that says how far the clock is ahead
	rdb   *redis.Client
}

// newMaster starts a master on a free port. If another process takes the port before the server
// does, it tries another port.
func newMaster(ctx context.Context, s *stage) (*master, error) {
	for try := 0; ; try++ {
		port := freePort()
		m := &master{stage: s, addr: net.JoinHostPort("127.0.0.1", port), clock: filepath.Join(s.dir, "clock-"+port)}
		if err := setClock(m.clock, 0); err != nil {
			return nil, err
		}
		m.rdb = redis.NewClient(&redis.Options{Addr: m.addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Second})
		err := m.start(ctx)
		if err == nil {
			return m, nil
		}
		m.end()
		if try == 10 || m.process == nil || !strings.Contains(m.output(), portTaken) {
			return nil, err
		}
	}
}

func freePort() string {
	for {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort+1))
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// start starts the server. It returns when this server answers, and not another one that has the
// port.
func (m *master) start(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(m.addr)
	var err error
	m.process, err = startProcess([]string{"LD_PRELOAD=" + m.stage.shim, envClock + "=" + m.clock}, m.stage.redisServer,
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", m.stage.dir)
	if err != nil {
		return err
	}
	itself := fmt.Sprintf("process_id:%d\r\n", m.pid())
	err = until(ctx, "redis-server answers", func() (bool, error) {
		if m.gone() {
			return false, errors.New("it ended")
		}
		conn, err := net.Dial("tcp", m.addr)
		if err != nil { // otherwise go-redis would log each try
			return false, nil
		}
		_ = conn.Close()
		info, err := m.rdb.Info(ctx, "server").Result()
		return err == nil && strings.Contains(info, itself), nil
	})
	if err != nil {
		m.kill()
		return fmt.Errorf("%w\n%s", err, m.output())
	}
	return nil
}

// jump moves the clock, and returns when the server uses the new time.
func (m *master) jump(ctx context.Context, ahead time.Duration) error {
	if err := setClock(m.clock, ahead); err != nil {
		return err
	}
	return until(ctx, "the server's clock has jumped", func() (bool, error) {
		now, err := m.rdb.Time(ctx).Result()
		off := time.Until(now) - ahead
		return err == nil && off.Abs() < time.Second, nil
	})
}

// has reports whether the server has a key.
func (m *master) has(ctx context.Context, key string) (bool, error) {
	n, err := m.rdb.Exists(ctx, key).Result()
	return n == 1, err
}

// count returns a number from a section of the server's INFO, or 0 if it isn't there.
func (m *master) count(ctx context.Context, section, name string) (int, error) {
	info, err := m.rdb.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(info, "\n"+name)
	if !found {
		return 0, nil
	}
	return strconv.Atoi(rest[:strings.IndexAny(rest, ",\r")])
}

func (m *master) end() {
	if m.process != nil {
		m.kill()
	}
	_ = m.rdb.Close()
	_ = os.Remove(m.clock)
}
