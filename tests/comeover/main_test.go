package comeover

import (
	"fmt"
	"os"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(partEnv); text != "" {
		if err := bePart(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	redistest.Main(m)
}
