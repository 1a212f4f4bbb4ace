package scheduler

import (
	"container/heap"
	"time"
)

// An agenda holds the entries of a queue that wait for their next tick. The entry that is due first comes
// first. If two are due at the same time, the one whose last tick was enqueued longer ago comes first. So an
// entry that was late is early the next time.
type agenda struct{ entries entryHeap }

func (a *agenda) push(e *ticking) { heap.Push(&a.entries, e) }

// first returns the entry to try next, or nil. It stays in the agenda.
func (a *agenda) first() *ticking {
	if len(a.entries) == 0 {
		return nil
	}
	return a.entries[0]
}

// pop removes the entry to try next and returns it.
func (a *agenda) pop() *ticking { return heap.Pop(&a.entries).(*ticking) }

// take removes all entries and returns them in no order.
func (a *agenda) take() []*ticking {
	all := a.entries
	a.entries = nil
	return all
}

// before reports whether e must be tried before o.
func (e *ticking) before(o *ticking) bool {
	if c := e.at().Compare(o.at()); c != 0 {
		return c < 0
	}
	return e.served < o.served
}

// at returns when to try the entry's tick, by the server's clock.
func (e *ticking) at() time.Time {
	if e.notBefore.After(e.next) {
		return e.notBefore
	}
	return e.next
}

type entryHeap []*ticking

func (h entryHeap) Len() int           { return len(h) }
func (h entryHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h entryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *entryHeap) Push(x any)        { *h = append(*h, x.(*ticking)) }
func (h *entryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
