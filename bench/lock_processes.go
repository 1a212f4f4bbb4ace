package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// contenderEnv makes this program one of the processes that want a lock. It names the library
// and the server; the order comes on standard input.
const contenderEnv = "SIGNALBOX_BENCH_CONTENDER"

// contendedProcesses has 16 processes want one lock, until each of them has had it n/16 times.
func contendedProcesses(name string) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		processes := make([]*contender, contenders)
		defer func() {
			for _, p := range processes {
				p.kill()
			}
		}()
		if err := each(contenders, func(i int) (err error) {
			processes[i], err = startContender(ctx, self, name, srv.addr)
			return err
		}); err != nil {
			return nil, err
		}
		// They share this machine's clock, and begin a moment from now.
		begin := time.Now().Add(20 * time.Millisecond)
		wants := make([]want, contenders)
		if err := each(contenders, func(i int) (err error) {
			wants[i], err = processes[i].run(order{begin, n / contenders})
			return err
		}); err != nil {
			return nil, err
		}
		return sumUp(wants, begin), nil
	}
}

// A contender is one of the processes.
type contender struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// An order tells a contender from when it is to want the lock, and how often.
type order struct {
	Begin  time.Time
	Cycles int
}

// startContender returns when it is ready.
func startContender(ctx context.Context, self, library, addr string) (*contender, error) {
	c := &contender{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), contenderEnv+"="+library+" "+addr)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	var ready bool
	if err := c.out.Decode(&ready); err != nil {
		c.kill()
		return nil, fmt.Errorf("a process that wants the lock did not start: %w", err)
	}
	return c, nil
}

func (c *contender) run(o order) (want, error) {
	var w want
	err := json.NewEncoder(c.in).Encode(o)
	if err == nil {
		err = c.out.Decode(&w)
	}
	if err == nil {
		err = c.cmd.Wait()
	}
	if err != nil {
		return w, fmt.Errorf("a process that wants the lock: %w", err)
	}
	return w, nil
}

// kill ends it if it hasn't ended.
func (c *contender) kill() {
	if c == nil || c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// contend is what such a process does. task is the value of the environment variable.
func contend(ctx context.Context, task string, in io.Reader, out io.Writer) (err error) {
	name, addr, _ := strings.Cut(task, " ")
	open, ok := libraries[name]
	if !ok {
		return fmt.Errorf("%s: there is no library %q", contenderEnv, name)
	}
	acquire, closeAll, err := open([]string{addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := cycle(ctx, acquire, lockKey); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(true); err != nil {
		return err
	}
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	time.Sleep(time.Until(o.Begin))
	w, err := wantLock(ctx, acquire, o.Cycles, func() error { return nil })
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(w)
}
