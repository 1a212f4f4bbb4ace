package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgainstItself: the present commit is built from the repository and measured beside this tree.
func TestAgainstItself(t *testing.T) {
	t.Parallel()
	f, err := parse(strings.Fields("-against HEAD -case enqueue-16 -quick -runs 1"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	results, err := against(t.Context(), testServer(t), f, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Case != "enqueue-16" || results[0].Peer != "HEAD" {
		t.Fatalf("results are %+v", results)
	}
	if r := results[0]; r.Ours <= 0 || r.Theirs <= 0 || r.Ratio <= 0 || r.Noise <= 0 || r.OfPeer <= 0 {
		t.Errorf("a figure is missing: %+v", r)
	}
}

// TestAgainstNothing: a commit that is not there is an error that names it.
func TestAgainstNothing(t *testing.T) {
	t.Parallel()
	f, err := parse(strings.Fields("-against no-such-commit -case enqueue-16"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := against(t.Context(), testServer(t), f, io.Discard); err == nil || !strings.Contains(err.Error(), "no-such-commit") {
		t.Errorf("error %v, want one that names the commit", err)
	}
}

// TestRatios: the machine was half as fast in the second round, and nothing else changed.
func TestRatios(t *testing.T) {
	t.Parallel()
	more, less := testCase{name: "process"}, testCase{name: "latency", less: true}
	r := figures{ours: []float64{98, 49, 90}, theirs: []float64{100, 50, 100}, again: []float64{98, 49, 100}}
	if got := r.compare(more, "abc"); got.Ratio != 0.98 || got.Noise != 1 || got.OfPeer != 0 || !got.Met {
		t.Errorf("more is better: %+v", got)
	}
	if got := r.compare(less, "abc"); got.Ratio != 1.02 || got.Noise != 1 || !got.Met {
		t.Errorf("less is better: %+v", got)
	}
	r.peers = [2][]float64{{9, 4.5, 9}, {10, 5, 10}}
	if got := r.compare(more, "abc"); got.OfPeer != 0.9 {
		t.Errorf("the peer: %+v", got)
	}
	r.ours = []float64{97, 48.5, 97}
	if got := r.compare(more, "abc"); got.Ratio != 0.97 || got.Met {
		t.Errorf("a loss of 3 %% is one: %+v", got)
	}
}

// TestUntar: files keep their folders, and none lands outside.
func TestUntar(t *testing.T) {
	t.Parallel()
	archive := func(name string) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: 2, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	dir := t.TempDir()
	if err := untar(archive("a/b.sh"), dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a", "b.sh")
	text, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || string(text) != "hi" || info.Mode().Perm() != 0o755 {
		t.Errorf("the file has %q, %v (%v, %v)", text, info, err, statErr)
	}
	if err := untar(archive("../outside"), dir); err == nil {
		t.Error("a file outside was accepted")
	}
}
