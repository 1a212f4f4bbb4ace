package prom

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// docs/alerts.yml is a file of rules for Prometheus. It speaks of metrics and labels that there are, and the runbook has each alert.
func TestAlerts(t *testing.T) {
	rules, errs := rulefmt.ParseFile("../../../../../docs/alerts.yml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	runbook, err := os.ReadFile("../../../../../docs/operations/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has no summary, or no severity", r.Alert)
			}
			if !strings.Contains(string(runbook), "`"+r.Alert+"`") {
				t.Errorf("docs/operations/runbook.md doesn't have the alert %s", r.Alert)
			}
			checkNames(t, r.Alert, r.Expr)
		}
	}
	if alerts < 10 {
		t.Errorf("%d alerts were read", alerts)
	}
}

// Names that don't exist are found.
func TestAlertsOfNothing(t *testing.T) {
	for expr, want := range map[string]string{
		`signalbox_queue_dept > 0`:                                             "signalbox_queue_dept",
		`signalbox_queue_depth{state="ready"}`:                                 "state",
		`signalbox_queue_depth_bucket`:                                         "signalbox_queue_depth_bucket",
		`sum by (queue) (rate(signalbox_jobs_settled_total[5m])) > 0`:          "queue",
		`signalbox_queue_depth{signalbox_queue_state="redy"}`:                  "redy",
		`signalbox_schedule_ticks_total{signalbox_schedule_outcome=~"lost.*"}`: "lost.*",
	} {
		if got := unknown(t, expr); !slices.Contains(got, want) {
			t.Errorf("%s: %q is not found to be unknown, only %q", expr, want, got)
		}
	}
}

func checkNames(t *testing.T, alert, expr string) {
	t.Helper()
	for _, name := range unknown(t, expr) {
		t.Errorf("%s: there is no %q", alert, name)
	}
}

// unknown returns the metrics, labels and values of a query that don't exist.
func unknown(t *testing.T, expr string) (names []string) {
	t.Helper()
	query, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, in := range slices.Concat(instruments, ofOutboxes) {
		name := in.exported()
		if in.kind == histogram {
			known[name+"_bucket"], known[name+"_sum"], known[name+"_count"] = true, true, true
			continue
		}
		known[name] = true
	}
	parser.Inspect(query, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if !known[n.Name] {
				names = append(names, n.Name)
			}
			for _, m := range n.LabelMatchers {
				values, closed := values[m.Name]
				switch {
				case m.Name == model.MetricNameLabel:
				case !slices.Contains(allowed, m.Name) && !slices.Contains(outboxLabels, m.Name):
					names = append(names, m.Name)
				case closed && !slices.ContainsFunc(values, m.Matches):
					names = append(names, m.Value)
				}
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !slices.Contains(allowed, label) && !slices.Contains(outboxLabels, label) {
					names = append(names, label)
				}
			}
		}
		return nil
	})
	return names
}

// values are those of labels that have few.
var values = map[string][]string{
	labelState:   {"ready", "blocked", "scheduled", "running", "dead", "cancelled", "completed"},
	labelCause:   {"paused", "held", "limited"},
	labelOutcome: {"completed", "retried", "snoozed", "returned", "dead", "cancelled"},
	labelTick:    {"fired", "skipped", "missed", "paused"},
	labelLock:    {"acquired", "held", "error", "taken", "expired"},
}

// ofOutboxes are the instruments of relays, which the alerts speak of, and outboxLabels their labels beside those of others.
var (
	ofOutboxes = []instrument{
		{"signalbox.outbox.backlog", "{job}", gauge, append(ofQueue, "signalbox_namespace"), 11},
		{"signalbox.outbox.lag", "s", gauge, append(ofQueue, "signalbox_namespace"), 90},
		{"signalbox.outbox.dead", "{job}", gauge, append(ofQueue, "signalbox_namespace"), 2},
		{"signalbox.outbox.relayed", "{job}", counter, append(ofQueue, "signalbox_namespace", "signalbox_outbox_outcome"), 5},
		{"signalbox.outbox.repairs", "{repair}", counter, append(ofQueue, "signalbox_namespace", "signalbox_outbox_repair"), 1},
	}
	outboxLabels = []string{"signalbox_namespace", "signalbox_outbox_outcome", "signalbox_outbox_repair"}
)

// The instruments of relays are on the page of a real exporter by these names.
func TestOutboxMetrics(t *testing.T) {
	page := Serve(t)
	m := telemetry.NewOutboxMetrics(page.Provider)
	m.Relayed(t.Context(), "shop", "mail", telemetry.RowEnqueued, 5)
	m.Repaired(t.Context(), "shop", "mail", telemetry.RepairRedis)
	t.Cleanup(m.ObserveDepths(func() []telemetry.OutboxDepth {
		return []telemetry.OutboxDepth{{Namespace: "shop", Queue: "mail", Backlog: 11, Dead: 2, Lag: 90 * time.Second}}
	}))
	families := page.mustScrape(t)
	for _, in := range ofOutboxes {
		f := families[in.exported()]
		if f == nil || f.GetType() != in.kind || families.Total(in.exported(), nil) < in.min {
			t.Errorf("%s: %v", in.exported(), f)
			continue
		}
		for _, name := range in.labels {
			if Labels(f.GetMetric()[0])[name] == "" {
				t.Errorf("%s has no label %s", in.exported(), name)
			}
		}
	}
}
