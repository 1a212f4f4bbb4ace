package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A ledger has what the tenants enqueued and what the handlers did. Nothing of it comes from Redis.
type ledger struct {
	mu      sync.Mutex
	tenants []tenant
	sums    sums
	ended   int // jobs
	closed  bool
	done    chan struct{} // closed when no more are enqueued, and all have ended
}

// A tenant is one tenant's part of the ledger.
type tenant struct {
	jobs    []entry // by number
	waiting int     // jobs that have not begun
	running int
	next    int // the job that must begin next if the tenant is serial
	most    int // jobs that may run at a time
}

// could reports whether a job of the tenant waits and may run.
func (t *tenant) could() bool { return t.waiting > 0 && t.running < t.most }

// An entry is one job.
type entry struct {
	enqueued     time.Time // just before the call
	begun, ended bool
}

// sums are what the ledger counts.
type sums struct {
	enqueued    int
	waiting     int             // jobs of the quiet tenants that have not begun
	could       int             // quiet tenants with a job that waits and may run
	ends        int             // jobs that ended while there were such tenants
	floodEnds   int             // those of them that are tenant 0's
	waits       []time.Duration // of the quiet tenants' jobs, to their first start
	orderBroken int             // starts of serial jobs that another number should have had
	overLimit   int             // starts beside as many jobs of the tenant as may run
}

func newLedger(tenants int) *ledger {
	l := &ledger{tenants: make([]tenant, tenants), done: make(chan struct{})}
	for i := range l.tenants {
		l.tenants[i].most = limit
		if serial(i) {
			l.tenants[i].most = 1
		}
	}
	return l
}

// change changes what a tenant has, and keeps the sums of the quiet tenants.
func (l *ledger) change(number, waiting, running int) {
	t := &l.tenants[number]
	before := t.could()
	t.waiting += waiting
	t.running += running
	if number == 0 {
		return
	}
	l.sums.waiting += waiting
	switch after := t.could(); {
	case after && !before:
		l.sums.could++
	case before && !after:
		l.sums.could--
	}
}

// enqueue adds jobs that are about to be enqueued. Those of a tenant come in the order of their numbers.
func (l *ledger) enqueue(tasks []Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, in := range tasks {
		t := &l.tenants[in.Tenant]
		t.jobs = append(t.jobs, entry{enqueued: now})
		l.sums.enqueued++
		l.change(in.Tenant, 1, 0)
	}
}

// close says that no more jobs will be enqueued.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.finish()
}

// begin adds the start of a handler.
func (l *ledger) begin(in Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.tenants[in.Tenant]
	j := &t.jobs[in.Number]
	if serial(in.Tenant) && in.Number != t.next {
		l.sums.orderBroken++
	}
	if t.running >= t.most {
		l.sums.overLimit++
	}
	if j.begun {
		l.change(in.Tenant, 0, 1)
		return
	}
	j.begun = true
	l.change(in.Tenant, -1, 1)
	if in.Tenant > 0 {
		l.sums.waits = append(l.sums.waits, time.Since(j.enqueued))
	}
}

// end adds the return of a handler.
func (l *ledger) end(in Task, completed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	couldRun := l.sums.could > 0 // another tenant, when the job was running
	l.change(in.Tenant, 0, -1)
	t := &l.tenants[in.Tenant]
	j := &t.jobs[in.Number]
	if !completed || j.ended {
		return
	}
	j.ended = true
	t.next = in.Number + 1
	l.ended++
	if couldRun {
		l.sums.ends++
		if in.Tenant == 0 {
			l.sums.floodEnds++
		}
	}
	l.finish()
}

func (l *ledger) finish() {
	if l.closed && l.ended == l.sums.enqueued {
		close(l.done)
	}
}

// A result is the last line.
type result struct {
	tenants     int
	floodShare  float64       // of the jobs that ended while a quiet tenant had one that waited and might run
	fairP99     time.Duration // that the jobs of the quiet tenants waited
	orderBroken int
	overLimit   int
}

func (l *ledger) result() result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return result{
		tenants: len(l.tenants), floodShare: float64(l.sums.floodEnds) / float64(max(l.sums.ends, 1)), fairP99: p99(l.sums.waits),
		orderBroken: l.sums.orderBroken, overLimit: l.sums.overLimit,
	}
}

// p99 returns the wait that 99 of 100 jobs don't exceed.
func p99(waits []time.Duration) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(waits))
	return s[(len(s)*99+99)/100-1]
}

// millis returns whole milliseconds, rounded up.
func millis(d time.Duration) int { return int(math.Ceil(float64(d) / float64(time.Millisecond))) }

func (r result) String() string {
	return fmt.Sprintf("tenants: tenants=%d flood_share=%.2f fair_p99_ms=%d order_broken=%d over_limit=%d",
		r.tenants, r.floodShare, millis(r.fairP99), r.orderBroken, r.overLimit)
}

// problem returns why the run failed, or nil.
func (r result) problem() error {
	var errs []error
	if r.orderBroken > 0 {
		errs = append(errs, fmt.Errorf("%d jobs of serial tenants began out of order", r.orderBroken))
	}
	if r.overLimit > 0 {
		errs = append(errs, fmt.Errorf("%d jobs began above the limit of their tenant", r.overLimit))
	}
	return errors.Join(errs...)
}
