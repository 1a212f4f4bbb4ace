package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

const (
	topEvery    = 2 * time.Second
	minTopEvery = 200 * time.Millisecond
)

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	var once bool
	c := a.command("top [QUEUE...] [flags]", "Watch queues, workers and dead jobs, live", cobra.ArbitraryArgs, func(ctx context.Context, queues []string) error {
		switch {
		case a.json():
			return usage("top is for people: programs read queue ls, worker ls and job ls with -o json")
		case every < minTopEvery:
			return usage("--every %v: want %v or more", every, minTopEvery)
		case !once && (!a.inTerminal || a.width == 0):
			return usage("there is no terminal: want --once, for one look")
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		for _, name := range queues {
			if _, err := ins.Queue(ctx, name); err != nil {
				return err
			}
		}
		r := &topReader{ins: ins, queues: queues, clock: a.clock, patience: a.connection.timeout}
		if once {
			return a.topOnce(ctx, r, every)
		}
		return a.watch(ctx, r, every)
	})
	c.Long = `Watch the queues of the namespace, or some of them: how many jobs are in which
state, and how many come, complete and fail a second. Other views show the
workers, the jobs that run, and those that died last.

  1 2 3 4, tab    queues, workers, running jobs, dead jobs
  s, r            sort by the next column; the other way round
  up, down, pgup, pgdn, home, end
                  scroll
  space           look now
  ?               all keys
  q, Ctrl-C       end

Rates are means of the last ten seconds. FAIL/S are attempts that failed and
deliveries whose worker died. Arguments of jobs are never shown. If Redis
is away, the last state stays, with its age.

A look makes six short calls for each queue, and one more. If looks take long,
they are farther apart than --every says: they take a fifth of the time at most.`
	c.Example = `  signalbox top
  signalbox top mail billing --every 5s
  signalbox top --once`
	c.Flags().DurationVar(&every, "every", topEvery, "time between two looks")
	c.Flags().BoolVar(&once, "once", false, "print one look, and end: after --every, in which rates are measured")
	c.ValidArgsFunction = a.completeQueues(-1)
	return c
}

// watch shows what r reads until somebody ends it.
func (a *app) watch(ctx context.Context, r *topReader, every time.Duration) error {
	m := newTopModel(r.read, every, a.topTitle(), time.Now)
	m.ctx, m.why, m.width = ctx, a.topError, a.width
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.screen), tea.WithoutSignalHandler(), tea.WithEnvironment(os.Environ()))
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// topOnce prints each view once.
func (a *app) topOnce(ctx context.Context, r *topReader, every time.Duration) error {
	if data, err := r.read(ctx, topQueues); err != nil && (data == nil || !errors.Is(err, inspect.ErrPartial)) {
		return err
	}
	select { // rates need two looks
	case <-time.After(every):
	case <-ctx.Done():
		return ctx.Err()
	}
	var errs []error
	for v := range topViews {
		data, err := r.read(ctx, v)
		if err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) { // each view may say the same
			errs = append(errs, err)
		}
		if data == nil {
			break
		}
		if v > 0 {
			a.line("")
		}
		a.line(data.summary(v))
		t := a.table(topColumns[v]...)
		for _, row := range data.rows(v, order{}) {
			t.row(row.cells...)
		}
		t.flushRows()
	}
	return errors.Join(errs...)
}

func (a *app) line(s string) { _, _ = io.WriteString(a.out, s+"\n") } // an error comes again at the end

// topTitle says what is watched.
func (a *app) topTitle() string { return clean(a.namespace() + " at " + a.connection.where) }

// topError says in a line what is wrong.
func (a *app) topError(err error) string {
	if away(err) && !errors.Is(err, inspect.ErrPartial) || errors.Is(err, context.DeadlineExceeded) {
		return "Redis doesn't answer: " + oneLine(short(err))
	}
	return oneLine(packages.Replace(err.Error())) + hint(err)
}

// An order is how rows are sorted.
type order struct {
	column int // of the view's columns that can be sorted by; 0: the first
	turned bool
}

// topKeys are the rows of the help.
var topKeys = [][2]string{
	{"1", "queues"},
	{"2", "workers"},
	{"3", "jobs that run"},
	{"4", "jobs that died last"},
	{"tab, shift+tab", "the next view, the one before"},
	{"s, S", "sort by the next column, the one before"},
	{"r", "sort the other way round"},
	{"up, down, j, k", "scroll"},
	{"pgup, pgdn, home, end", "scroll by pages"},
	{"space", "look now"},
	{"?", "these keys"},
	{"q, ctrl+c", "end"},
}
