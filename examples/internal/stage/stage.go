// Package stage has what several examples need beside their application: a main function, a Redis, and a way to wait.
package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// patience is how long a run may take, on a slow machine.
const patience = 90 * time.Second

// A Result says what became of a run, in one line.
type Result interface {
	fmt.Stringer
	// Problem returns an error unless everything is as the README.md of the example says.
	Problem() error
}

// Main is the main function of an example. It runs it once, with the Redis of REDIS_URL or one inside this process, and prints its result as the last line.
// The exit status is 1 if the result has a problem. Logs are shown with the flag -v.
func Main[R Result](name string, run func(ctx context.Context, out io.Writer, db *Redis) (R, error)) {
	verbose := flag.Bool("v", false, "show the logs of the worker")
	flag.Parse()
	if !*verbose {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := Run(ctx, os.Stdout, os.Getenv(Env), name, run)
	if err == nil {
		fmt.Println(r)
		err = r.Problem()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Run runs an example once, with a Redis as [Open] returns it, in at most 90 s.
func Run[R Result](ctx context.Context, out io.Writer, url, name string, run func(ctx context.Context, out io.Writer, db *Redis) (R, error)) (r R, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it takes too long"))
	defer cancel()
	db, err := Open(url, name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return run(ctx, out, db)
}

// Until waits for a condition, at which it looks 20 times a second. The error is the condition's, or the cause of ctx.
func Until(ctx context.Context, condition func() (bool, error)) error {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if ok, err := condition(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Beside runs a worker, as a function that ends with its context, beside the caller. The function that it returns ends that, and waits for it.
func Beside(ctx context.Context, work func(ctx context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

var (
	shown  = regexp.MustCompile("(?ms)^```text\n(.*?)^```$")
	digits = regexp.MustCompile(`\d+`)
)

// Missing returns the lines of a README's blocks of text that a run hasn't printed, whatever the numbers in them.
func Missing(readme, printed string) (lines []string) {
	printed = "\n" + digits.ReplaceAllString(printed, "0") + "\n"
	for _, block := range shown.FindAllStringSubmatch(readme, -1) {
		for line := range strings.Lines(block[1]) {
			if !strings.Contains(printed, "\n"+digits.ReplaceAllString(line, "0")) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}
