package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The pages are for who has the link, and end with the command. Arguments are on them only if that is asked for.
func TestWeb(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"to":"SECRET"}`, "-q", "mail", "--id", "order-17")

	for _, args := range [][]string{{"web"}, {"web", "--arguments"}} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		out, written := io.Pipe()
		var errs bytes.Buffer
		a := &app{in: strings.NewReader(""), out: written, err: &errs, env: func(name string) string { return sh.env[name] }}
		ended := make(chan int)
		go func() {
			code := a.run(ctx, args)
			_ = written.Close()
			ended <- code
		}()
		lines := bufio.NewReader(out)
		link, err := lines.ReadString('\n')
		link = strings.TrimSpace(link)
		address, token, found := strings.Cut(link, "?token=")
		if err != nil || !found || len(token) < 20 || !strings.HasPrefix(address, "http://127.0.0.1:") {
			t.Fatalf("%q, %v", link, err)
		}
		get := func(client *http.Client, url string) (int, string, string) {
			t.Helper()
			reply, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(reply.Body)
			_ = reply.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			return reply.StatusCode, string(body), reply.Request.URL.String()
		}
		plain := &http.Transport{}
		stranger := &http.Client{Transport: plain}
		for _, path := range []string{"", "style.css", "?token=", "?token=" + token[1:], "job?queue=mail&id=order-17"} {
			if status, body, _ := get(stranger, address+path); status != http.StatusForbidden || strings.Contains(body, "mail") {
				t.Errorf("%q: %d", path, status)
			}
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		guest := &http.Client{Transport: plain, Jar: jar}
		for range 2 { // also with the link again
			if status, body, at := get(guest, link); status != http.StatusOK || !strings.Contains(body, "mail") || strings.Contains(at, token) || strings.Contains(body, token) {
				t.Errorf("%d at %s", status, at)
			}
		}
		if status, body, _ := get(guest, address+"job?queue=mail&id=order-17"); status != http.StatusOK || strings.Contains(body, "SECRET") != (len(args) > 1) {
			t.Errorf("%v: %d, %s", args, status, body)
		}
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("status %d, %s", code, errs.String())
		}
		plain.CloseIdleConnections()
	}

	sh.fails(exitUsage, []string{"web is for people"}, "web", "-o", "json")
	sh.fails(exitUsage, []string{`--listen "nowhere"`, "port"}, "web", "--listen", "nowhere")
	sh.fails(exitUsage, []string{"--trace-url: want an address with {trace} once"}, "web", "--trace-url", "https://jaeger.example/")
	sh.fails(exitFailure, []string{"--listen " + srv.Addr(), "another"}, "web", "--listen", srv.Addr())
}
