package fromasynq

import (
	"cmp"
	"slices"
)

// A Report says what became of tasks.
type Report struct {
	// Total is how many tasks were in places from which they are moved when the call began, with those that were staged.
	Total int64
	// Moved is how many were moved. Of a Plan it is how many would be.
	Moved int64
	// Ended is how many of an earlier call's tasks only had to be forgotten: they had been put in.
	Ended int64
	// Back is how many staged tasks were given back to asynq.
	Back int64
	// Gone is how many had started, or changed otherwise, before their turn. A later call finds those that come back.
	Gone int64
	// Stays counts the tasks that aren't moved, by their queue, kind and reason.
	Stays []Count
	// Differs counts the tasks that are moved and will behave in another way here.
	Differs []Count
	// Active, Completed and Groups are how many tasks asynq holds that are never moved: they run, are kept after they have completed, or wait in groups for their aggregation.
	Active, Completed, Groups int64
	// Paused are the queues here that were paused since a queue there is whose tasks go to them. Of a Plan they would be. They are sorted.
	Paused []string
}

// A Count is how many tasks of a queue and a kind have something in common.
type Count struct {
	Queue  string // of asynq
	Type   string // of the tasks; "" if it can't be read
	Reason string
	Tasks  int64
}

// Stayed returns how many tasks aren't moved.
func (r *Report) Stayed() (n int64) {
	for _, c := range r.Stays {
		n += c.Tasks
	}
	return n
}

// maxCounts is the most counts of a tally. What is beyond them is counted together.
const maxCounts = 10_000

// A tally counts by queue, type and reason.
type tally map[Count]int64

func (t tally) add(queue, kind, reason string) {
	key := Count{Queue: queue, Type: kind, Reason: reason}
	if _, known := t[key]; !known && len(t) >= maxCounts {
		key = Count{Queue: queue, Reason: "more kinds and reasons"}
	}
	t[key]++
}

// list returns the counts, sorted by queue, type and reason.
func (t tally) list() []Count {
	list := make([]Count, 0, len(t))
	for c, n := range t {
		c.Tasks = n
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
