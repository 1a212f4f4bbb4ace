// Command signalbox looks at queues, jobs, workers and locks in Redis, and acts on them: at 3 a.m., and in scripts.
//
//	signalbox queue ls
//	signalbox job ls mail --state dead
//	signalbox job show mail 5GVkpuIzqvsP4tIoTxZuVC
//	signalbox job retry mail 5GVkpuIzqvsP4tIoTxZuVC
//
// It is built on package inspect, which programs can use for the same. docs/cli.md has every command, the JSON that programs read,
// and the exit codes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"golang.org/x/term"
)

func main() {
	redis.SetLogger(silent{})
	ctx, stop := context.WithCancel(context.Background())
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv}
	a.inTerminal = term.IsTerminal(int(os.Stdin.Fd()))
	a.errTerminal = term.IsTerminal(int(os.Stderr.Fd()))
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		a.width = width
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if a.interrupted(s) {
				signal.Reset() // the next one ends the process
				stop()
			}
		}
	}()
	os.Exit(a.run(ctx, os.Args[1:]))
}

// silent is a logger of go-redis that drops everything: what goes wrong is in the command's error.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
