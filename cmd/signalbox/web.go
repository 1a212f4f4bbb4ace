package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/web"
)

// webEnds is how long requests may take when the command ends.
const webEnds = 2 * time.Second

func (a *app) webCommand() *cobra.Command {
	var listen, traceURL string
	var show bool
	c := a.command("web [flags]", "Serve pages for a browser that show queues and jobs", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		if a.json() {
			return usage("web is for people: programs read queue ls, worker ls and job ls with -o json")
		}
		if _, _, err := net.SplitHostPort(listen); err != nil {
			return usage("--listen %q: want an address and a port, such as 127.0.0.1:8040", listen)
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		pages, err := web.New(ins, web.Config{Title: a.namespace(), TraceURL: traceURL, Show: func(*http.Request) bool { return show }})
		if err != nil {
			return err
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", listen)
		if err != nil {
			return fmt.Errorf("--listen %s: %v; take another address or port", listen, err) // not wrapped: it isn't Redis that doesn't answer
		}
		host, port, _ := net.SplitHostPort(l.Addr().String())
		switch ip := net.ParseIP(host); {
		case ip.IsUnspecified():
			host = "localhost"
			fallthrough
		case !ip.IsLoopback():
			a.note("Not only this machine reaches the pages, and they are served without TLS: who reads the network has the link.")
		}
		door := newDoor(port, pages)
		fmt.Fprintf(a.out, "http://%s/?token=%s\n", net.JoinHostPort(host, port), door.token)
		a.note("Open the link in a browser. Who has it sees the pages. Ctrl-C ends them.")
		a.flush()
		return serveUntil(ctx, l, door)
	})
	c.Long = `Serve web pages that show queues and jobs, until Ctrl-C. They change nothing.
What they show, and how a service serves them itself:
` + guide + `web.md

The link that is printed has a random token. The browser gets a cookie for it,
which holds until the command ends. Only this machine reaches the pages unless
--listen names another address.`
	c.Example = `  signalbox web
  signalbox web --listen localhost:8040 --arguments`
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "the `ADDRESS` and port; port 0 is any that is free")
	c.Flags().BoolVar(&show, "arguments", false, "also show arguments, results and headers of jobs")
	c.Flags().StringVar(&traceURL, "trace-url", "", "link trace IDs to this `ADDRESS`, which has {trace} in the place of the ID")
	return c
}

// serveUntil serves a handler until ctx has ended.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), webEnds)
	defer cancel()
	if srv.Shutdown(late) != nil {
		_ = srv.Close() // those that are left are cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A door lets those in who have the token of the link, and gives them a cookie in its place, so that no other address has it.
type door struct {
	token, pass string
	cookie      string
	next        http.Handler
}

// newDoor returns a door for a port: cookies are of a host, whatever its ports.
func newDoor(port string, next http.Handler) *door {
	return &door{token: rand.Text(), pass: rand.Text(), cookie: "signalbox-web-" + port, next: next}
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(d.cookie); err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.pass)) == 1 && !r.URL.Query().Has("token") {
		d.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("token")), []byte(d.token)) == 1 {
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.pass, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	http.Error(w, "Open the link that signalbox web has printed.", http.StatusForbidden)
}
