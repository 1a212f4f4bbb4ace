// Package looks reads what a queue has, for people and programs that look at it: jobs one by one and in listings, what keeps them from starting, who runs them, how many there
// are, and what happened to them. It writes nothing: TestReadingRooms in internal/archtest.
package looks

import (
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Looks is a queue that is looked at.
type Looks struct {
	*facts.Site
	Namespace string // "" for layout.DefaultNamespace
	Room      int    // bytes of records that a call returns
	Looked    int    // IDs that a call of Jobs looks at: MaxLooked
}

// settings returns the queue's settings, for those who read them.
func (q *Looks) settings() *settings.Settings { return &settings.Settings{Site: q.Site} }
