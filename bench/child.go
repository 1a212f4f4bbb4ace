package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A child is a process of this program that does a part of a measurement. It says what it has to say in JSON.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startChild starts a child with these variables in its environment, of which one says what it is to do. It
// returns when the child is ready: when it has said true.
func startChild(ctx context.Context, env ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
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
		return nil, fmt.Errorf("a process of the measurement did not start: %w", err)
	}
	return c, nil
}

// kill ends it if it hasn't ended.
func (c *child) kill() {
	if c == nil || c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
