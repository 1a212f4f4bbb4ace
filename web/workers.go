package web

import (
	"cmp"
	"html/template"

	"github.com/signalbox-go/signalbox/inspect"
)

// mostStuck is how many stacks of handlers the page of workers shows.
const mostStuck = 20

// A workersPage has the workers that have a session, and what they run.
type workersPage struct {
	Workers []workerOf
	Stuck   []stuckJob
	Running []running
	Acts    bool // some have levers
	All     int  // that run
	Command string
}

// A workerOf is a worker on one of its queues.
type workerOf struct {
	workerRow
	Queue, To string
	Word      string
	Levers    []lever // beside its first queue
}

// A stuckJob is a job whose handler goes on after the end of its context.
type stuckJob struct {
	ID, Kind, Worker, To string
	For                  template.HTML
	Stack                string
	Freed                bool
}

func (v *visit) workers() (answer, error) {
	s := v.state
	p := &workersPage{Command: shellWords("signalbox", "worker", "ls")}
	for i := range s.workers {
		w := &s.workers[i]
		for n, x := range w.Sessions {
			row, _ := rowOfWorker(w, x.Queue, s.at)
			one := workerOf{workerRow: row, Queue: x.Queue, To: link("queue", "name", x.Queue)}
			switch {
			case row.Gone:
				one.Word = "gone"
			case w.Stopping:
				one.Word = "ends"
			case row.Quiet:
				one.Word = "takes no jobs"
			}
			if n == 0 {
				one.Levers = v.levers(Action{Worker: w.ID}, workerFits(w.Quiet, w.Stopping)...)
				p.Acts = p.Acts || len(one.Levers) > 0
			}
			p.Workers = append(p.Workers, one)
		}
		for _, j := range w.Running {
			if j.Stuck != nil && len(p.Stuck) < mostStuck {
				p.Stuck = append(p.Stuck, stuckJob{
					ID: j.ID, Kind: cmp.Or(j.Kind, "kind not known"), Worker: w.ID, To: link("job", "queue", j.Queue, "id", j.ID), For: lasting(s.at, j.Stuck.Since),
					Stack: block(j.Stuck.Stack, mostError), Freed: j.Stuck.SlotFreed,
				})
			}
		}
	}
	for _, r := range v.runs(func(inspect.RunningJob) bool { return true }) {
		p.All++
		if len(p.Running) < pageJobs {
			p.Running = append(p.Running, r)
		}
	}
	return answer{name: "workers", title: "Workers", cur: "Workers", body: p, sheet: s.sessions}, nil
}

// sessions returns the workers on each of their queues.
func (s *state) sessions() *sheet {
	l := &sheet{name: "workers", columns: []string{"worker", "queue", "lease_until", "lease_left_seconds", "quiet", "stopping", "running", "stuck"}}
	for i := range s.workers {
		w := &s.workers[i]
		for _, x := range w.Sessions {
			running, stuck := 0, 0
			for _, j := range w.Running {
				if j.Queue == x.Queue {
					running++
					if j.Stuck != nil {
						stuck++
					}
				}
			}
			l.add(w.ID, x.Queue, x.Until, x.Left, w.Quiet || x.Quiet, w.Stopping, running, stuck)
		}
	}
	return l
}
