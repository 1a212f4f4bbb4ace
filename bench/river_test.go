package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRiver: the peer on PostgreSQL measures something, and finds all its jobs.
func TestRiver(t *testing.T) {
	t.Parallel()
	if err := missingPostgres(); err != nil && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(err)
	}
	got, err := riverUnique(t.Context(), nil, 50)
	if err != nil || len(got) != 1 || len(got[0]) != 1 || got[0][0] <= 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestMissingPeer: a case whose peer can't run here is measured without it, says so, and has no target.
func TestMissingPeer(t *testing.T) {
	srv := testServer(t)
	once := func(context.Context, *server, int) ([][]float64, error) { return [][]float64{{7}}, nil }
	never := func(context.Context, *server, int) ([][]float64, error) { return nil, errors.New("the peer has run") }
	c := contest{
		peer:    "the peer",
		missing: func() error { return errors.New("its server is not installed") },
		ours:    side{once, 1, 1},
		theirs:  side{never, 1, 1},
		cases:   []testCase{{name: "a-case", unit: "jobs/s", target: 3}},
	}
	var progress bytes.Buffer
	results, err := c.run(t.Context(), srv, flags{runs: 1}, time.Now().Add(time.Hour), &progress)
	if err != nil || len(results) != 1 || results[0].Ours != 7 || results[0].Peer != "" || results[0].Target != 0 || !results[0].Met {
		t.Errorf("%+v, %v", results, err)
	}
	if said := progress.String(); !strings.Contains(said, "a-case: without the peer, as its server is not installed") {
		t.Errorf("it says %q", said)
	}
	if c.peer == "" || c.cases[0].target != 3 {
		t.Error("the contest itself has changed")
	}
}
