package health

import (
	"encoding/json"
	"net/http"
)

// Live returns a handler for a liveness probe. It answers with status 200, or with 503 if a source is Broken: then a restart helps. A
// Redis that is away, or a drain, leaves it at 200.
//
// The body is JSON: {"status":"unready","problems":[{"part":"worker","code":"redis-away","severity":"unready","queue":"mail",
// "since":"2026-01-02T15:04:05.678Z","detail":"connection refused"}]}. status is the worst severity, and queue is left out where there is
// none. It lists all problems, whatever the status of the response. It has no payload, no password and no address.
//
// Live panics if there is no source, or if one is nil.
func Live(sources ...Source) http.Handler { return handler("Live", sources, Report.Live) }

// Ready returns a handler for a readiness probe. It answers with status 200, or with 503 if a source is Unready or Broken: before a worker has its
// first leases, while it drains, and while Redis is away. The body is that of [Live].
//
// Ready panics if there is no source, or if one is nil.
func Ready(sources ...Source) http.Handler { return handler("Ready", sources, Report.Ready) }

func handler(name string, sources []Source, well func(Report) bool) http.Handler {
	if len(sources) == 0 {
		panic("health: " + name + " without a source")
	}
	for _, s := range sources {
		if s == nil {
			panic("health: " + name + " of a nil source")
		}
	}
	sources = append([]Source(nil), sources...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
			return
		}
		reports := make([]Report, len(sources))
		for i, s := range sources {
			reports[i] = s.Health()
		}
		report := Join(reports...)
		w.Header().Set("Content-Type", "application/json")
		if !well(report) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(bodyOf(report)) // the client may have gone
		}
	})
}

type body struct {
	Status   Severity      `json:"status"`
	Problems []problemJSON `json:"problems"`
}

type problemJSON struct {
	Part     string   `json:"part"`
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Queue    string   `json:"queue,omitempty"`
	Since    string   `json:"since"`
	Detail   string   `json:"detail"`
}

func bodyOf(r Report) body {
	b := body{Status: r.Severity(), Problems: make([]problemJSON, len(r.Problems))}
	for i, p := range r.Problems {
		b.Problems[i] = problemJSON{
			Part: p.Part, Code: p.Code, Severity: p.Severity, Queue: p.Queue, Detail: p.Detail,
			Since: p.Since.UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		}
	}
	return b
}
