package prom

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// A dashboard is what the test reads of Grafana's JSON.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// inGrafana replaces the variables of Grafana that the queries have.
var inGrafana = strings.NewReplacer("$__rate_interval", "5m", "$queue", ".*")

// docs/grafana.json is a dashboard of Grafana. Its queries parse as Prometheus parses them, and speak of metrics and labels that there are. Each metric is in a panel.
func TestGrafana(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/grafana.json")
	must(t, err)
	var d dashboard
	must(t, json.Unmarshal(text, &d))
	seen := make(map[string]bool)
	var ids []int
	for i, p := range d.Panels {
		if slices.Contains(ids, p.ID) || p.ID == 0 || p.Title == "" {
			t.Errorf("the panel %q has no title, or not an ID of its own: %d", p.Title, p.ID)
		}
		ids = append(ids, p.ID)
		g := p.GridPos
		for _, other := range d.Panels[:i] {
			o := other.GridPos
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("the panels %q and %q overlap", other.Title, p.Title)
			}
		}
		if g.X+g.W > 24 {
			t.Errorf("the panel %q is wider than the dashboard", p.Title)
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("the panel %q has %d queries", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			expr := inGrafana.Replace(target.Expr)
			if strings.Contains(expr, "$") || target.LegendFormat == "" {
				t.Errorf("%s: a variable that isn't there, or no legend: %s", p.Title, target.Expr)
				continue
			}
			checkNames(t, p.Title, expr)
			checkLegend(t, p.Title, target.LegendFormat)
			query, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
			must(t, err)
			parser.Inspect(query, func(n parser.Node, _ []parser.Node) error {
				if n, ok := n.(*parser.VectorSelector); ok {
					seen[strings.TrimSuffix(n.Name, "_bucket")] = true
				}
				return nil
			})
		}
	}
	for _, in := range slices.Concat(instruments, ofOutboxes) {
		if !seen[in.exported()] {
			t.Errorf("no panel has %s", in.exported())
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		metric, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
		if !ok {
			t.Fatalf("the variable %s is made by %q", v.Name, v.Definition)
		}
		checkNames(t, "$"+v.Name, "sum by ("+label+") ("+metric+")")
	}
	if len(d.Panels) < 20 || len(d.Templating.List) != 2 {
		t.Errorf("%d panels, %d variables; are the others not seen?", len(d.Panels), len(d.Templating.List))
	}
}

// checkLegend checks the labels that a legend names, such as {{signalbox_job_kind}}.
func checkLegend(t *testing.T, title, legend string) {
	t.Helper()
	for rest := legend; strings.Contains(rest, "{{"); {
		var label string
		_, rest, _ = strings.Cut(rest, "{{")
		label, rest, _ = strings.Cut(rest, "}}")
		checkNames(t, title, "sum by ("+label+") (signalbox_queue_depth)")
	}
}
