package web

import (
	"fmt"
	"strings"
	"time"
)

// A redisPage has what is known of Redis itself.
type redisPage struct {
	Arm, Word string
	Facts     []fact // of the server
	Holds     []fact // what it has for the namespace
}

// redis is the page of Redis: what a look at the queues shows of it. Package inspect doesn't ask the server about itself.
func (v *visit) redis() (answer, error) {
	if !v.scope.All {
		return answer{}, errNoPage
	}
	s := v.state
	p := &redisPage{Arm: "clear", Word: "answers"}
	a := answer{name: "redis", title: "Redis", cur: "Redis", body: p}
	switch {
	case v.away != nil:
		p.Arm, p.Word, a.status = "stop", "does not answer", 503
	case len(s.missing) > 0:
		p.Arm, p.Word = "caution", "answers, and some could not be read"
	}
	took, clock := "not known", "not known"
	if !s.began.IsZero() {
		took = span(s.took.Round(time.Millisecond))
	}
	if s.clock {
		clock = clockText(s)
	}
	p.Facts = []fact{{Name: "The last look at all queues took", Value: took}, {Name: "Its clock", Value: clock}}
	if len(s.missing) > 0 {
		p.Facts = append(p.Facts, fact{Name: "Could not be read", Value: clean(strings.Join(s.missing, ", "), 500), Class: "warn"})
	}
	for _, what := range []string{"Version", "Memory, and its limit", "maxmemory-policy", "Persistence", "Replicas", "Slow scripts"} {
		p.Facts = append(p.Facts, fact{Name: what, Value: "not known"})
	}
	sums := make([]int64, len(jobStates))
	for i := range s.queues {
		for k, t := range jobStates {
			sums[k] += t.count(&s.queues[i])
		}
	}
	p.Holds = []fact{{Name: "Queues", Value: commas(int64(len(s.queues)))}, {Name: "Workers", Value: commas(int64(len(s.workers)))}, {Name: "Cron entries", Value: commas(int64(len(s.entries)))}}
	for k, t := range jobStates {
		p.Holds = append(p.Holds, fact{Name: "Jobs " + string(t.state), Value: commas(sums[k])})
	}
	return a, nil
}

// clockText says how far the clock of Redis is from that of this process. It was read at some moment of the look.
func clockText(s *state) string {
	early, late := s.at.Sub(s.began), s.began.Add(s.took).Sub(s.at)
	switch {
	case late < 0:
		return fmt.Sprintf("at least %s ahead of this process, at most %s", span(-late), span(early))
	case early < 0:
		return fmt.Sprintf("at least %s behind this process, at most %s", span(-early), span(late))
	}
	return "as that of this process, to within " + span(max(early, late))
}
