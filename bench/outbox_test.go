package main

import (
	"os"
	"testing"
)

// TestOutbox: both sides measure something, and find all their jobs and rows.
func TestOutbox(t *testing.T) {
	t.Parallel()
	if err := missingPostgres(); err != nil && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(err)
	}
	srv := testServer(t)
	for name, run := range map[string]measure{"signalbox": ourOutbox, "River": riverOutbox} {
		got, err := run(t.Context(), srv, 50)
		if err != nil || len(got) != 1 || len(got[0]) != 1 || got[0][0] <= 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
