package main

import (
	"slices"
	"strings"
	"testing"
)

// TestManyQueues: on a Cluster and on one Redis all timed jobs run, and the worker has nothing to complain of.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	srv := testServer(t)
	for name, m := range map[string]measure{"a Cluster": queuesInCluster, "one Redis": queuesOnOne} {
		samples, err := m(t.Context(), srv, 90)
		if err != nil {
			t.Errorf("on %s: %v", name, err)
			continue
		}
		if len(samples[0]) != 90 || slices.Min(samples[0]) <= 0 {
			t.Errorf("on %s: the starts are %v", name, samples)
		}
	}
}

// TestQueuesReport: a run fails if the worker's own waiting had any consequences.
func TestQueuesReport(t *testing.T) {
	t.Parallel()
	starts := []float64{1, 2}
	for wrong, r := range map[string]queuesReport{
		"":                     {Starts: starts},
		"2 jobs were run 1":    {Starts: starts[:1]},
		"1 contexts":           {Starts: starts, Ended: 1},
		"3 calls":              {Starts: starts, Timeouts: 3},
		"a call to Redis fail": {Starts: starts, Said: []string{"a call to Redis failed"}},
	} {
		err := r.check(2)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%+v: error %v, want %q", r, err, wrong)
		}
	}
}
