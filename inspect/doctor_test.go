package inspect_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A report has what was found, says how it is repaired, and bounds what it holds.
func TestDoctor(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := newStage(t, rdb)
	s.puts("a", "b")
	key := func(name string) string { return "signalbox:{" + s.namespace + ":" + s.Name() + "}:" + name }
	s.must(rdb.LRem(t.Context(), key("ready:normal"), 0, "a").Err())
	s.must(rdb.HSet(t.Context(), key("settings"), "slots", "many").Err())
	var jobs, findings int64
	r, err := s.ins.Doctor(t.Context(), s.Name(), inspect.Checkup{Progress: func(j, f int64) { jobs, findings = j, f }})
	s.must(err)
	if r.Jobs != 2 || r.Found != 2 || r.Repaired != 0 || len(r.Findings) != 2 || jobs != 2 || findings != 2 {
		t.Errorf("%+v; progress %d, %d", r, jobs, findings)
	}
	for _, f := range r.Findings {
		if f.Queue != s.Name() || f.Text == "" || f.Repaired || (f.Repair == "") != (f.Fault == "bad_setting") || (f.Job == "") != (f.Fault == "bad_setting") {
			t.Errorf("%+v", f)
		}
	}
	if r, err = s.ins.Doctor(t.Context(), s.Name(), inspect.Checkup{Repair: true}); err != nil || r.Found != 2 || r.Repaired != 1 {
		t.Errorf("a repair: %+v, %v", r, err)
	}
	s.must(rdb.HDel(t.Context(), key("settings"), "slots").Err())
	if _, err := s.ins.Doctor(t.Context(), "mial", inspect.Checkup{}); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("of a queue that isn't there: %v", err)
	}
}

// The doctor ends with its context, also while it rests.
func TestDoctorEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStage(t, srv.Client())
	rdb := srv.ClientWith(func(*redis.UniversalOptions) {})
	ctx, stop := context.WithCancel(t.Context())
	rdb.(*redis.Client).AddHook(after(func(cmd redis.Cmder) {
		if cmd.Name() == "scan" {
			stop()
		}
	}))
	if _, err := inspector(t, rdb, s.namespace).Doctor(ctx, s.Name(), inspect.Checkup{Pause: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// docs/doctor.md has each fault once: in the first table if it can be repaired, else in the second.
func TestDoctorPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var repaired, reported []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if doctor.Remedies[facts.Fault(row[1])] != "" {
			repaired = append(repaired, row[1])
		} else {
			reported = append(reported, row[1])
		}
	}
	if len(repaired) != len(doctor.Remedies) || len(slices.Compact(slices.Sorted(slices.Values(repaired)))) != len(repaired) || len(repaired)+len(reported) != len(facts.Faults) {
		t.Errorf("docs/doctor.md has %d faults that are repaired, of %d, and %d others: %v", len(repaired), len(doctor.Remedies), len(reported), reported)
	}
	for _, f := range facts.Faults {
		if !slices.Contains(slices.Concat(repaired, reported), string(f)) {
			t.Errorf("docs/doctor.md doesn't have %s", f)
		}
	}
}
