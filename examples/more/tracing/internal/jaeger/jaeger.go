// Package jaeger runs a real Jaeger for tests and reads traces from its API.
//
// The environment variable JAEGER_BIN names the binary. By default it is the one that
// tools/jaeger/build.sh has built. Without one, tests are skipped; with
// SIGNALBOX_TEST_JAEGER=required they fail.
package jaeger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	envBinary = "JAEGER_BIN"
	envMode   = "SIGNALBOX_TEST_JAEGER" // "" or "required"

	startTimeout = 60 * time.Second
	stopTimeout  = 10 * time.Second
)

// The kernel chooses the ports. Jaeger writes them to its log.
const config = `
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {metrics: {level: none}, logs: {level: info, encoding: json}}
extensions:
  jaeger_storage: {backends: {mem: {memory: {max_traces: 100000}}}}
  jaeger_query:
    storage: {traces: mem}
    http: {endpoint: "127.0.0.1:0"}
    grpc: {endpoint: "127.0.0.1:0"}
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}}
exporters: {jaeger_storage_exporter: {trace_storage: mem}}
`

// A Server is a running Jaeger.
type Server struct {
	OTLP  string // URL to send spans to, by HTTP
	Query string // URL of its API

	client *http.Client
}

// Start starts a Jaeger and returns when it is ready. It ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	path := needBinary(t)
	file := filepath.Join(t.TempDir(), "jaeger.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--config", file)
	cmd.SysProcAttr = dieWithParent()
	cmd.Env = []string{"OTEL_TRACES_SAMPLER=always_off"} // no spans of its own API, which the tests use
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start Jaeger: %v", err)
	}
	log := &log{ready: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		log.follow(stderr)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // if it has ended already, Wait returns that
		late := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() })
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("Jaeger ended: %v", err)
		}
		late.Stop()
		if t.Failed() && log.complaints() != "" {
			t.Logf("Jaeger's log:\n%s", log.complaints())
		}
	})
	select {
	case <-log.ready:
	case <-read:
		t.Fatalf("Jaeger did not start:\n%s", log.complaints())
	case <-time.After(startTimeout):
		t.Fatalf("Jaeger is not ready after %v:\n%s", startTimeout, log.complaints())
	}
	return &Server{
		OTLP: "http://" + log.otlp, Query: "http://127.0.0.1:" + strconv.Itoa(log.query),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second},
	}
}

// needBinary returns the path of Jaeger. Without one the test is skipped, or fails if one is
// required.
func needBinary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err == nil {
		return path
	}
	if os.Getenv(envMode) == "required" {
		t.Fatalf("%s=required, but there is no Jaeger: %v", envMode, err)
	}
	t.Skipf("needs Jaeger, see tools/jaeger/build.sh and %s: %v", envBinary, err)
	return ""
}

func binary() (string, error) {
	switch mode := os.Getenv(envMode); mode {
	case "", "required":
	default:
		return "", fmt.Errorf("%s=%q: want \"\" or \"required\"", envMode, mode)
	}
	if path := os.Getenv(envBinary); path != "" {
		return exec.LookPath(path)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(filepath.Join(root, "..", "..", "tools", "jaeger", "build.sh"), "-path").Output()
	if err != nil {
		return "", fmt.Errorf("tools/jaeger/build.sh -path: %w", err)
	}
	return exec.LookPath(strings.TrimSpace(string(out)))
}

// moduleRoot returns the folder of this module. Tests run in the folder of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// log receives Jaeger's output. The addresses are complete when ready is closed.
type log struct {
	otlp  string
	query int
	ready chan struct{}

	mu  sync.Mutex
	bad bytes.Buffer // all lines that are no information
}

func (l *log) follow(r io.Reader) {
	lines := bufio.NewReader(r)
	up, told := false, false
	for {
		line, err := lines.ReadBytes('\n')
		var e struct {
			Level    string `json:"level"`
			Msg      string `json:"msg"`
			ID       string `json:"otelcol.component.id"`
			Endpoint string `json:"endpoint"`
			Port     int    `json:"port"`
		}
		if bad := json.Unmarshal(line, &e) != nil; bad || e.Level != "info" {
			l.mu.Lock()
			l.bad.Write(line)
			l.mu.Unlock()
		}
		switch {
		case e.Msg == "Starting HTTP server" && e.ID == "otlp":
			l.otlp = e.Endpoint
		case e.Msg == "Starting HTTP server" && e.ID == "jaeger_query":
			l.query = e.Port
		case strings.HasPrefix(e.Msg, "Everything is ready"):
			up = true
		}
		if up && l.otlp != "" && l.query != 0 && !told {
			told = true
			close(l.ready)
		}
		if err != nil {
			return
		}
	}
}

func (l *log) complaints() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bad.String()
}
