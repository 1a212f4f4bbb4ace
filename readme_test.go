package signalbox_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestREADME: the program of README.md runs its job, and a SIGTERM ends it with status 0.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(page)
	if code == nil {
		t.Fatal("README.md has no program")
	}
	srv := redistest.New(t)
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	text := strings.ReplaceAll(string(code[1]), "localhost:6379", srv.Addr())
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.HasSuffix(lines.Text(), "welcome, user 42") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "welcome, user 42") {
		t.Errorf("%v\n%s", err, log.String())
	}
}
