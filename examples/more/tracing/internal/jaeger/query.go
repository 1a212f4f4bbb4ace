package jaeger

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Span is a span in Jaeger.
type Span struct {
	TraceID, SpanID string
	ParentID        string // "" for a root
	Name            string
	Kind            string // SERVER, CLIENT, PRODUCER, CONSUMER, INTERNAL
	Service         string // the process that made it
	Instance        string
	Scope           string
	Start, End      time.Time
	Attributes      map[string]any // string, int64, float64, bool or []any
	Events          []Event
	Links           []Link
	Error           bool // its status is an error
	Status          string
}

// An Event happened in a span.
type Event struct {
	Name       string
	Attributes map[string]any
}

// A Link leads from a span to another.
type Link struct{ TraceID, SpanID string }

// Link returns a link to this span.
func (s *Span) Link() Link { return Link{s.TraceID, s.SpanID} }

// Trace returns the spans of a trace, by start time, and the API's whole answer. If Jaeger doesn't
// know the trace, there are no spans.
func (s *Server) Trace(ctx context.Context, id string) ([]*Span, []byte, error) {
	return s.get(ctx, "/api/v3/traces/"+url.PathEscape(id))
}

// Search returns the spans of up to limit traces that have a span of the service.
func (s *Server) Search(ctx context.Context, service string, limit int) ([]*Span, []byte, error) {
	return s.get(ctx, "/api/v3/traces?"+url.Values{
		"query.service_name":   {service},
		"query.start_time_min": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)},
		"query.start_time_max": {time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano)},
		"query.num_traces":     {strconv.Itoa(limit)},
	}.Encode())
}

// SearchErrors returns the IDs of the traces in which a span of the service has this error.type.
func (s *Server) SearchErrors(ctx context.Context, service, errorType string, limit int) ([]string, error) {
	tags, err := json.Marshal(map[string]string{"error.type": errorType})
	if err != nil {
		return nil, err
	}
	status, body, err := s.fetch(ctx, "/api/traces?"+url.Values{
		"service": {service}, "limit": {strconv.Itoa(limit)}, "tags": {string(tags)}, "lookback": {"1h"},
	}.Encode())
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("jaeger's search answers %d: %s", status, body)
	}
	var found struct {
		Data []struct {
			TraceID string `json:"traceID"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, err
	}
	var ids []string
	for _, d := range found.Data {
		ids = append(ids, d.TraceID)
	}
	return ids, nil
}

// Services returns the names of all services that sent a span.
func (s *Server) Services(ctx context.Context) ([]string, error) {
	_, body, err := s.fetch(ctx, "/api/v3/services")
	if err != nil {
		return nil, err
	}
	var found struct {
		Services []string `json:"services"`
	}
	return found.Services, json.Unmarshal(body, &found)
}

func (s *Server) get(ctx context.Context, path string) ([]*Span, []byte, error) {
	status, body, err := s.fetch(ctx, path)
	switch {
	case err != nil:
		return nil, nil, err
	case status == http.StatusNotFound:
		return nil, nil, nil
	case status != http.StatusOK:
		return nil, nil, fmt.Errorf("jaeger answers %d: %s", status, body)
	}
	spans, err := decode(body)
	return spans, body, err
}

func (s *Server) fetch(ctx context.Context, path string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Query+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// The answer is OTLP in JSON.
type (
	answer struct {
		Result struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes []keyValue }
				ScopeSpans []struct {
					Scope struct{ Name string }
					Spans []span
				}
			}
		}
	}
	span struct {
		TraceID           string `json:"traceId"`
		SpanID            string `json:"spanId"`
		ParentSpanID      string `json:"parentSpanId"`
		Name              string
		Kind              json.RawMessage
		StartTimeUnixNano string
		EndTimeUnixNano   string
		Attributes        []keyValue
		Events            []struct {
			Name       string
			Attributes []keyValue
		}
		Links []struct {
			TraceID string `json:"traceId"`
			SpanID  string `json:"spanId"`
		}
		Status struct {
			Code    json.RawMessage
			Message string
		}
	}
	keyValue struct {
		Key   string
		Value value
	}
	value struct {
		StringValue *string
		IntValue    *string
		DoubleValue *float64
		BoolValue   *bool
		ArrayValue  *struct{ Values []value }
	}
)

var kinds = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}

func decode(body []byte) ([]*Span, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("jaeger's answer: %w", err)
	}
	var all []*Span
	for _, r := range a.Result.ResourceSpans {
		resource := attributes(r.Resource.Attributes)
		service, _ := resource["service.name"].(string)
		instance, _ := resource["service.instance.id"].(string)
		for _, sc := range r.ScopeSpans {
			for _, in := range sc.Spans {
				s := &Span{
					TraceID: in.TraceID, SpanID: in.SpanID, ParentID: in.ParentSpanID, Name: in.Name,
					Kind: enum(in.Kind, "SPAN_KIND_", kinds), Service: service, Instance: instance, Scope: sc.Scope.Name,
					Start: nanos(in.StartTimeUnixNano), End: nanos(in.EndTimeUnixNano),
					Attributes: attributes(in.Attributes), Status: in.Status.Message,
					Error: enum(in.Status.Code, "STATUS_CODE_", []string{"UNSET", "OK", "ERROR"}) == "ERROR",
				}
				for _, e := range in.Events {
					s.Events = append(s.Events, Event{e.Name, attributes(e.Attributes)})
				}
				for _, l := range in.Links {
					s.Links = append(s.Links, Link{l.TraceID, l.SpanID})
				}
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *Span) int { return a.Start.Compare(b.Start) })
	return all, nil
}

// enum reads a value that is a number or a name.
func enum(raw json.RawMessage, prefix string, names []string) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return strings.TrimPrefix(name, prefix)
	}
	var n int
	if json.Unmarshal(raw, &n) != nil || n < 0 || n >= len(names) {
		return names[0]
	}
	return names[n]
}

func nanos(s string) time.Time {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Unix(0, n).UTC()
}

func attributes(list []keyValue) map[string]any {
	m := make(map[string]any, len(list))
	for _, kv := range list {
		m[kv.Key] = kv.Value.any()
	}
	return m
}

func (v value) any() any {
	switch {
	case v.StringValue != nil:
		return *v.StringValue
	case v.IntValue != nil:
		n, _ := strconv.ParseInt(*v.IntValue, 10, 64)
		return n
	case v.DoubleValue != nil:
		return *v.DoubleValue
	case v.BoolValue != nil:
		return *v.BoolValue
	case v.ArrayValue != nil:
		var list []any
		for _, e := range v.ArrayValue.Values {
			list = append(list, e.any())
		}
		return list
	}
	return nil
}
