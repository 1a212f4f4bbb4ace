package store

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// NewIncarnation returns a random number that identifies one job among all jobs that use its ID, before or after. It is never 0.
func NewIncarnation() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

// TickEffect returns the effect key for the job of a cron entry's tick.
func TickEffect(namespace, queue, entry string, tick time.Time) string {
	if namespace != "" && namespace != layout.DefaultNamespace {
		queue = namespace + ":" + queue
	}
	return "{" + queue + "}" + entry + "{@" + strconv.FormatInt(max(tick.UnixMicro(), 0), 10) + "}"
}
