package demo

import (
	"errors"
	"fmt"
	"time"
)

// A Summary has the results of the endpoint's ledger.
type Summary struct {
	counts
	ttl    time.Duration // of the workers' leases
	lost   int           // enqueued jobs that are not in the ledger
	missed int           // ticks without a heartbeat, between the first and the last
	slow   int           // effects of the slow delivery
}

func summarise(l *ledger, ids []string, slow string, ttl time.Duration) Summary {
	return Summary{counts: l.counts(), ttl: ttl, lost: l.missing(ids), missed: l.missedTicks(), slow: l.entry(slow).effects}
}

// Problem returns why the run failed, or nil.
func (s Summary) Problem() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(s.retried > 0, "no job was retried")
	check(s.recovered > 0, "no job was recovered")
	check(s.ticks > 0, "the cron entry never ticked")
	check(s.slow == 1, "the slow delivery had its effect %d times: its lease was not renewed", s.slow)
	check(s.lost == 0, "%d jobs are not in the endpoint's ledger", s.lost)
	check(s.doubled == 0, "%d ticks were enqueued twice", s.doubled)
	return errors.Join(errs...)
}

// Delivered returns how many jobs had their effect, without the heartbeats.
func (s Summary) Delivered() int { return s.delivered }

func (s Summary) lastLine(ok bool) string {
	verdict := "failed"
	if ok {
		verdict = "ok"
	}
	return fmt.Sprintf("quickstart: %s jobs=%d retried=%d recovered=%d ticks=%d lost=%d duplicated=%d",
		verdict, s.delivered+s.heartbeats, s.retried, s.recovered, s.ticks, s.lost, s.duplicated)
}

func (s Summary) String() string {
	return fmt.Sprintf(`
The endpoint's ledger says:
  %4d deliveries and %d heartbeats arrived, %d were lost
  %4d jobs were retried after a 503
  %4d jobs of the killed worker were recovered by the other one
  %4d ticks of the cron entry by two schedulers: %d came twice, %d were missed
  %4d time the slow delivery had its effect, as its lease of %v was renewed for %v
  %4d effects were beyond one per job: the killed worker had made them and could not say so.
       A receiver that stores the Idempotency-Key together with the effect has none of these.
`, s.delivered, s.heartbeats, s.lost, s.retried, s.recovered, s.ticks, s.doubled, s.missed,
		s.slow, s.ttl, slowAnswer, s.duplicated)
}
