package redistest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// portTaken is the message of redis-server if its port is taken.
const portTaken = "Address already in use"

// process is a redis-server that this process started.
type process struct {
	path string
	dir  string
	port *servertest.Port // reserved until release
	conf string           // "": no configuration file
	args []string
	env  []string // added to our environment

	mu   sync.Mutex
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the process has ended
}

// startProcess starts a server on a free port and waits until it answers. If another
// program takes the port between our check and the server's bind, the next port is tried.
func startProcess(path, dir string, args []string) (*process, error) {
	return startConfigured(path, dir, "", "", args...)
}

// startConfigured is startProcess with a configuration file that the server may write.
func startConfigured(path, dir, conf, text string, args ...string) (*process, error) {
	return startWith(nil, path, dir, conf, text, args...)
}

// startWith is startConfigured with additional environment variables.
func startWith(env []string, path, dir, conf, text string, args ...string) (*process, error) {
	var errs []error
	for range 20 {
		p := &process{path: path, dir: dir, port: servertest.ReservePort(), conf: conf, args: args, env: env}
		p.port.First.Close()
		err := p.configure(text)
		if err == nil {
			err = p.start()
		}
		if err == nil {
			return p, nil
		}
		p.port.Release()
		errs = append(errs, err)
		if !strings.Contains(err.Error(), portTaken) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// configure writes the configuration file, if there is one.
func (p *process) configure(text string) error {
	if p.conf == "" {
		return nil
	}
	return os.WriteFile(p.conf, []byte(text), 0o600)
}

func (p *process) addr() string { return p.port.Addr() }
func (p *process) logPath() string {
	return filepath.Join(p.dir, fmt.Sprintf("redis-%d.log", p.port.Number))
}

// start starts the server on its port and waits until it answers.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.commandLine()...)
	cmd.Dir = p.dir
	if len(p.env) > 0 {
		cmd.Env = append(os.Environ(), p.env...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	done, err := servertest.Start(cmd)
	if err != nil {
		return err
	}
	p.cmd, p.done = cmd, done
	if !poll(patience, func() bool { return p.ready() || closed(done) }) || closed(done) {
		p.end()
		return fmt.Errorf("redis-server on port %d did not start:\n%s", p.port.Number, p.logFrom(before))
	}
	return nil
}

// commandLine has the defaults first: the last value of a setting counts.
func (p *process) commandLine() []string {
	var line []string
	if p.conf != "" {
		line = append(line, p.conf)
	}
	line = append(line,
		"--port", strconv.Itoa(p.port.Number), "--bind", "127.0.0.1", "--dir", p.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "notice",
	)
	return append(line, p.args...)
}

// ready reports whether our process answers. Another server could have taken the port.
func (p *process) ready() bool {
	const short = 300 * time.Millisecond // a program that has our port may never answer
	info, err := askWithin(short, p.addr(), "INFO", "server")
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		return true // a test has set a password
	}
	if err != nil || !strings.Contains(info, fmt.Sprintf("process_id:%d\n", p.cmd.Process.Pid)) {
		return false
	}
	pong, err := askWithin(short, p.addr(), "PING")
	return err == nil && pong == "PONG" // it returns an error while it loads its data
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return closed(p.done)
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// kill ends the process like a crash.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

func (p *process) end() {
	_ = p.cmd.Process.Kill() // it has ended already
	<-p.done
}

// drop ends the process for good.
func (p *process) drop() {
	p.kill()
	p.port.Release()
}

// restart starts the process again on the same port, with the data that it has saved. If
// it still runs, it is first asked to shut down.
func (p *process) restart() error {
	p.mu.Lock()
	if !closed(p.done) {
		_ = p.cmd.Process.Signal(servertest.ContSignal)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience):
			p.end()
		}
	}
	p.mu.Unlock()
	var err error
	poll(patience, func() bool { // a process that is being forked may hold it for a moment
		err = p.start()
		return err == nil || !strings.Contains(err.Error(), portTaken)
	})
	return err
}

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(sig)
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// logTail returns the end of the server's log, at most 4 KiB.
func (p *process) logTail() string { return p.logFrom(0) }

// logFrom is logTail without what was logged before offset.
func (p *process) logFrom(offset int64) string {
	b, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(b[max(int(offset), len(b)-4096):])
}
