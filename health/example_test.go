package health_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

type Welcome struct{ UserID int }

func (Welcome) Kind() string { return "email.welcome" }

// A process with a worker and a scheduler answers the probes of an orchestrator.
func Example() {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	srv, err := embedded.Start(embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := worker.New(rdb, worker.Config{Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker.Handle(w, func(context.Context, *signalbox.Job, Welcome) error { return nil })

	mux := http.NewServeMux()
	mux.Handle("/livez", health.Live(w, s))
	mux.Handle("/readyz", health.Ready(w, s))

	probe := func(when string) {
		fmt.Printf("%s: live %d, ready %d\n", when, status(mux, "/livez"), status(mux, "/readyz"))
	}
	probe("before Run")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for status(mux, "/readyz") != http.StatusOK {
		<-time.After(10 * time.Millisecond)
	}
	probe("it runs")
	stop()
	if err := <-done; err != nil {
		fmt.Println(err)
	}
	for _, p := range health.Join(w.Health(), s.Health()).Problems {
		fmt.Println("after Run:", p.Part, p.Code, p.Severity)
	}
	// Output:
	// before Run: live 200, ready 503
	// it runs: live 200, ready 200
	// after Run: worker not-running unready
}

func status(h http.Handler, path string) int {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Code
}
