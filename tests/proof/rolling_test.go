package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Five restarts of nodes, one after the other, under holders that extend: no lock is lost, and none has two holders.
func TestRollingHistory(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("SIGNALBOX_TEST_REDIS") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var out bytes.Buffer
	_, err := proveRolling(t.Context(), rolling{5, 1}, 1, &out)
	t.Logf("%s", &out)
	if err != nil {
		t.Error(err)
	}
}

// A run in which no lock was held over restarts proves nothing, and fails.
func TestRollingHistoryOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("SIGNALBOX_TEST_REDIS") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var out bytes.Buffer
	if _, err := proveRolling(t.Context(), rolling{0, 1}, 1, &out); err == nil || !strings.Contains(err.Error(), "the run is invalid") {
		t.Errorf("the error is %v; want that the run is invalid\n%s", err, &out)
	}
}

// A lock may be lost if the restarts came too soon one after the other, or if its holder was late. Otherwise it is a violation.
func TestCheckHoldings(t *testing.T) {
	t.Parallel()
	restart := func(at ...int64) (ws []window) {
		for _, ms := range at {
			ws = append(ws, window{name: restartFault, begin: ms * int64(1e6), end: (ms + 20) * int64(1e6)})
		}
		return ws
	}
	const after = 20 + int64(restartPause/1e6) // from the begin of one restart to the begin of the next
	// held returns a lock that is extended every 330 ms; the extension at that number takes so long, and comes so much later.
	held := func(extensions int64, last result, odd, takes, later int64) []operation {
		s := (&script{}).add(operation{process: 1, do: acquire, call: 0, back: 2, result: done, token: 10, until: 990})
		shift := int64(0)
		for i := range extensions {
			o := operation{process: 1, do: extend, lease: 1, call: 330 * (i + 1), result: done}
			if i == odd {
				shift = later
			}
			o.call += shift
			o.back, o.until = o.call+1, o.call+990
			if i == odd {
				o.back = o.call + takes
			}
			if i == extensions-1 {
				o.result = last
			}
			s.add(o)
		}
		return s.ops
	}
	for _, c := range []struct {
		name    string
		ops     []operation
		windows []window
		want    holdings
	}{
		{"kept over two restarts", held(20, done, -1, 0, 0), restart(100, 100+after), holdings{kept: 1}},
		{"one restart takes no majority", held(20, done, -1, 0, 0), restart(100), holdings{}},
		{"restarts before and after it", held(5, done, -1, 0, 0), restart(-3000, 9000), holdings{}},
		{"lost after two restarts", held(20, lost, -1, 0, 0), restart(100, 100+after), holdings{lost: 1}},
		{"lost after one restart", held(20, lost, -1, 0, 0), restart(100), holdings{lost: 1}},
		{"lost without a restart", held(20, lost, -1, 0, 0), nil, holdings{lost: 1}},
		{"lost by a restart as it was acquired", held(1, lost, -1, 0, 0), restart(100), holdings{excused: 1}},
		{"lost by a restart before its first extension", held(1, lost, -1, 0, 0), restart(260), holdings{lost: 1}},
		{"lost after an extension, and a restart as it was acquired", held(2, lost, -1, 0, 0), restart(100), holdings{lost: 1}},
		{"lost at its first extension without a restart", held(1, lost, -1, 0, 0), restart(-100), holdings{lost: 1}},
		{"the second restart came too soon", held(20, lost, -1, 0, 0), restart(100, 100+after-1), holdings{excused: 1}},
		{"the holder began an extension late", held(20, lost, 7, 1, 400), restart(100, 100+after), holdings{excused: 1}},
		{"the holder's first extension was late", held(20, lost, 0, 1, 400), restart(100, 100+after), holdings{excused: 1}},
		{"a majority answered late", held(20, lost, 7, 200, 0), restart(100, 100+after), holdings{excused: 1}},
		{"nothing was late", held(20, lost, 7, 199, 300), restart(100, 100+after), holdings{lost: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := checkHoldings(c.ops, c.windows)
			if got.kept != c.want.kept || got.excused != c.want.excused || got.lost != c.want.lost || len(got.examples) != got.lost {
				t.Errorf("found %+v, want %+v", got, c.want)
			}
		})
	}
	ops := held(20, done, -1, 0, 0)
	planted, ok := plantLost(ops, restart(100, 100+after))
	if !ok || checkHoldings(planted, nil).lost != 1 || checkHoldings(ops, nil).lost != 0 {
		t.Errorf("planted: %v", ok)
	}
	if _, ok := plantLost(ops[:1], nil); ok {
		t.Error("there was no extension to plant it in")
	}
}
