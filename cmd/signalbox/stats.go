package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueStats() *cobra.Command {
	var by string
	c := a.command("stats [QUEUE] [flags]", "Show what happened over time: counts, waits and runs", cobra.MaximumNArgs(1),
		func(ctx context.Context, args []string) error {
			steps := map[string]inspect.Step{"minute": inspect.ByMinute, "hour": inspect.ByHour}
			step, ok := steps[by]
			if !ok {
				return usage("--by %q: want minute or hour", by)
			}
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.allStats(ctx, ins, step, by)
			}
			s, err := ins.Stats(ctx, args[0], step)
			switch {
			case s.At.IsZero():
				return err
			case a.json():
				return errors.Join(a.document(statsOf(&s, by)), err) // what can't be read is in the error
			}
			a.printStats(&s, step)
			return err
		})
	c.Long = `Show what happened to the jobs of a queue in the last three hours, or with
--by hour in the last thirty days: how many were enqueued, completed and so on,
and how long they waited and ran. Without a queue it is a line for each queue of
the namespace, and one for all of them together.

The bars go from the past to now. The highest bar of a row is the largest number
in it. It is blank where nothing is known. WAIT is from when a job was due until
a worker got it, RUN until its handler had returned. P95 is a time that 95 % of
them didn't exceed, rounded up to a power of two.

Of the rows, enqueued, completed and cancelled are jobs. The others are
  retried   attempts that failed, after which the job runs again
  dead      jobs that failed for good
  delayed   deliveries that were snoozed, or put back since the worker has no
            handler for the kind
  returned  deliveries that a worker gave back, as at its shutdown
  crashed   deliveries whose worker died
  deleted   jobs that an operator deleted
  revived   jobs that had ended and that an operator ran again
  expired   dead jobs that had not started in time`
	c.Example = `  signalbox queue stats
  signalbox queue stats mail
  signalbox queue stats mail --by hour -o json`
	c.Flags().StringVar(&by, "by", "minute", "minute: of the last three hours; hour: of the last thirty days")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"minute", "hour"}, cobra.ShellCompDirectiveNoFileComp))
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// statsJSON are the statistics of a queue for programs. docs/cli/json.md has its fields.
type statsJSON struct {
	Queue   string       `json:"queue"`
	At      *string      `json:"at"`
	By      string       `json:"by"`
	Total   countsJSON   `json:"total"`
	Buckets []bucketJSON `json:"buckets"`
}

type bucketJSON struct {
	Start           *string `json:"start"`
	DurationSeconds float64 `json:"duration_seconds"`
	countsJSON
	Wait timesJSON `json:"wait"`
	Run  timesJSON `json:"run"`
}

type countsJSON struct {
	Enqueued  int64 `json:"enqueued"`
	Completed int64 `json:"completed"`
	Retried   int64 `json:"retried"`
	Delayed   int64 `json:"delayed"`
	Returned  int64 `json:"returned"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Crashed   int64 `json:"crashed"`
	Deleted   int64 `json:"deleted"`
	Revived   int64 `json:"revived"`
	Expired   int64 `json:"expired"`
}

type timesJSON struct {
	Count      int64            `json:"count"`
	P50Seconds float64          `json:"p50_seconds"`
	P95Seconds float64          `json:"p95_seconds"`
	P99Seconds float64          `json:"p99_seconds"`
	Histogram  []timeBucketJSON `json:"histogram"`
}

type timeBucketJSON struct {
	AtMostSeconds *float64 `json:"at_most_seconds"` // null: no bound
	Count         int64    `json:"count"`
}

func statsOf(s *inspect.Stats, by string) statsJSON {
	out := statsJSON{s.Queue, timestamp(s.At), by, countsJSON(s.Total), make([]bucketJSON, len(s.Buckets))}
	for i, b := range s.Buckets {
		out.Buckets[i] = bucketJSON{timestamp(b.Start), seconds(b.Duration), countsJSON(b.Counts), timesOf(b.Wait), timesOf(b.Run)}
	}
	return out
}

func timesOf(h inspect.Histogram) timesJSON {
	t := timesJSON{h.Count(), seconds(h.Quantile(0.5)), seconds(h.Quantile(0.95)), seconds(h.Quantile(0.99)), []timeBucketJSON{}}
	for most, n := range h.Buckets() {
		if n == 0 {
			continue
		}
		b := timeBucketJSON{Count: n}
		if most < math.MaxInt64 {
			bound := seconds(most)
			b.AtMostSeconds = &bound
		}
		t.Histogram = append(t.Histogram, b)
	}
	return t
}

// statRows are the rows of the first table.
var statRows = []struct {
	name string
	of   func(c *inspect.Counts) int64
	rare bool // it is left out if there is none
}{
	{"enqueued", func(c *inspect.Counts) int64 { return c.Enqueued }, false},
	{"completed", func(c *inspect.Counts) int64 { return c.Completed }, false},
	{"retried", func(c *inspect.Counts) int64 { return c.Retried }, false},
	{"dead", func(c *inspect.Counts) int64 { return c.Dead }, false},
	{"cancelled", func(c *inspect.Counts) int64 { return c.Cancelled }, false},
	{"delayed", func(c *inspect.Counts) int64 { return c.Delayed }, true},
	{"returned", func(c *inspect.Counts) int64 { return c.Returned }, true},
	{"crashed", func(c *inspect.Counts) int64 { return c.Crashed }, true},
	{"deleted", func(c *inspect.Counts) int64 { return c.Deleted }, true},
	{"revived", func(c *inspect.Counts) int64 { return c.Revived }, true},
	{"expired", func(c *inspect.Counts) int64 { return c.Expired }, true},
}

// printStats prints the statistics for people.
func (a *app) printStats(s *inspect.Stats, step inspect.Step) {
	if len(s.Buckets) == 0 {
		a.note("Nothing is known of queue %s in the last %s. Workers note what happens while they run.", s.Queue, span(step.Window()))
		return
	}
	const beside = 42 // cells that the other columns take
	bars := barsIn(a.width, beside)
	past := "LAST " + strings.ToUpper(span(step.Window()))
	fmt.Fprintf(a.out, "queue %s until %s; each bar is %s\n\n", s.Queue, stamp(s.At.Truncate(time.Second)), span(step.Window()/time.Duration(bars)))

	counts := a.table(column{name: "JOBS"}, column{name: "NUMBER", right: true}, column{name: past})
	for _, row := range statRows {
		var sum int64
		for i := range s.Buckets {
			sum += row.of(&s.Buckets[i].Counts)
		}
		if sum > 0 || !row.rare {
			counts.row(row.name, number(sum), numberBars(s, step, bars, row.of))
		}
	}
	counts.flush()

	times := a.table(column{name: "TIME"}, column{name: "NUMBER", right: true}, column{name: "P50", right: true}, column{name: "P95", right: true},
		column{name: "P99", right: true}, column{name: "P95, " + past})
	for _, row := range []struct {
		name string
		of   func(b *inspect.Bucket) inspect.Histogram
	}{
		{"wait", func(b *inspect.Bucket) inspect.Histogram { return b.Wait }},
		{"run", func(b *inspect.Bucket) inspect.Histogram { return b.Run }},
	} {
		var all inspect.Histogram
		for i := range s.Buckets {
			all = all.Plus(row.of(&s.Buckets[i]))
		}
		if n := all.Count(); n > 0 {
			times.row(row.name, number(n), span(all.Quantile(0.5)), span(all.Quantile(0.95)), span(all.Quantile(0.99)), timeBars(s, step, bars, row.of))
		}
	}
	if len(times.rows) > 0 {
		fmt.Fprintln(a.out)
		times.flush()
	}
	if line := gaps(s, step); line != "" {
		fmt.Fprintf(a.out, "\n%s\n", line)
	}
}

// gaps says in a line when no worker noted anything. It is "" if that never was for long.
func gaps(s *inspect.Stats, step inspect.Step) string {
	var longest *inspect.Bucket
	n := 0
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if b.Duration <= 5*step.Duration() || b.Counts == (inspect.Counts{}) {
			continue
		}
		n++
		if longest == nil || b.Duration > longest.Duration {
			longest = b
		}
	}
	if n == 0 {
		return ""
	}
	from, to := stamp(longest.Start.Truncate(time.Second)), stamp(longest.Start.Add(longest.Duration).Truncate(time.Second))
	if n == 1 {
		return fmt.Sprintf("No worker noted anything from %s to %s. What happened then is drawn as if evenly.", from, to)
	}
	return fmt.Sprintf("%d times no worker noted anything, the longest from %s to %s. What happened then is drawn as if evenly.", n, from, to)
}

// barsIn returns how many bars there is room for, beside so many cells: a number that divides both windows. width is 0 if there is no terminal.
func barsIn(width, beside int) int {
	if width <= 0 {
		return 60
	}
	for _, n := range []int{90, 60, 45, 36, 30, 20, 15} {
		if n <= width-beside {
			return n
		}
	}
	return 10
}

// barOf returns the index of the bar of a time. It may be negative for times before the window.
func barOf(s *inspect.Stats, step inspect.Step, bars int, t time.Time) int {
	begin := s.At.Add(-step.Window())
	return min(bars-1, int(math.Floor(float64(t.Sub(begin))/float64(step.Window()/time.Duration(bars)))))
}

// numberBars draws numbers over time. What a bucket counts is spread evenly over its duration.
func numberBars(s *inspect.Stats, step inspect.Step, bars int, of func(c *inspect.Counts) int64) string {
	values := make([]float64, bars)
	for i := range values {
		values[i] = -1 // nothing is known
	}
	begin, length := s.At.Add(-step.Window()), step.Window()/time.Duration(bars)
	for i := range s.Buckets {
		b := &s.Buckets[i]
		n, end := float64(of(&b.Counts)), b.Start.Add(b.Duration)
		for k := max(0, barOf(s, step, bars, b.Start)); k <= barOf(s, step, bars, end); k++ {
			from, to := begin.Add(time.Duration(k)*length), begin.Add(time.Duration(k+1)*length)
			shared := earlier(to, end).Sub(later(from, b.Start))
			values[k] = max(0, values[k]) + n*float64(max(0, shared))/float64(max(1, b.Duration))
		}
	}
	return draw(values)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// timeBars draws the 95th percentile over time, each doubling as one step. A bucket is where it ends.
func timeBars(s *inspect.Stats, step inspect.Step, bars int, of func(b *inspect.Bucket) inspect.Histogram) string {
	all := make([]inspect.Histogram, bars)
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if k := barOf(s, step, bars, b.Start.Add(b.Duration)); k >= 0 {
			all[k] = all[k].Plus(of(b))
		}
	}
	values := make([]float64, bars)
	for k, h := range all {
		values[k] = -1
		if h.Count() > 0 {
			values[k] = float64(bits.Len64(uint64(h.Quantile(0.95) / time.Millisecond)))
		}
	}
	return draw(values)
}

// levels are the bars, from 0 to the largest number of a row.
var levels = []rune("▁▂▃▄▅▆▇█")

// draw draws a row of bars. A negative value is blank.
func draw(values []float64) string {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	row := make([]rune, len(values))
	for i, v := range values {
		switch {
		case v < 0:
			row[i] = ' '
		case v == 0:
			row[i] = levels[0]
		default:
			row[i] = levels[max(1, int(math.Ceil(v/most*float64(len(levels)-1))))]
		}
	}
	return string(row)
}
