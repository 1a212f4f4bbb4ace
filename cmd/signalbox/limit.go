package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueLimit() *cobra.Command {
	var burst, length int
	var running runningFlag
	var rate rateFlag
	var groups, inherit, reset bool
	var group string
	var c *cobra.Command
	c = a.command("limit QUEUE [flags]", "Limit what runs, how often jobs start, and how many there are", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		changed := c.Flags().Changed
		set := changed("running") || changed("rate") || changed("burst")
		switch {
		case groups && group != "":
			return usage("--groups and --group: want one of them")
		case inherit && (group == "" || set):
			return usage("--inherit goes with --group alone")
		case reset && (group == "" || set || inherit):
			return usage("--reset goes with --group alone; for the queue and for all groups: signalbox queue set QUEUE --reset Limits,GroupLimits,MaxLength")
		case group == "" && (running.n == 0 && changed("running") || rate.jobs == 0 && changed("rate")):
			return usage("inherit goes with --group: a group inherits what all groups have")
		case changed("length") && (groups || group != ""):
			return usage("--length is for the whole queue: leave out --groups and --group")
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		q, err := ins.Queue(ctx, args[0])
		if err != nil {
			return err
		}
		own, err := ins.LimitsOf(ctx, args[0])
		if err != nil {
			return err
		}
		now := q.Limits
		switch {
		case groups:
			now = q.GroupLimits
		case group != "":
			now = own[group]
		}
		if changed("running") { // what no flag names stays as it is
			now.Running = running.n
		}
		if changed("rate") {
			now.Rate.Jobs, now.Rate.Per = rate.jobs, rate.per
			if rate.jobs <= 0 {
				now.Rate.Burst = 0
			}
		}
		if changed("burst") {
			if now.Rate.Jobs <= 0 && burst > 0 {
				return usage("--burst goes with --rate: these limits have no rate of their own")
			}
			now.Rate.Burst = burst
		}
		switch {
		case inherit:
			err = ins.SetLimitsOf(ctx, args[0], group, signalbox.Limits{})
		case reset:
			_, err = ins.ResetLimitsOf(ctx, args[0], group)
		case !set:
		case groups:
			err = ins.SetGroupLimits(ctx, args[0], now)
		case group != "":
			err = ins.SetLimitsOf(ctx, args[0], group, now)
		default:
			err = ins.SetLimits(ctx, args[0], now)
		}
		if err == nil && changed("length") {
			err = ins.SetMaxLength(ctx, args[0], length)
		}
		if err != nil {
			return err
		}
		return a.printLimits(ctx, ins, args[0])
	})
	c.Long = `Limit what runs of a queue across all its workers, or of its groups: how many
jobs at a time, and how often they start. Then print the limits. Without flags
it only prints them. A limit counts from the next claim on: jobs that run go on.

The limits are those of the whole queue. With --groups they are those of each
group, and with --group those of one group. What that group has no limit of its
own for, it inherits from --groups, also when that changes later. "inherit" has
it inherit --running or --rate again, and --inherit both. --reset gives it what
LimitsOf in the workers' Config last said of it. --group is for the
serial group of that key as well: its rate counts, and one job of it runs at a
time, whatever --running says.

--rate is a number and a time, such as 100/1s or 5/1m. Jobs start evenly then.
--burst lets so many start at once after a time without any. "none" is no limit.
To stop a queue or a group, pause it: signalbox queue pause.

--length is how many jobs the queue may have that wait or run. An enqueue above
that is refused, or waits if its program says so. The jobs that are there stay.`
	c.Example = `  signalbox queue limit mail --running 20
  signalbox queue limit mail --rate 100/1s --burst 10
  signalbox queue limit mail --length 100000
  signalbox queue limit mail --groups --running 2
  signalbox queue limit mail --group acme --running 5
  signalbox queue limit mail --group acme --rate none
  signalbox queue limit mail --group acme --inherit
  signalbox queue limit mail --group acme --reset`
	c.Flags().Var(&running, "running", "how many jobs run at a time, 1 to 1,000,000; none: no limit; inherit, with --group: as all groups")
	c.Flags().Var(&rate, "rate", "how often jobs start, such as 100/1s; none: no limit; inherit, with --group: as all groups")
	c.Flags().IntVar(&burst, "burst", 0, "how many may start at once, 1 to 1,000,000; 0: 1")
	c.Flags().IntVar(&length, "length", 0, "how many jobs may wait or run, 1 to 1,000,000,000; 0: no limit")
	c.Flags().BoolVar(&groups, "groups", false, "the limits of each group")
	c.Flags().StringVar(&group, "group", "", "the limits of the group of this key, and of the serial group")
	c.Flags().BoolVar(&inherit, "inherit", false, "with --group: no limits of its own")
	c.Flags().BoolVar(&reset, "reset", false, "with --group: the limits of the workers' Config")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// limitsJSON are limits for programs. docs/cli/json.md has their fields.
type limitsJSON struct {
	Running    int     `json:"running"`
	Rate       int     `json:"rate"`
	PerSeconds float64 `json:"per_seconds"`
	Burst      int     `json:"burst"`
}

func limitsOf(l signalbox.Limits) limitsJSON {
	return limitsJSON{l.Running, l.Rate.Jobs, seconds(l.Rate.Per), l.Rate.Burst}
}

// ownLimitsJSON are the limits of a single group: what it inherits is null, and what has no limit is 0.
type ownLimitsJSON struct {
	Running    *int     `json:"running"`
	Rate       *int     `json:"rate"`
	PerSeconds *float64 `json:"per_seconds"`
	Burst      *int     `json:"burst"`
}

func ownLimitsOf(l signalbox.Limits) (own ownLimitsJSON) {
	all := limitsOf(signalbox.Limits{Running: max(l.Running, 0), Rate: signalbox.Rate{Jobs: max(l.Rate.Jobs, 0), Per: l.Rate.Per, Burst: l.Rate.Burst}})
	if l.Running != 0 {
		own.Running = &all.Running
	}
	if l.Rate.Jobs != 0 {
		own.Rate, own.PerSeconds, own.Burst = &all.Rate, &all.PerSeconds, &all.Burst
	}
	return own
}

func (a *app) printLimits(ctx context.Context, ins *inspect.Inspector, queue string) error {
	q, err := ins.Queue(ctx, queue)
	if err != nil {
		return err
	}
	own, err := ins.LimitsOf(ctx, queue)
	if err != nil {
		return err
	}
	if a.json() {
		of := make(map[string]ownLimitsJSON, len(own))
		for group, l := range own {
			of[group] = ownLimitsOf(l)
		}
		return a.document(struct {
			Queue     string                   `json:"queue"`
			Limits    limitsJSON               `json:"limits"`
			Groups    limitsJSON               `json:"groups"`
			Of        map[string]ownLimitsJSON `json:"of"`
			MaxLength int                      `json:"max_length"`
			Length    int64                    `json:"length"`
		}{queue, limitsOf(q.Limits), limitsOf(q.GroupLimits), of, q.MaxLength, q.Length()})
	}
	columns := []column{{name: "LIMITS OF"}, {name: "RUNNING", right: true}, {name: "RATE", right: true}, {name: "BURST", right: true}}
	length := ""
	if q.MaxLength > 0 { // most queues have none
		columns = append(columns, column{name: "LENGTH", right: true})
		length = number(q.Length()) + " of " + number(int64(q.MaxLength))
	}
	t := a.table(columns...)
	row := func(of string, l signalbox.Limits, unset string) {
		running, rate, burst := "no limit", "no limit", ""
		if l.Running == 0 {
			running = unset
		}
		if l.Rate.Jobs == 0 {
			rate = unset
		}
		if l.Running > 0 {
			running = strconv.Itoa(l.Running)
		}
		if l.Rate.Jobs > 0 {
			rate, burst = (&rateFlag{jobs: l.Rate.Jobs, per: l.Rate.Per}).String(), strconv.Itoa(l.Rate.Burst)
		}
		cells := []string{of, running, rate, burst, length}
		length = "" // it is the queue's
		t.row(cells[:len(columns)]...)
	}
	row("queue "+queue, q.Limits, "no limit")
	row("each group", q.GroupLimits, "no limit")
	for _, group := range slices.Sorted(maps.Keys(own)) {
		row("group "+group, own[group], "inherited")
	}
	t.flush()
	return nil
}

// What a limit may be in place of a number.
const (
	noLimit = "none"
	inherit = "inherit"
)

// instead says what to do in place of a limit of 0.
const instead = `want 1 or more, or "none" for no limit; to let none run, pause: signalbox queue pause QUEUE, or signalbox queue pause QUEUE --group GROUP`

// A runningFlag is how many jobs run at a time: signalbox.NoLimit for none, 0 for inherit.
type runningFlag struct{ n int }

func (f *runningFlag) String() string {
	if f.n <= 0 {
		return ""
	}
	return strconv.Itoa(f.n)
}

// Type implements pflag.Value.
func (f *runningFlag) Type() string { return "number" }

// Set implements pflag.Value.
func (f *runningFlag) Set(s string) (err error) {
	switch s {
	case noLimit:
		f.n = signalbox.NoLimit
	case inherit:
		f.n = 0
	default:
		if f.n, err = strconv.Atoi(s); err != nil || f.n <= 0 {
			return errors.New(instead)
		}
	}
	return nil
}

// A rateFlag is a number of jobs in a time; the number is signalbox.NoLimit for none, and 0 for inherit.
type rateFlag struct {
	jobs int
	per  time.Duration
}

func (f *rateFlag) String() string {
	if f.jobs <= 0 {
		return ""
	}
	return fmt.Sprintf("%d/%s", f.jobs, span(f.per))
}

// Type implements pflag.Value.
func (f *rateFlag) Type() string { return "rate" }

// Set implements pflag.Value.
func (f *rateFlag) Set(s string) error {
	f.per = 0
	switch s {
	case noLimit:
		f.jobs = signalbox.NoLimit
		return nil
	case inherit:
		f.jobs = 0
		return nil
	}
	number, per, there := strings.Cut(s, "/")
	jobs, err := strconv.Atoi(number)
	if err == nil && jobs == 0 {
		return errors.New(instead)
	}
	if err != nil || jobs < 0 || !there {
		return errors.New(`want a number and a time, such as 100/1s or 5/1m, or "none"`)
	}
	f.jobs = jobs
	if len(per) == 1 && strings.Contains("smhd", per) {
		per = "1" + per // 100/s
	}
	if f.per, err = parseSpan(per); err != nil || f.per == 0 {
		return errors.New("want a time above 0, such as 100/1s or 5/1m")
	}
	return nil
}
