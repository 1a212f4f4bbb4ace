package servertest

import (
	_ "embed" // the shim
	native "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

//go:embed clock/clock.c
var clockSource string

// Clock returns the environment of a server whose wall clock can be moved: shift sets it ahead of the machine's clock by d,
// which may be negative. It needs Linux and a C compiler. Without them the test is skipped, or fails if real servers
// are required.
func Clock(t testing.TB) (env []string, shift func(d time.Duration)) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		if os.Getenv("SIGNALBOX_TEST_REDIS") == "required" {
			t.Fatalf("a server's clock can be moved only on Linux with a C compiler: %v", err)
		}
		t.Skip("moving a server's clock needs Linux and a C compiler")
	}
	dir := t.TempDir()
	shim, offset := filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	build := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", shim, "-x", "c", "-")
	build.Stdin = strings.NewReader(clockSource)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the shim: %v\n%s", err, output)
	}
	file, err := os.OpenFile(offset, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	shift = func(d time.Duration) {
		t.Helper()
		if _, err := file.WriteAt(native.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0); err != nil {
			t.Fatal(err)
		}
	}
	shift(0)
	return []string{"LD_PRELOAD=" + shim, "REDISTEST_CLOCK=" + offset}, shift
}
