package redistest_test

import (
	"fmt"
	"runtime"
	"testing"
)

// fake records how a helper ends its test.
type fake struct {
	testing.TB
	fatal, skipped bool
	said           string
}

func (f *fake) Helper()         {}
func (f *fake) Log(args ...any) {}
func (f *fake) Fatal(args ...any) {
	f.fatal, f.said = true, fmt.Sprint(args...)
	runtime.Goexit()
}
func (f *fake) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }
func (f *fake) Skip(args ...any) {
	f.skipped, f.said = true, fmt.Sprint(args...)
	runtime.Goexit()
}

// watch runs a helper on a fake test. It returns the fake.
func watch(t *testing.T, run func(t testing.TB)) *fake {
	f := &fake{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(f)
	}()
	<-done
	return f
}
