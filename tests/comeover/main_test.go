package comeover

import (
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
