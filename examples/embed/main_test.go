package main

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// envMain makes a test binary be the program.
const envMain = "EMBED_TEST_MAIN"

// TestMain is also the main function of the processes that the tests start. Such a process ends with the test that holds its standard
// input.
func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		main()
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // failures are part of the tests
	redistest.Main(m)
}
