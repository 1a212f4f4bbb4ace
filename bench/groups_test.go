package main

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// TestGroupCases: each case of groups, limits and times measures something. Those that check an order or a limit
// fail if it is broken.
func TestGroupCases(t *testing.T) {
	srv := testServer(t)
	for name, tc := range map[string]struct {
		measure measure
		samples int
	}{
		"groups":   {groupedProcess(7), 1},
		"plain":    {groupedProcess(0), 1},
		"unique":   {uniqueProcess, 1},
		"beside":   {besideGroups(10), 1},
		"serial":   {serialProcess, 1},
		"rate":     {rateAccuracy(1), 1},
		"rates":    {rateAccuracy(20), 1},
		"delayed":  {ourDelayed, 100},
		"crowd":    {delayedCrowd, 1},
		"cron lag": {ourTicks, 100},
	} {
		if err := srv.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := tc.measure(t.Context(), srv, 100)
		if err != nil || len(got) == 0 || len(got[0]) < tc.samples || got[0][0] <= 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestShareOfRate(t *testing.T) {
	t.Parallel()
	at := func(ms ...int) (times []time.Time) {
		for _, m := range ms {
			times = append(times, time.UnixMilli(int64(m)))
		}
		return times
	}
	for _, tc := range []struct {
		at    []time.Time
		burst int
		want  float64 // 0: too many
	}{
		{at(0, 10, 20, 30), 1, 1},
		{at(30, 10, 20, 0), 1, 1},
		{at(0, 10, 70), 1, 3.0 / 8},
		{at(0, 9), 1, 0},
		{at(0, 0, 10, 20), 2, 1},
		{at(0, 0, 10, 19), 2, 0},
		{at(0, 0, 40, 40, 40), 2, 0},
	} {
		got, err := shareOfRate(tc.at, signalbox.Rate{Jobs: 100, Per: time.Second, Burst: tc.burst})
		if (err != nil) != (tc.want == 0) || err == nil && got != tc.want {
			t.Errorf("%v, burst %d: %v, %v; want %v", tc.at, tc.burst, got, err, tc.want)
		}
		if err != nil && !strings.Contains(err.Error(), "too early") {
			t.Error(err)
		}
	}
}
