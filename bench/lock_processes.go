package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// contenderEnv makes this program one of the processes that want a lock. It names the library
// and the server; the order comes on standard input.
const contenderEnv = "SIGNALBOX_BENCH_CONTENDER"

// contendedProcesses has 16 processes want one lock, until each of them has had it n/16 times.
func contendedProcesses(name string) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		processes := make([]contender, contenders)
		defer func() {
			for _, p := range processes {
				p.kill()
			}
		}()
		if err := each(contenders, func(i int) (err error) {
			processes[i].child, err = startChild(ctx, contenderEnv+"="+name+" "+srv.addr)
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
type contender struct{ *child }

// An order tells a contender from when it is to want the lock, and how often.
type order struct {
	Begin  time.Time
	Cycles int
}

func (c contender) run(o order) (want, error) {
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
