package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ErrMissing is the error of a server whose program isn't installed.
type ErrMissing struct{ Program, Package string }

func (e ErrMissing) Error() string {
	return fmt.Sprintf("%s is not installed; Debian's package is %s", e.Program, e.Package)
}

// find returns the path of a program. The patterns are those of filepath.Glob, for folders that PATH has not.
func find(program, pkg string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", ErrMissing{program, pkg}
}

// need ends the test if err isn't nil: a missing program skips it, unless CI requires all programs.
func need(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if _, missing := err.(ErrMissing); missing && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(err)
	}
	t.Fatal(err)
}
