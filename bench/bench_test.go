package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{5, 1, 9}, 5},
		{[]float64{100, 2, 1, 3, 50}, 3},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		given := slices.Clone(tc.values)
		if got := median(given); got != tc.want {
			t.Errorf("median(%v) = %v, want %v", tc.values, got, tc.want)
		}
		if !slices.Equal(given, tc.values) {
			t.Errorf("median changed its argument: %v, was %v", given, tc.values)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tc := range []struct {
		samples []float64
		q, want float64
	}{
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred[:10], 0.99, 100},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{42}, 0, 42},
	} {
		if got := quantile(tc.samples, tc.q); got != tc.want {
			t.Errorf("quantile(%d samples, %v) = %v, want %v", len(tc.samples), tc.q, got, tc.want)
		}
	}
}

// TestRatio: more is better in every ratio.
func TestRatio(t *testing.T) {
	t.Parallel()
	more := testCase{name: "process", unit: "jobs/s", target: 12}
	less := testCase{name: "latency", unit: "ms", less: true, target: 810, bound: 0.6}
	// Without a target only the bound counts.
	below := testCase{name: "wait", unit: "ms", less: true, bound: 10}
	above := testCase{name: "fairness", unit: "index", bound: 0.95}
	for _, tc := range []struct {
		tc           testCase
		ours, theirs float64
		ratio        float64
		met          bool
	}{
		{more, 120_000, 10_000, 12, true},
		{more, 119_999, 10_000, 12, false}, // as it was measured, not as it is printed
		{more, 5_000, 10_000, 0.5, false},
		{less, 0.5, 500, 1000, true},
		{less, 1, 500, 500, false},
		{below, 10, 5, 0.5, true},
		{below, 10.1, 101, 10, false},
		{above, 0.96, 0.96, 1, true},
		{above, 0.9, 0.1, 9, false},
	} {
		r := compare(tc.tc, "peer", tc.ours, tc.theirs)
		if r.Ratio != tc.ratio || r.Met != tc.met {
			t.Errorf("%s, %v against %v: ratio %v, met %v; want %v, %v", tc.tc.name, tc.ours, tc.theirs, r.Ratio, r.Met, tc.ratio, tc.met)
		}
	}
}

func TestCases(t *testing.T) {
	t.Parallel()
	want := []string{
		"process-c100", "process-c100-client-cpu", "process-c100-redis-cpu", "process-c10", "process-c10-client-cpu", "process-c10-redis-cpu",
		"streams-c100", "streams-c100-cpu", "streams-bare-c100", "streams-bare-c100-cpu",
		"enqueue-16", "enqueue-16-client-cpu", "enqueue-16-redis-cpu", "unique-enqueue", "unique-enqueue-river", "enqueue-bulk", "unique-bulk", "unique-bulk-both", "groups-bulk", "enqueue-seq",
		"latency-idle-p50", "latency-idle-p99", "cancel-p99", "latency-floor", "memory-pending", "ceiling", "cluster-60-queues",
		"groups-100", "groups-10000", "groups-100000", "groups-cpu", "unique-cpu", "plain-beside-groups-c100", "plain-beside-groups-c10", "groups-flood", "serial-throughput",
		"rate-accuracy", "rate-accuracy-groups", "cron-lag-p99", "delayed-lateness-p99", "delayed-crowd-script",
		"trace-off", "trace-removed", "trace-noop", "trace-on", "trace-on-service",
		"lock-c1", "lock-c64", "lock-contended-16", "lock-contended-16-p99",
		"lock-contended-16-processes", "lock-contended-16-processes-p99", "lock-contended-16-processes-jain",
		"redlock-c1", "redlock-c64", "redlock-two-down", "outbox", "lock-postgres", "lock-postgres-c64",
		"lock-etcd", "lock-etcd-c64", "lock-etcd-contended-16", "lock-etcd-contended-16-p99",
		"lock-zookeeper", "lock-zookeeper-c64", "lock-zookeeper-contended-16", "lock-zookeeper-contended-16-p99",
	}
	if got := names(contests()); !slices.Equal(got, want) {
		t.Errorf("cases are %v, want %v", got, want)
	}
	for _, c := range contests() {
		sides := []side{c.ours, c.theirs}
		if c.peer == "" {
			sides = sides[:1]
			if c.theirs.measure != nil || c.cases[0].bound == 0 {
				t.Errorf("%s: it has no peer, and so needs a bound", c.cases[0].name)
			}
		}
		for _, s := range sides {
			if s.measure == nil || s.quick < 1 || s.full < s.quick {
				t.Errorf("%s: %d jobs, quick %d", c.cases[0].name, s.full, s.quick)
			}
		}
		for _, tc := range c.cases {
			shown := strings.HasSuffix(tc.name, "-cpu") || strings.HasPrefix(tc.name, "streams-") // beside another figure
			if tc.target < 0 || tc.bound < 0 || tc.target+tc.bound == 0 && !shown || tc.unit == "" {
				t.Errorf("%s: target %v, bound %v, unit %q", tc.name, tc.target, tc.bound, tc.unit)
			}
		}
	}
	data, err := json.Marshal(payload)
	if err != nil || len(data) != 100 {
		t.Errorf("the payload has %d bytes (%v), want 100: %s", len(data), err, data)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args  string
		cases string
		runs  int
	}{
		{"", strings.Join(names(contests()), ","), 5},
		{"-quick", strings.Join(names(contests()), ","), 3},
		{"-quick -runs 7 -case ceiling", "ceiling", 7},
		{"-case latency-idle-p99,process-c10", "process-c10,latency-idle-p99", 5},
		{"-against HEAD -case ceiling", "ceiling", 9},
	} {
		f, err := parse(strings.Fields(tc.args), io.Discard)
		if err != nil {
			t.Errorf("%q: %v", tc.args, err)
			continue
		}
		if got := strings.Join(names(f.contests), ","); got != tc.cases || f.runs != tc.runs {
			t.Errorf("%q: cases %s, %d runs; want %s, %d", tc.args, got, f.runs, tc.cases, tc.runs)
		}
	}
	for _, args := range []string{"-case nosuch", "-case process-c10,", "-runs -1", "-runs x", "extra"} {
		var message bytes.Buffer
		if _, err := parse(strings.Fields(args), &message); err == nil || message.Len() == 0 {
			t.Errorf("%q: error %v, message %q; want both", args, err, message.String())
		}
	}
}

func TestLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:6379", "127.9.9.9:1", "[::1]:6379"} {
		if err := checkLoopback(t.Context(), addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"10.0.0.1:6379", "192.0.2.1:6379", "[2001:db8::1]:6379", "0.0.0.0:6379", "127.0.0.1", ""} {
		if err := checkLoopback(t.Context(), addr); err == nil {
			t.Errorf("%q was accepted", addr)
		}
	}
}

// TestJSON: what programs read.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := report{
		Machine: machine{OS: "linux", CPUs: 2, Runs: 5},
		Results: []result{compare(testCase{name: "latency-idle-p50", unit: "ms", less: true, target: 810, bound: 0.6}, "asynq", 0.5, 486)},
	}
	var out bytes.Buffer
	if err := r.json(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Machine map[string]any
		Results []map[string]any
	}
	dec := json.NewDecoder(&out)
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(new(any)); err != io.EOF {
		t.Errorf("something follows the object: %v", err)
	}
	if len(got.Machine) == 0 || len(got.Results) != 1 {
		t.Fatalf("got %v", got)
	}
	want := map[string]any{
		"case": "latency-idle-p50", "unit": "ms", "ours": 0.5, "peer": "asynq", "theirs": 486.0,
		"ratio": 972.0, "target": 810.0, "met": true,
	}
	for name, value := range want {
		if got.Results[0][name] != value {
			t.Errorf("%s is %v, want %v", name, got.Results[0][name], value)
		}
	}
	if len(got.Results[0]) != len(want) {
		t.Errorf("a result has the fields %v", got.Results[0])
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := report{
		Machine: machine{OS: "linux", Arch: "amd64", CPUs: 2, Runs: 3, Quick: true},
		Results: []result{
			compare(testCase{name: "process-c100", unit: "jobs/s", target: 12}, "asynq", 140_123, 10_200),
			compare(testCase{name: "memory-pending", unit: "bytes", less: true, target: 2.37, bound: 280}, "asynq", 268, 627),
			compare(testCase{name: "fairness", unit: "index", bound: 0.95}, "redislock", 1, 0.5),
			alone(testCase{name: "accuracy", unit: "share", bound: 0.91}, 0.92),
		},
	}
	var out bytes.Buffer
	if err := r.table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"medians of 3 runs", "quick:", "140,123", "13.7x", "2.37x", "<= 280", ">= 0.95", ">= 0.91"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the table:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "0.00") {
		t.Errorf("a case without a peer has a figure of one:\n%s", out.String())
	}
}

func TestProduce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 15, 16, 100, 1001} {
		done := newTally(n)
		if err := produce(n, func() error { done.ran(); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := done.check(); err != nil {
			t.Error(err)
		}
		if _, err := done.wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := rate(500, 250*time.Millisecond)[0][0]; math.Abs(got-2000) > 1e-9 {
		t.Errorf("rate is %v, want 2000", got)
	}
}
