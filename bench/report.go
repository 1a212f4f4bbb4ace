package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A report is what was measured. README.md describes its JSON.
type report struct {
	Machine machine  `json:"machine"`
	Results []result `json:"results"`
}

// machine is where it was measured, with what and how.
type machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"` // "" if unknown
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
	Client string `json:"go_redis"` // both sides use it, but rueidislock
	// The peers.
	Asynq     string `json:"asynq"`
	Redislock string `json:"redislock"`
	Redsync   string `json:"redsync"`
	Rueidis   string `json:"rueidis"` // has rueidislock
	River     string `json:"river"`
	Quick     bool   `json:"quick"`
	Runs      int    `json:"runs"` // of each side; at most so many if Quick
}

// A result is the outcome of one case: latencies in ms, memory in bytes.
type result struct {
	Case   string  `json:"case"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"ours"`
	Peer   string  `json:"peer"` // "" if there is none; then theirs and ratio are 0
	Theirs float64 `json:"theirs"`
	Ratio  float64 `json:"ratio"`            // more is better, whatever the unit
	Noise  float64 `json:"noise,omitzero"`   // with -against: the ratio of this tree to itself; else 0
	OfPeer float64 `json:"of_peer,omitzero"` // with -against: the ratio of the peer in this tree's program to the peer in the other one; 0 if the case has none
	Target float64 `json:"target"`           // of the ratio
	Met    bool    `json:"met"`

	limit  string // on our figure; "": none
	within bool
}

func describe(ctx context.Context, srv *server, f flags) (machine, error) {
	info, err := srv.info(ctx, "server")
	if err != nil {
		return machine{}, err
	}
	return machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpu(), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Redis: info["redis_version"], Client: version("github.com/redis/go-redis/v9"),
		Asynq: version("github.com/hibiken/asynq"), Redislock: version("github.com/bsm/redislock"),
		Redsync: version("github.com/go-redsync/redsync/v4"), Rueidis: version("github.com/redis/rueidis"),
		River: version("github.com/riverqueue/river"),
		Quick: f.quick, Runs: f.runs,
	}, nil
}

// cpu is the model of the first processor, where the system tells it.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// version is that of a module that was built in.
func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return ""
}

func (r *report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r *report) table(w io.Writer) error {
	m := &r.Machine
	fmt.Fprintf(w, "%s/%s, %d CPUs %s, %s, Redis %s, go-redis %s\n", m.OS, m.Arch, m.CPUs, m.CPU, m.Go, m.Redis, m.Client)
	fmt.Fprintf(w, "asynq %s, River %s, redislock %s, redsync %s, rueidis %s\n", m.Asynq, m.River, m.Redislock, m.Redsync, m.Rueidis)
	fmt.Fprintf(w, "medians of %s, in turn; more is better in every ratio\n", plural(m.Runs, "run"))
	if m.Quick {
		fmt.Fprintln(w, "quick: short runs, and fewer on a slow machine, so the figures are rough")
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	repeated := slices.ContainsFunc(r.Results, func(x result) bool { return x.Noise > 0 })
	row := func(ratio, noise, ofPeer string, before, after []string) {
		cells := append(before, ratio)
		if repeated {
			cells = append(cells, noise, ofPeer)
		}
		fmt.Fprintln(tw, strings.Join(append(cells, after...), "\t")+"\t")
	}
	row("ratio", "to itself", "its peer's", []string{"case", "unit", "signalbox", "peer", "theirs"}, []string{"target", "met", "our limit", "met"})
	for i := range r.Results {
		x := &r.Results[i]
		target, met, within := "", "", ""
		if x.Target > 0 {
			target, met = strconv.FormatFloat(x.Target, 'f', -1, 64)+"x", yes(x.Met)
		}
		if x.limit != "" {
			within = yes(x.within)
		}
		theirs, ratio := figure(x.Theirs), figure(x.Ratio)+"x"
		if x.Peer == "" {
			theirs, ratio = "", ""
		}
		ofPeer := ""
		if x.OfPeer > 0 {
			ofPeer = figure(x.OfPeer) + "x"
		}
		row(ratio, figure(x.Noise)+"x", ofPeer,
			[]string{x.Case, x.Unit, figure(x.Ours), x.Peer, theirs}, []string{target, met, x.limit, within})
	}
	return tw.Flush()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// figure writes a number for people: whole thousands with commas, small ones with decimals.
func figure(x float64) string {
	switch {
	case x >= 1000:
		s := strconv.FormatFloat(x, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}
