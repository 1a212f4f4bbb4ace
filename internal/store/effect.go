package store

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// NewIncarnation returns a number that tells a job apart from others that use its ID before and after. It
// is never 0.
func NewIncarnation() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

// TickEffect returns the effect key of the job of a cron entry's tick.
func TickEffect(namespace, queue, entry string, tick time.Time) string {
	if namespace != "" && namespace != DefaultNamespace {
		queue = namespace + ":" + queue
	}
	return "{" + queue + "}" + entry + "{@" + strconv.FormatInt(max(tick.UnixMicro(), 0), 10) + "}"
}
