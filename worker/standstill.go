package worker

import (
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// A pace notes when the process stood still: it was stopped, its container was paused, its machine was suspended, or it got no processor. Redis may have
// answered meanwhile, and nobody read it. The guard runs steadily, so a gap between two of its rounds shows it. The zero value knows of none.
type pace struct {
	usual time.Duration // between two rounds of the guard

	mu    sync.Mutex
	round lease.Instant // when the guard was last seen to run
	woke  time.Time     // when the latest standstill was over
	stood time.Duration // how long it was
}

// guarded notes that the guard begins a round, or ends it.
func (p *pace) guarded(now lease.Instant, begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gap := p.gap(now); begins && gap > 2*p.usual { // a round may take long: its log is the user's code
		p.woke, p.stood = now.Time(), gap
	}
	p.round = now
}

// gap returns the time since the guard was last seen to run. mu is held.
func (p *pace) gap(now lease.Instant) time.Duration {
	if p.round.Time().IsZero() {
		return 0
	}
	gap := now.Time().Sub(p.round.Time())
	return gap + max(now.SleptSince(p.round), 0)
}

// stoodSince returns for how long the process stood still since then, the last time that it did; 0: it didn't. If it has just woken, the guard need not have run.
func (p *pace) stoodSince(then time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gap := p.gap(lease.Now()); gap > 2*p.usual {
		return gap
	}
	if p.woke.After(then) {
		return p.stood
	}
	return 0
}

// awake returns when the latest standstill was over, if that was after then; else then.
func (p *pace) awake(then time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return later(then, p.woke)
}

// errStoodStill says that a session has ended since the process could not renew it.
func errStoodStill(d time.Duration) error {
	return fmt.Errorf("the process stood still for %v", d.Round(time.Millisecond))
}
