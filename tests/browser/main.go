// Command browser looks at the web pages in a real Chromium, over a real Redis with workers. See "make web".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	quick := flag.Bool("quick", false, "only 360 and 1,440 px, fewer pages, and fewer of them by keyboard: two minutes at most")
	pictures := flag.String("pictures", "", "write pictures of all pages to the `FOLDER`")
	victim := flag.String("worker", "", "be a worker on the Redis at this `SOCKET` until killed; the command starts itself so")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.New("want no arguments")
	switch {
	case flag.NArg() > 0:
	case *victim != "":
		err = runVictim(ctx, *victim)
	default:
		err = run(ctx, *quick, *pictures)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// run looks at all pages, and says what it found.
func run(ctx context.Context, quick bool, pictures string) error {
	dir, err := os.MkdirTemp("", "signalbox-web")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	axe, err := fetchAxe(ctx, dir)
	if err != nil {
		return err
	}
	if pictures != "" {
		if err := os.MkdirAll(pictures, 0o755); err != nil {
			return err
		}
	}
	s, err := newStage(ctx, dir)
	if err != nil {
		return err
	}
	defer s.close()
	t := &tour{stage: s, axe: axe, pictures: pictures, quick: quick}
	if err := t.run(ctx); err != nil {
		return err
	}
	for _, f := range t.found {
		fmt.Println(f)
	}
	result := "ok"
	if len(t.found) > 0 {
		result = "failed"
	}
	fmt.Printf("web: %s pages=%d actions=%d looks=%d axe=%d csp=%d\n", result, t.pages, t.actions, t.looks, t.faults, t.reports)
	if len(t.found) > 0 {
		return fmt.Errorf("%d findings, see above", len(t.found))
	}
	return nil
}
