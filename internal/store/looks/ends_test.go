package looks

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// Go reads the scores of jobs that have ended as testdata/ends.txt of package wire says. TestChapterRetention shows that scripts do.
func TestEndsAreRead(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../wire/testdata/ends.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	for _, line := range lines {
		fields := strings.Fields(line)
		job := signalbox.Job{Kind: "k"}
		switch us, err := strconv.ParseInt(fields[1], 10, 64); {
		case err != nil: // it doesn't say it
		case us == 0:
			job.Retain = signalbox.RetainNone
		default:
			job.Retain = time.Duration(us) * time.Microsecond
		}
		score := facts.ParseScore(fields[0])
		if got := fmt.Sprint(EndOf(score, string(wire.AppendRecord(nil, &job))).UnixMicro()); got != fields[2] {
			t.Errorf("%s: it ended at %s", line, got)
		}
		dropped := "-"
		if us, own := dropTime(score); own {
			dropped = strconv.FormatFloat(us, 'f', 0, 64)
		}
		if dropped != fields[3] {
			t.Errorf("%s: it is dropped at %s", line, dropped)
		}
	}
}
