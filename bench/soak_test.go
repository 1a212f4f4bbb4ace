package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSoak: a short soak does all jobs, leaves no more than it keeps, and writes a table and a picture.
func TestSoak(t *testing.T) {
	srv, folder := testServer(t), t.TempDir()
	const n = 3000
	if err := soak(t.Context(), srv, n, folder, io.Discard); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(filepath.Join(folder, "soak.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(table)), "\n")
	if len(rows) < 3 || !strings.HasPrefix(rows[0], "seconds,jobs,") || !strings.Contains(rows[len(rows)-1], ",3000,") {
		t.Errorf("%d rows, from %q to %q", len(rows), rows[0], rows[len(rows)-1])
	}
	picture, err := os.ReadFile(filepath.Join(folder, "soak.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(picture, new(any)); err != nil {
		t.Errorf("the picture: %v", err)
	}
	if lines := strings.Count(string(picture), "<polyline"); lines != 3 {
		t.Errorf("%d lines, want 3", lines)
	}
	// What the worker kept is there. It kept no completed jobs until it knew that the queue does.
	for set, want := range map[string][2]int64{"dead": {n / soakDead, n / soakDead}, "completed": {1, n - n/soakDead}} {
		keys, err := srv.rdb.Keys(t.Context(), "*}:"+set).Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("%s: %v, %v", set, keys, err)
		}
		if kept := srv.rdb.ZCard(t.Context(), keys[0]).Val(); kept < want[0] || kept > want[1] {
			t.Errorf("%d %s jobs are kept, want %d to %d", kept, set, want[0], want[1])
		}
	}
}

func TestSoakOfNothing(t *testing.T) {
	if _, err := parse([]string{"-soak", "-1"}, io.Discard); err == nil || !strings.Contains(err.Error(), "-soak -1") {
		t.Error(err)
	}
}
