package main

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// A toy is the other system, when there is none.
type toy struct {
	*http.Server
	url string
}

func startToy() (*toy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sales/{account}/{day}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("account") == "nobody" {
			http.NotFound(w, r)
			return
		}
		select {
		case <-time.After(200 * time.Millisecond): // it is slow
		case <-r.Context().Done():
			return
		}
		for n := range 3 {
			fmt.Fprintf(w, "%s,%s,%d\n", r.PathValue("day"), r.PathValue("account"), 100+n)
		}
	})
	mux.HandleFunc("POST /notices/{report}", func(http.ResponseWriter, *http.Request) {})
	t := &toy{&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, "http://" + l.Addr().String()}
	go func() { _ = t.Serve(l) }() // returns after Close
	return t, nil
}
