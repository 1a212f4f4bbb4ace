package main

import "testing"

// TestFloor: each job of the floor has one sample, and is gone from the ready jobs.
func TestFloor(t *testing.T) {
	t.Parallel()
	srv, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.close()
	samples, err := floorLatency(t.Context(), srv, 3)
	if err != nil || len(samples) != 1 || len(samples[0]) != 3 {
		t.Fatalf("samples %v, %v; want three", samples, err)
	}
	for _, ms := range samples[0] {
		if ms <= 0 {
			t.Errorf("a job took %v ms", ms)
		}
	}
	left, err := srv.rdb.Exists(t.Context(), floorKeys[1], floorKeys[2]).Result()
	if err != nil || left != 0 {
		t.Errorf("%d of the lists have something left (%v)", left, err)
	}
}
