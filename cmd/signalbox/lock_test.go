package main

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

func TestLockLs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	name := redistest.Name(t)
	pattern := name + ":*"
	if out, errs, code := sh.run("lock", "ls", pattern); out != "" || code != 0 || !strings.Contains(errs, "No lock") {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	locker, err := lock.New(srv.Client(), lock.Config{Owner: "web-1", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{":a", ":b"} {
		held, err := locker.Acquire(t.Context(), name+key)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Release(t.Context())
	}
	out := sh.ok("lock", "ls", pattern)
	for _, want := range []string{"KEY ", name + ":a  web-1", ":b  web-1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	var got lockJSON
	decode(t, sh.ok("lock", "ls", name+":b", "-o", "json"), &got)
	if got.Key != name+":b" || got.Owner != "web-1" || got.Token == 0 || got.Since == nil || got.LeftSeconds == nil || *got.LeftSeconds < 3000 {
		t.Errorf("%+v", got)
	}
	sh.fails(exitUsage, []string{"lock ls PATTERN"}, "lock", "ls")
}
