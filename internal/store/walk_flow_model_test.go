package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A flowModel is what a queue with flows must have, as the walk knows it from its calls alone. It doesn't know how the scripts do it: it has jobs, and for each flow what was added, and follows the rules of
// docs/flows.md for each end.
type flowModel struct {
	jobs     map[string]*linked
	flows    map[string]*flowFact // by name: those that are remembered
	sessions map[string]bool      // whether each registered session is alive
	added    map[string]int       // by the ID of a member: how many jobs it has added
	held     bool                 // flows turn at the end of the call
	turning  []*flowFact          // those that do then
}

// A linked job is what the model knows of one job.
type linked struct {
	where   string // "ready", "due", "awaiting", "running", or a terminal state
	role    byte   // 'r', or what it waits for, or waited for; 0: of no flow any more
	flow    *flowFact
	ended   bool // a member that has arrived
	went    bool // one that waited was released
	again   bool // it was cancelled when its flow failed, and waits again if that is repaired
	session string
	token   int64
	marked  bool
	crashes int
}

// A flowFact is what the model knows of a flow. Its numbers follow from its members.
type flowFact struct {
	ref                             facts.FlowRef
	sealed, failed, over, cancelled bool
	total, ok, dead, gone           int
	open                            map[string]bool
	lost                            int
	given                           int64
	digest                          string
	timeout, fast                   bool
	items                           []string // the IDs that its producer has given
}

func newFlowModel() *flowModel {
	return &flowModel{jobs: make(map[string]*linked), flows: make(map[string]*flowFact), sessions: make(map[string]bool), added: make(map[string]int)}
}

func (m *flowModel) clone() *flowModel {
	c := &flowModel{jobs: make(map[string]*linked), flows: make(map[string]*flowFact), sessions: maps.Clone(m.sessions), added: maps.Clone(m.added)}
	copies := make(map[*flowFact]*flowFact)
	of := func(f *flowFact) *flowFact {
		if f == nil || copies[f] != nil {
			return copies[f]
		}
		other := *f
		other.open, other.items = maps.Clone(f.open), slices.Clone(f.items)
		copies[f] = &other
		return &other
	}
	for name, f := range m.flows {
		c.flows[name] = of(f)
	}
	for id, j := range m.jobs {
		other := *j
		other.flow = of(j.flow)
		c.jobs[id] = &other
	}
	return c
}

func (j *linked) live() bool {
	return j.where == "ready" || j.where == "due" || j.where == "awaiting" || j.where == "running"
}

// known reports whether the flow is remembered.
func (m *flowModel) known(f *flowFact) bool { return f != nil && m.flows[f.ref.Name] == f }

// waiters returns how many jobs wait for a flow, or have waited, and haven't ended.
func (m *flowModel) waiters(f *flowFact) (n int) {
	for _, j := range m.jobs {
		if j.flow == f && j.role != 'r' && j.role != 0 && j.live() {
			n++
		}
	}
	return n
}

// text says what is counted of a flow, as flowText does of one that was read.
func (m *flowModel) text(f *flowFact) string {
	return fmt.Sprint(f.total, len(f.open), f.ok, f.dead, f.gone, m.waiters(f), f.lost, f.given, !f.sealed, f.failed, f.over, f.cancelled)
}

func flowText(f facts.Flow) string {
	return fmt.Sprint(f.Total, f.Open, f.OK, f.Dead, f.Gone, f.Waiters, f.Lost, f.Given, f.Unsealed, f.Failed, f.Over, f.Cancelled)
}

// end has a live job end: "completed", "dead", "cancelled" or "deleted". kept says whether its record is kept.
func (m *flowModel) end(id, outcome string, kept bool) {
	j := m.jobs[id]
	f := j.flow
	j.marked = false
	if kept {
		j.where = outcome
	} else {
		delete(m.jobs, id)
	}
	if !m.known(f) {
		f = nil
	}
	switch {
	case f == nil || j.role == 0 || j.role == 'r' && j.ended:
		j.ended = true
		return
	case j.role == 'r':
		j.ended = true
		delete(f.open, id)
		switch outcome {
		case "completed":
			f.ok++
		case "dead":
			f.dead++
		default:
			f.gone++
		}
		if outcome == "completed" || outcome == "deleted" {
			delete(m.added, id)
		}
	case outcome == "dead" || outcome == "cancelled":
		f.lost++
	}
	m.turn(f)
}

// turn has a flow change by what is counted of it, and the jobs go on that wait for it.
func (m *flowModel) turn(f *flowFact) {
	if m.held {
		m.turning = append(m.turning, f)
		return
	}
	bad := f.dead + f.gone
	if bad > 0 && !f.cancelled && !f.over {
		f.failed = true
		if f.fast {
			f.cancelled, f.sealed = true, true
		}
	}
	if bad == 0 {
		f.failed = false
	}
	if f.sealed && len(f.open) == 0 {
		f.over, f.timeout = true, false
	}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[id]
		if j == nil || j.flow != f {
			continue
		}
		if j.again && !f.failed && !f.cancelled {
			j.again, j.where = false, "awaiting"
			f.lost--
		}
		if j.where != "awaiting" {
			continue
		}
		switch {
		case j.role == 's' && (f.failed || f.cancelled):
			j.again = !f.cancelled
			m.end(id, "cancelled", true)
		case j.role == 's' && f.over, j.role == 'e' && f.over, j.role == 'f' && f.failed:
			j.where, j.went = "ready", true
		case j.role == 'f' && f.over:
			m.end(id, "deleted", false)
		}
	}
}

// at has the flows turn when a call has done all else.
func (m *flowModel) at(call func()) {
	m.held = true
	call()
	m.held = false
	for _, f := range m.turning {
		m.turn(f)
	}
	m.turning = nil
}

// rerun has a job that has ended run again. It reports whether it may.
func (m *flowModel) rerun(id string) (may bool) {
	j := m.jobs[id]
	f := j.flow
	if !m.known(f) {
		j.where, j.crashes = "ready", 0
		if f == nil || j.role == 'r' {
			return true
		}
		j.went = true
		return true
	}
	was := j.where
	switch {
	case j.role == 'r' && f.cancelled:
		return false
	case j.role == 'r' && was == "completed":
		j.role = 0
	case j.role == 'r':
		if was == "dead" {
			f.dead--
		} else {
			f.gone--
		}
		j.ended, f.open[id], f.over = false, true, false
		f.failed = f.dead+f.gone > 0
	case j.role != 0 && !j.went:
		if f.cancelled || j.role == 's' && f.failed || j.role == 'f' && f.over && !f.failed {
			return false
		}
		j.went = j.role == 's' && f.over || j.role == 'e' && f.over || j.role == 'f' && f.failed
		fallthrough
	case j.role != 0:
		j.again = false
		if was != "completed" {
			f.lost--
		}
	}
	j.where, j.crashes = "ready", 0
	if j.role != 'r' && j.role != 0 && !j.went {
		j.where = "awaiting"
	}
	m.turn(f)
	return true
}

// cancel cancels a flow.
func (m *flowModel) cancel(f *flowFact) {
	if !f.cancelled && !f.over {
		f.cancelled, f.sealed = true, true
		m.turn(f)
	}
}

// forget forgets a flow that is over.
func (m *flowModel) forget(f *flowFact) {
	delete(m.flows, f.ref.Name)
	for _, j := range m.jobs {
		if j.flow == f {
			j.again = false
		}
	}
}

// places returns where each job is, as the model has it, and snapshotPlaces as Redis has it.
func (m *flowModel) places() map[string]string {
	places := make(map[string]string)
	for id, j := range m.jobs {
		places[id] = j.where
		if j.where == "running" {
			places[id] = fmt.Sprintf("running %s %d %v", j.session, j.token, j.marked)
		}
		if j.where == "awaiting" {
			places[id] += " " + string(j.role) + j.flow.ref.Name
		}
	}
	return places
}

func snapshotPlaces(s *check.Snapshot) map[string]string {
	places := make(map[string]string)
	for id := range s.Jobs {
		places[id] = "nowhere"
	}
	for _, list := range s.Ready {
		for _, id := range list {
			places[id] = "ready"
		}
	}
	for _, member := range s.Lined {
		_, _, id, _ := facts.ParseLine(member)
		places[id] = "ready"
	}
	for _, z := range s.Due {
		places[z.Member.(string)[1:]] = "due"
	}
	for _, member := range s.Awaiting {
		name, id, _ := strings.Cut(member, "{")
		if member[0] != 'c' {
			places[id] = "awaiting " + name
		}
	}
	for session, held := range s.Inflight {
		for id, value := range held {
			p := facts.Place{Kind: "running", Value: value}
			_, token, _ := p.Token()
			places[id] = fmt.Sprintf("running %s %d %v", session, token, p.Fields().Flagged())
		}
	}
	for outcome, ended := range s.Ended {
		for _, z := range ended {
			places[z.Member.(string)] = string(outcome)
		}
	}
	return places
}
