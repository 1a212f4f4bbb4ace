package scenarios_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/tests/proof/scenarios"
)

func TestMain(m *testing.M) {
	if scenarios.ChildMain() {
		return
	}
	os.Exit(m.Run())
}

func TestScenarios(t *testing.T) {
	mode := os.Getenv("SIGNALBOX_TEST_REDIS")
	if mode == "embedded" {
		t.Skip("needs real redis-servers")
	}
	var out strings.Builder
	passed, total, err := scenarios.Run(t.Context(), &out)
	t.Log("\n" + out.String())
	switch {
	case errors.Is(err, scenarios.ErrMissing) && mode != "required":
		t.Skip(err)
	case err != nil || passed != total || total != 4:
		t.Errorf("%d of %d: %v", passed, total, err)
	}
}
