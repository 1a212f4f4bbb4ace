package worker

import (
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A stack that is kept has whole lines, and no argument of a call.
func TestTidy(t *testing.T) {
	t.Parallel()
	got := tidy("goroutine 7 [chan receive, 2 minutes]:\nmain.charge(0x2a, {0xc000012345, 0x3})\n\t/app/main.go:7 +0x1d\n" +
		"main.(*shop).Handle(0xc0001, ...)\n\t/app/(shop)/main.go:9 +0x1d\ncreated by main.main in goroutine 1\n\t/app/main.go:3 +0x2\n")
	want := "goroutine 7 [chan receive, 2 minutes]:\nmain.charge(...)\n\t/app/main.go:7 +0x1d\n" +
		"main.(*shop).Handle(...)\n\t/app/(shop)/main.go:9 +0x1d\ncreated by main.main in goroutine 1\n\t/app/main.go:3 +0x2"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	long := tidy("goroutine 7 [running]:\n" + strings.Repeat("main.recurse(0x1)\n\t/app/main.go:7 +0x1d\n", 1000))
	if len(long) > store.MaxStuckStack || len(long) < store.MaxStuckStack-100 || !strings.HasSuffix(long, "+0x1d") && !strings.HasSuffix(long, "(...)") {
		t.Errorf("%d bytes, which end %q", len(long), long[len(long)-20:])
	}
}

// Of the first line of a stack its goroutine's number and state stay. The labels of profilers may have data of users.
func TestTidyFirstLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"goroutine 7 [running]:":                                           "goroutine 7 [running]:",
		"goroutine 7 [select, 2 minutes, locked to thread]:":               "goroutine 7 [select, 2 minutes, locked to thread]:",
		`goroutine 7 [running] {"user": "alice@example.com"}:`:             "goroutine 7 [running]:",
		`goroutine 7 gp=0xc000002380 m=0 mp=0x1 [running]:`:                "goroutine 7 [running]:",
		`goroutine 7 [chan receive] labels:{"user":"alice]@example.com"}:`: "goroutine 7 [chan receive]:",
		`goroutine 7 [chan receive labels:{"user":"alice@example.com"}]:`:  "goroutine 7 [chan receive]:",
		`goroutine 7 something else`:                                       "goroutine 7:",
	} {
		if got := tidy(line + "\nmain.f(0x1)\n\t/app/main.go:7 +0x1d\n"); got != want+"\nmain.f(...)\n\t/app/main.go:7 +0x1d" {
			t.Errorf("%s\n%s", line, got)
		}
	}
}

// A slot's goroutine is found among all.
func TestStackOfASlot(t *testing.T) {
	t.Parallel()
	release, running := make(chan struct{}), make(chan struct{})
	s := newSlots(1, func(*delivery) { close(running); here(release) })
	sl := s.take(1)[0]
	d := &delivery{slot: sl}
	s.start(d)
	<-running
	stacks := stacksOf([]*delivery{d})
	if got := stacks[sl.goroutine.Load()]; len(stacks) != 1 || !strings.Contains(got, "worker.here(...)") {
		t.Errorf("%d stacks: %s", len(stacks), got)
	}
	close(release)
	s.close()
}

func here(release chan struct{}) { <-release }

// What the labels of a handler cost each job.
func BenchmarkLabels(b *testing.B) {
	l := newLabels(b.Context(), "mail", map[string]*kind{"email.welcome": nil, "another": nil})
	b.ReportAllocs()
	for b.Loop() {
		if kind := l.kinds["email.welcome"]; kind != nil {
			pprof.SetGoroutineLabels(kind)
			pprof.SetGoroutineLabels(l.none)
		}
	}
}
