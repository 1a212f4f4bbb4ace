// Package prom reads OpenTelemetry's metrics back from a real Prometheus exporter, over HTTP.
package prom

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// A Page is a page of metrics, with the provider that writes them.
type Page struct {
	Provider *sdkmetric.MeterProvider

	url    string
	client *http.Client
}

// Serve serves a page until the test ends.
func Serve(t testing.TB) *Page {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{
		Provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
		client:   &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	p.url = server.URL
	t.Cleanup(server.Close)
	return p
}

// Families has all metrics of a scrape, by the names that Prometheus gives them.
type Families map[string]*dto.MetricFamily

// Scrape reads the page.
func (p *Page) Scrape() (Families, error) {
	resp, err := p.client.Get(p.url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape: %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(resp.Body)
}

// Name returns Prometheus's name of an instrument. A unit in braces, which says what is counted,
// is left out. A counter ends in "_total".
func Name(instrument, unit string, counter bool) string {
	name := strings.ReplaceAll(instrument, ".", "_")
	if unit == "s" {
		name += "_seconds"
	}
	if counter {
		name += "_total"
	}
	return name
}

// Labels returns a metric's labels, without those of the instrumentation.
func Labels(m *dto.Metric) map[string]string {
	labels := make(map[string]string)
	for _, l := range m.GetLabel() {
		if !strings.HasPrefix(l.GetName(), "otel_scope_") {
			labels[l.GetName()] = l.GetValue()
		}
	}
	return labels
}

// Total returns the sum of a family: of its values, or of the counts of its histograms.
func (f Families) Total(name string, match func(labels map[string]string) bool) float64 {
	sum := 0.0
	for _, m := range f[name].GetMetric() {
		if match != nil && !match(Labels(m)) {
			continue
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}
