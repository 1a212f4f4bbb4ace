package fromasynq

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/asynq"
)

// An Entry is a periodic task of one of asynq's schedulers. Entries are never moved: both sides would tick. Declare them here by hand.
type Entry struct {
	Spec    string // of cron, or @every
	Type    string
	Payload []byte
	Options []string  // as asynq writes them, such as MaxRetry(3)
	Next    time.Time // when asynq enqueues it next
}

// Entries returns the periodic tasks of all of asynq's schedulers that run, each once, sorted by type.
func (m *Mover) Entries(ctx context.Context) ([]Entry, error) {
	found, err := asynq.Entries(ctx, m.from)
	if err != nil {
		return nil, fmt.Errorf("fromasynq: entries: %w", err)
	}
	entries := make([]Entry, len(found))
	for i, e := range found {
		entries[i] = Entry(e)
	}
	return entries, nil
}
