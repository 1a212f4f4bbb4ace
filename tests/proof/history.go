package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A setup is a kind of lock to be tested.
type setup struct {
	name    string
	servers int
	hands   int // number of server faults at a time
	long    int // number of acquisitions that the long form needs
}

var setups = []setup{
	{"Redlock on 5 masters", 5, 2, 100_000},
	{"one Redis", 1, 1, 200_000},
}

// A bound says how long a history lasts, and what it must reach to count.
type bound struct {
	duration              time.Duration
	acquisitions, windows int
}

// stretch is how many times its duration a history may last, until it has enough acquisitions and windows. A busy
// machine needs that: two cores at a load average of 11 took 1.7 times as long.
const stretch = 6

// reached reports whether the history may end: it has lasted for its duration and has what it must reach, or it has
// lasted stretch times as long.
func (b bound) reached(began time.Time, acquisitions, windows int) bool {
	passed := time.Since(began)
	return passed >= b.duration && acquisitions >= b.acquisitions && windows >= b.windows || passed >= stretch*b.duration
}

// A history is the record of a run of a setup.
type history struct {
	ops     []operation
	windows []window
	lasted  time.Duration
	started int64 // number of processes
}

// losses returns the periods in which the only server's memory was lost.
func (s setup) losses(windows []window) []loss {
	var losses []loss
	if s.servers > 1 {
		return nil
	}
	for _, w := range windows {
		if w.forgot != 0 {
			losses = append(losses, loss{w.begin, w.forgot})
		}
	}
	return losses
}

// record runs servers, clients and faults. When it returns, none of them is left.
func (s setup) record(ctx context.Context, b bound, seed uint64) (h history, err error) {
	var stations []*station
	defer func() {
		for _, st := range stations {
			st.network.close()
			st.server.close()
		}
	}()
	var addrs []string
	for range s.servers {
		srv, err := startServer(ctx)
		if err != nil {
			return h, err
		}
		n, err := newNetwork(srv.addr)
		if err != nil {
			srv.close()
			return h, err
		}
		stations = append(stations, &station{srv, n})
		addrs = append(addrs, n.addr())
	}
	began := time.Now()
	c, err := newCrew(task{Addrs: addrs, Seed: seed})
	if c != nil {
		defer c.kill()
	}
	if err != nil {
		return h, err
	}

	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	sab := &saboteur{stations: stations, crew: c, busy: map[*station]bool{}}
	errs := make(chan error, 2)
	go func() { defer cancel(); errs <- watchWallClock(inner) }()
	go func() { defer cancel(); errs <- sab.work(inner, s.hands, seed) }()
	for inner.Err() == nil && !b.reached(began, c.acquisitions(), sab.seen()) {
		wait(inner, 100*time.Millisecond)
	}
	cancel()
	err = errors.Join(<-errs, <-errs, ctx.Err())
	ops, err2 := c.stop()
	return history{ops, sab.windows, time.Since(began), c.started}, errors.Join(err, err2)
}

// prove records a history, checks it and prints the results. It returns an error if a promise was broken, and if
// the history or the checks prove nothing.
func (s setup) prove(ctx context.Context, b bound, seed uint64, out io.Writer) (acquisitions, windows int, v verdict, err error) {
	fmt.Fprintf(out, "%s: %d client processes, TTL %v, faults for %v or up to %d times as long, at least %d acquisitions and %d fault windows\n",
		s.name, processes, ttl, b.duration, stretch, b.acquisitions, b.windows)
	h, err := s.record(ctx, b, seed)
	if err != nil {
		return 0, 0, v, fmt.Errorf("%s: %w", s.name, err)
	}
	losses := s.losses(h.windows)
	began := time.Now()
	v = check(h.ops, losses, patience)
	checked := time.Since(began)
	planted, plantErr := findPlanted(h.ops, losses, patience)

	h.print(out, s.faultNames())
	v.print(out)
	fmt.Fprintf(out, "  checked in %.1f s; found when planted: %s\n", checked.Seconds(), strings.Join(planted, ", "))
	err = plantErr
	if !v.ok() {
		err = errors.Join(err, errors.New("the lock broke a promise, or it isn't known whether it did"))
	}
	for _, name := range s.unseen(h.windows) {
		err = errors.Join(err, fmt.Errorf("there was no fault %q: the run is invalid", name))
	}
	err = errors.Join(err, enough(v.acquisitions, len(h.windows), b.acquisitions, b.windows))
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return v.acquisitions, len(h.windows), v, err
}

// faultNames returns all faults that must happen in a run.
func (s setup) faultNames() []string {
	names := []string{clientPause, clientKill}
	for _, f := range serverFaults {
		if s.servers > 1 || !f.masters {
			names = append(names, f.name)
		}
	}
	return names
}

// unseen returns the faults that never happened.
func (s setup) unseen(windows []window) []string {
	return slices.DeleteFunc(s.faultNames(), func(name string) bool {
		return slices.ContainsFunc(windows, func(w window) bool { return w.name == name })
	})
}

// print prints what happened.
func (h history) print(out io.Writer, faults []string) {
	counts := map[do]map[result]int{acquire: {}, extend: {}, release: {}}
	for _, o := range h.ops {
		counts[o.do][o.result]++
	}
	fmt.Fprintf(out, "  %.0f s, %d processes, one after the other in %d places\n", h.lasted.Seconds(), h.started, processes)
	for _, d := range []do{acquire, extend, release} {
		n := counts[d]
		fmt.Fprintf(out, "  %-8s %6d done, %5d held by another, %5d lost, %5d failed, %4d open\n", d, n[done], n[held], n[lost], n[failed], n[open])
	}
	var under time.Duration
	for _, w := range h.windows {
		under += time.Duration(w.end - w.begin)
	}
	fmt.Fprintf(out, "  %d fault windows, %.0f s in all:\n", len(h.windows), under.Seconds())
	for _, name := range faults {
		n, span := 0, time.Duration(0)
		for _, w := range h.windows {
			if w.name == name {
				n++
				span += time.Duration(w.end - w.begin)
			}
		}
		fmt.Fprintf(out, "    %-25s %4d, %6.1f s\n", name, n, span.Seconds())
	}
}

// print prints what the checks found.
func (v *verdict) print(out io.Writer) {
	fmt.Fprintf(out, "  %d operations on %d keys, at most %d on one, %d acquisitions\n", v.operations, v.keys, v.most, v.acquisitions)
	fmt.Fprintf(out, "  duplicates=%d order=%d overlaps=%d illegal=%d unknown=%d large=%d; overlaps after a loss of the only memory, expected: %d\n",
		v.duplicates, v.order, v.overlaps, v.illegal, v.unknown, v.large, v.expected)
	for _, e := range v.examples {
		fmt.Fprintf(out, "  VIOLATION: %s\n", e)
	}
}
