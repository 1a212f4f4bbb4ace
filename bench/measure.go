package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"
)

// A measure runs n jobs on a flushed server and returns its samples, in one series or
// several: most have one of one.
type measure func(ctx context.Context, srv *server, n int) ([][]float64, error)

const (
	// patience bounds one run. None takes a tenth of it.
	patience = 5 * time.Minute
	// quickBudget is after what time a quick measurement begins no further round, so that it
	// ends within three minutes on a slow machine too.
	quickBudget = 100 * time.Second
)

// run measures both sides in turn, so that what else the machine does meets both. A short
// round comes first and doesn't count.
func (c *contest) run(ctx context.Context, srv *server, f flags, deadline time.Time, progress io.Writer) (results []result, err error) {
	if c.programs != nil {
		defer func() { err = errors.Join(err, c.programs.remove()) }()
		if err := c.programs.build(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", c.cases[0].name, err)
		}
	}
	if c.missing != nil {
		if why := c.missing(); why != nil {
			fmt.Fprintf(progress, "%s: without %s, as %v\n", c.cases[0].name, c.peer, why)
			c = c.alone()
		}
	}
	nOurs, nTheirs := c.ours.full, c.theirs.full
	if f.quick {
		nOurs, nTheirs = c.ours.quick, c.theirs.quick
	}
	if _, _, err := c.round(ctx, srv, max(nOurs/10, 1), max(nTheirs/10, 1), true); err != nil {
		return nil, err
	}
	ours, theirs := make([][]float64, len(c.cases)), make([][]float64, len(c.cases))
	for i := range f.runs {
		if i > 0 && f.quick && time.Now().After(deadline) {
			fmt.Fprintf(progress, "%s: %d of %d runs, the time is up\n", c.cases[0].name, i, f.runs)
			break
		}
		a, b, err := c.round(ctx, srv, nOurs, nTheirs, i%2 == 0)
		if err != nil {
			return nil, err
		}
		for j, tc := range c.cases {
			x := quantile(a[tc.series], tc.quantile)
			ours[j] = append(ours[j], x)
			if c.peer == "" {
				fmt.Fprintf(progress, "%s %d/%d: signalbox %s %s\n", tc.name, i+1, f.runs, figure(x), tc.unit)
				continue
			}
			y := quantile(b[tc.series], tc.quantile)
			theirs[j] = append(theirs[j], y)
			fmt.Fprintf(progress, "%s %d/%d: signalbox %s, %s %s %s\n",
				tc.name, i+1, f.runs, figure(x), c.peer, figure(y), tc.unit)
		}
	}
	results = make([]result, len(c.cases))
	for j, tc := range c.cases {
		if c.peer == "" {
			results[j] = alone(tc, median(ours[j]))
			continue
		}
		results[j] = compare(tc, c.peer, median(ours[j]), median(theirs[j]))
	}
	return results, nil
}

// alone returns the contest without its peer. Nothing is measured of that, and no case has a target.
func (c *contest) alone() *contest {
	one := *c
	one.peer, one.theirs, one.cases = "", side{}, slices.Clone(c.cases)
	for i := range one.cases {
		one.cases[i].target = 0
	}
	return &one
}

// round runs each side once.
func (c *contest) round(ctx context.Context, srv *server, nOurs, nTheirs int, oursFirst bool) (ours, theirs [][]float64, err error) {
	if oursFirst {
		if ours, err = c.once(ctx, srv, "signalbox", c.ours.measure, nOurs); err != nil {
			return nil, nil, err
		}
	}
	if c.peer != "" {
		if theirs, err = c.once(ctx, srv, c.peer, c.theirs.measure, nTheirs); err != nil {
			return nil, nil, err
		}
	}
	if !oursFirst {
		if ours, err = c.once(ctx, srv, "signalbox", c.ours.measure, nOurs); err != nil {
			return nil, nil, err
		}
	}
	return ours, theirs, nil
}

// once runs one side, from the same state as the other.
func (c *contest) once(ctx context.Context, srv *server, who string, m measure, n int) ([][]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := srv.flush(ctx)
	var samples [][]float64
	if err == nil {
		runtime.GC()
		samples, err = m(ctx, srv, n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", c.cases[0].name, who, err)
	}
	return samples, nil
}

// compare makes the result of a case.
func compare(tc testCase, peer string, ours, theirs float64) result {
	ratio := ours / theirs
	if tc.less {
		ratio = theirs / ours
	}
	met := ratio >= tc.target
	if tc.target == 0 {
		met = tc.within(ours)
	}
	return result{
		Case: tc.name, Unit: tc.unit, Ours: round(ours), Peer: peer, Theirs: round(theirs),
		Ratio: round(ratio), Target: tc.target, Met: met,
		limit: tc.limit(), within: tc.within(ours),
	}
}

// alone makes the result of a case without a peer.
func alone(tc testCase, ours float64) result {
	return result{Case: tc.name, Unit: tc.unit, Ours: round(ours), Met: tc.within(ours), limit: tc.limit(), within: tc.within(ours)}
}

// round keeps three decimals.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// median is the middle one of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	m := len(s) / 2
	if len(s)%2 == 0 {
		return (s[m-1] + s[m]) / 2
	}
	return s[m]
}

// quantile is the smallest of the samples that a share q of them doesn't exceed (the nearest rank).
func quantile(samples []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(q * float64(len(s))))
	return s[max(rank, 1)-1]
}
