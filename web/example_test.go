package web_test

import (
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/web"
)

// A service serves the pages under a prefix, behind its own check of who is there. Operators see everything. Others see the queues of their team, and no arguments.
func ExampleNew() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler))) // elsewhere, give New your own client
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()

	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	pages, err := web.New(ins, web.Config{
		Title: "shop",
		Queues: func(r *http.Request) web.Scope {
			user, _, _ := r.BasicAuth()
			if user == "operator" {
				return web.Scope{All: true}
			}
			return web.Scope{Queue: func(name string) bool { return strings.HasPrefix(name, user+"-") }}
		},
		Show: func(r *http.Request) bool {
			user, _, _ := r.BasicAuth()
			return user == "operator"
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/signalbox/", signedIn(pages))

	r := httptest.NewRequest(http.MethodGet, "/signalbox/", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)
	r.SetBasicAuth("operator", "secret")
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "Signalbox shop"))
	// Output:
	// 401
	// 200 true
}

// signedIn stands for the check that a service has.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			http.Error(w, "sign in", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Operators may do everything, support may retry jobs of the queue of mails, and the others only look.
func ExampleConfig_authorize() {
	cfg := web.Config{
		Authorize: func(r *http.Request, a web.Action) error {
			user, _, _ := r.BasicAuth()
			switch {
			case user == "operator":
				return nil
			case user == "support" && a.What == web.Retry && a.Queue == "mail":
				return nil
			}
			return fmt.Errorf("%s may not %s", user, a.What)
		},
		User: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user },
	}
	r := httptest.NewRequest(http.MethodGet, "/signalbox/", nil)
	r.SetBasicAuth("support", "secret")
	fmt.Println(cfg.Authorize(r, web.Action{What: web.Retry, Queue: "mail", Job: "17"}))
	fmt.Println(cfg.Authorize(r, web.Action{What: web.Pause, Queue: "mail"}))
	// Output:
	// <nil>
	// support may not pause
}
