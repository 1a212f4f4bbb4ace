package prom

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// standing are the alerts on jobs that wait though nothing keeps them from starting.
var standing = []string{"SignalboxJobsWaitTooLong", "SignalboxQueueStands"}

// What an operator or a limit keeps from starting fires no alert on jobs that wait: a queue, or single groups. What else waits does. The rules of
// docs/alerts.yml are evaluated with the page of a real exporter, of a queue that no worker works.
func TestAlertsOnWhatIsBlocked(t *testing.T) {
	rdb := redistest.Start(t).Client()
	page := Serve(t)
	stop, err := worker.ReportDepths(t.Context(), rdb, worker.ReportConfig{MeterProvider: page.Provider}, "mail")
	must(t, err)
	t.Cleanup(stop)
	jobs, err := scheduler.New(rdb, scheduler.Config{MeterProvider: page.Provider})
	must(t, err)
	ins, err := inspect.New(rdb, inspect.Config{})
	must(t, err)
	enqueue := func(options ...scheduler.EnqueueOption) {
		t.Helper()
		_, err := jobs.Enqueue(t.Context(), sort{}, append(options, scheduler.Queue("mail"))...)
		must(t, err)
	}
	says := func(what string, firing ...string) {
		t.Helper()
		got := firingOn(t, page.mustScrape(t))
		slices.Sort(firing)
		if !slices.Equal(got, firing) {
			t.Errorf("%s: %v fire, want %v", what, got, firing)
		}
	}
	says("no jobs")
	for range 3 {
		enqueue(scheduler.Group("acme"))
		enqueue(scheduler.Serial("acme"))
	}
	says("jobs of groups wait", standing...)

	for _, block := range []struct {
		what   string
		begin  func() error
		end    func() error
		firing []string // while it lasts
	}{
		{
			"a paused group",
			func() error { _, err := ins.PauseGroup(t.Context(), "mail", "acme"); return err },
			func() error { _, err := ins.ResumeGroup(t.Context(), "mail", "acme"); return err },
			[]string{"SignalboxGroupPaused"},
		},
		{
			"a group that is held back",
			func() error { _, err := ins.HoldBack(t.Context(), "mail", "acme", time.Hour); return err },
			func() error { _, err := ins.HoldBack(t.Context(), "mail", "acme", 0); return err },
			[]string{"SignalboxGroupPaused"},
		},
		{
			"a paused queue",
			func() error { _, err := ins.Pause(t.Context(), "mail"); return err },
			func() error { _, err := ins.Resume(t.Context(), "mail"); return err },
			[]string{"SignalboxQueuePaused"},
		},
	} {
		must(t, block.begin())
		says(block.what, block.firing...)
		if block.what != "a paused queue" {
			enqueue(scheduler.ID("other"), scheduler.Group("globex"))
			says("another group beside "+block.what, append(block.firing, standing...)...)
			_, err := ins.Do(t.Context(), "mail", "other", inspect.Delete{})
			must(t, err)
		}
		must(t, block.end())
		says("after "+block.what, standing...)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// firingOn returns the alerts whose rules hold on a page with the metrics of one queue, sorted. Of time they know nothing: the page has been as it is for
// as long as a rule asks, and thresholds of times are 0.
func firingOn(t *testing.T, families Families) (names []string) {
	t.Helper()
	rules, errs := rulefmt.ParseFile("../../../../../docs/alerts.yml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	of := []string{"SignalboxJobsWaitTooLong", "SignalboxQueueStands", "SignalboxQueuePaused", "SignalboxGroupPaused", "SignalboxQueueLimited"}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !slices.Contains(of, r.Alert) {
				continue
			}
			query, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			must(t, err)
			values, err := evaluate(query, families)
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			if len(values) > 0 {
				names = append(names, r.Alert)
			}
		}
	}
	slices.Sort(names)
	return names
}

// evaluate returns the values of a query of those kinds that the rules above have.
func evaluate(e parser.Expr, families Families) (values []float64, err error) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return evaluate(e.Expr, families)
	case *parser.MatrixSelector:
		return evaluate(e.VectorSelector, families)
	case *parser.VectorSelector:
		for _, m := range families[e.Name].GetMetric() {
			has := Labels(m)
			if !slices.ContainsFunc(e.LabelMatchers, func(of *labels.Matcher) bool { return of.Name != model.MetricNameLabel && !of.Matches(has[of.Name]) }) {
				values = append(values, m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
		return values, nil
	case *parser.Call:
		values, err := evaluate(e.Args[0], families)
		if e.Func.Name == "rate" {
			clear(values) // the page doesn't change
			return values, err
		}
		return values, err // of max_over_time and min_over_time
	case *parser.AggregateExpr:
		values, err := evaluate(e.Expr, families)
		if err != nil || len(values) == 0 {
			return nil, err
		}
		switch e.Op {
		case parser.MAX:
			return []float64{slices.Max(values)}, nil
		case parser.MIN:
			return []float64{slices.Min(values)}, nil
		case parser.SUM:
			sum := 0.0
			for _, v := range values {
				sum += v
			}
			return []float64{sum}, nil
		}
	case *parser.BinaryExpr:
		left, err := evaluate(e.LHS, families)
		if err != nil {
			return nil, err
		}
		if _, is := e.RHS.(*parser.NumberLiteral); is && e.Op == parser.GTR {
			return slices.DeleteFunc(left, func(v float64) bool { return v <= 0 }), nil
		}
		if right, err := evaluate(e.RHS, families); e.Op == parser.LUNLESS {
			if len(right) > 0 {
				left = nil
			}
			return left, err
		}
	}
	return nil, fmt.Errorf("%s can't be evaluated here", e)
}
