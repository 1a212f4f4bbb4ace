package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// againstTarget is the least ratio of a case that counts as no loss against another commit.
const againstTarget = 0.98

// against compares this tree with another commit. It builds both, each with its own bench, and runs a
// case of this tree, of the commit, and of this tree again in turn: what the two runs of this tree
// differ by is noise. Each run is a process that measures the case once, with its peer. A peer that isn't ours is the same in both
// programs: what its two figures differ by is that of the programs, of which one is larger.
func against(ctx context.Context, srv *server, f flags, progress io.Writer) (results []result, err error) {
	dir, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	sources := filepath.Join(dir, "tree")
	if err := extract(ctx, f.against, sources); err != nil {
		return nil, fmt.Errorf("-against %s: %w", f.against, err)
	}
	this := &program{name: "this tree", sources: here, path: filepath.Join(dir, "this")}
	other := &program{name: f.against, sources: filepath.Join(sources, "bench"), path: filepath.Join(dir, "other")}
	for _, p := range []*program{this, other} {
		if err := p.build(ctx); err != nil {
			return nil, err
		}
	}
	for _, c := range f.contests {
		of, err := c.against(ctx, srv, f, this, other, progress)
		if err != nil {
			return nil, err
		}
		results = append(results, of...)
	}
	return results, nil
}

// figures are the rounds of one case: one figure a round of each side. peers are those of the peer in this tree's program, and in the other one. A
// case that has no peer has none.
type figures struct {
	ours, theirs, again []float64
	peers               [2][]float64
}

// against runs the rounds of one contest. The order of the three turns with each round.
func (c *contest) against(ctx context.Context, srv *server, f flags, this, other *program, progress io.Writer) ([]result, error) {
	rounds := make([]figures, len(c.cases))
	for i := range f.runs {
		var measured [3]map[string]result // this tree, the commit, this tree again
		for turn := range measured {
			side := (turn + i) % len(measured)
			p := this
			if side == 1 {
				p = other
			}
			var err error
			if measured[side], err = p.measure(ctx, srv, c.cases, f.quick); err != nil {
				return nil, err
			}
		}
		for j, tc := range c.cases {
			r := &rounds[j]
			this, other, again := measured[0][tc.name], measured[1][tc.name], measured[2][tc.name]
			r.ours, r.theirs, r.again = append(r.ours, this.Ours), append(r.theirs, other.Ours), append(r.again, again.Ours)
			if this.Theirs > 0 && other.Theirs > 0 {
				r.peers[0], r.peers[1] = append(r.peers[0], this.Theirs), append(r.peers[1], other.Theirs)
			}
			fmt.Fprintf(progress, "%s %d/%d: this tree %s, %s %s, this tree again %s %s\n", tc.name, i+1, f.runs,
				figure(this.Ours), f.against, figure(other.Ours), figure(again.Ours), tc.unit)
		}
	}
	results := make([]result, len(c.cases))
	for j, tc := range c.cases {
		results[j] = rounds[j].compare(tc, f.against)
	}
	return results, nil
}

// compare makes the result of a case. Its ratios are medians of the rounds' ratios, since the machine's
// speed drifts from round to round.
func (r *figures) compare(tc testCase, peer string) result {
	ratio, noise := ratios(tc, r.ours, r.theirs), ratios(tc, r.ours, r.again)
	of := 0.0 // the peer
	if len(r.peers[0]) > 0 {
		of = ratios(tc, r.peers[0], r.peers[1])
	}
	return result{
		Case: tc.name, Unit: tc.unit, Ours: round(median(r.ours)), Peer: peer, Theirs: round(median(r.theirs)),
		Ratio: round(ratio), Noise: round(noise), OfPeer: round(of), Target: againstTarget, Met: ratio >= againstTarget,
	}
}

// ratios returns the median of the ratios of two sides, round by round. More is better.
func ratios(tc testCase, ours, theirs []float64) float64 {
	all := make([]float64, len(ours))
	for i := range ours {
		all[i] = ours[i] / theirs[i]
		if tc.less {
			all[i] = theirs[i] / ours[i]
		}
	}
	return median(all)
}

// A program is a bench of its own, of one tree.
type program struct {
	name    string
	sources string // the folder bench of its tree
	path    string // of the binary
}

func (p *program) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-o", p.path, ".")
	cmd.Dir = p.sources
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("the bench of %s: %w", p.name, err)
	}
	return nil
}

// sameHeap lets a bench collect garbage when its heap has so many bytes. By default it does when the heap has doubled, and so how often it does, beside
// Redis, is a matter of what is in the heap from the start: that is more with each peer that a bench is linked with.
var sameHeap = []string{"GOGC=off", "GOMEMLIMIT=256MiB"}

// measure runs cases once, in a process of its own, and returns the result of each.
func (p *program) measure(ctx context.Context, srv *server, cases []testCase, quick bool) (map[string]result, error) {
	var list []string
	for _, tc := range cases {
		list = append(list, tc.name)
	}
	cmd := exec.CommandContext(ctx, p.path, "-case", strings.Join(list, ","), "-runs", "1", "-json",
		"-quick="+strconv.FormatBool(quick), "-redis", srv.addr)
	cmd.Dir = p.sources
	cmd.Env = append(os.Environ(), sameHeap...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its own servers
	cmd.WaitDelay = 10 * time.Second
	out, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", strings.Join(list, ","), p.name, err)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("%s of %s: its report: %w", strings.Join(list, ","), p.name, err)
	}
	found := make(map[string]result)
	for _, x := range r.Results {
		found[x.Case] = x
	}
	for _, name := range list {
		if ours := found[name].Ours; ours <= 0 {
			return nil, fmt.Errorf("%s of %s: the figure is %v", name, p.name, ours)
		}
	}
	return found, nil
}

// extract writes the files of a commit of this repository into the folder dir.
func extract(ctx context.Context, commit, dir string) error {
	root, err := output(exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel"))
	if err != nil {
		return fmt.Errorf("bench builds the commit, and is to run in the repository: %w", err)
	}
	git := exec.CommandContext(ctx, "git", "archive", "--format=tar", commit)
	git.Dir = strings.TrimSpace(string(root)) // in a folder it would be of that folder alone
	archive, err := output(git)
	if err != nil {
		return err
	}
	return untar(strings.NewReader(string(archive)), dir)
}

// untar writes the files of an archive into the folder dir.
func untar(archive io.Reader, dir string) error {
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg:
			continue
		case !filepath.IsLocal(h.Name):
			return fmt.Errorf("the archive has the file %q, which is outside", h.Name)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, h.FileInfo().Mode().Perm())); err != nil {
			return err
		}
	}
}
