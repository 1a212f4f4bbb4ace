package inspect_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/store"
)

// dies has a job of a kind die of an error.
func (s *stage) dies(job signalbox.Job, lastError string) {
	s.t.Helper()
	s.put(job, store.When{})
	s.end(store.Dead, lastError, s.claim(1)...)
}

// groupsOf says of each group how many jobs it has, of what they died, and which died last.
func groupsOf(s inspect.DeadSummary) (texts []string) {
	for _, g := range s.Groups {
		texts = append(texts, fmt.Sprintf("%d %s %q %s", g.Count, g.Kind, g.Error, g.Example))
	}
	return texts
}

// Dead jobs are grouped by what they died of, and each group's filter names all of its jobs.
func TestDeadByError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		if got, err := s.ins.DeadByError(t.Context(), s.Name()); err != nil || got.Dead != 0 || got.Looked != 0 || len(got.Groups) != 0 || got.Queue != s.Name() {
			t.Errorf("without dead jobs: %+v, %v", got, err)
		}
		if _, err := s.ins.DeadByError(t.Context(), "mial"); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("of a queue that isn't there: %v", err)
		}
		if _, err := s.ins.DeadByError(t.Context(), "{}"); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("of a name that no queue has: %v", err)
		}
		for n := range 3 {
			s.dies(signalbox.Job{ID: fmt.Sprint("t", n), Kind: "email", Payload: []byte(`"SECRET"`)}, fmt.Sprintf("timeout after %dms id 8f3e%d\nSTACK", 31*n, n))
		}
		s.dies(signalbox.Job{ID: "sms", Kind: "sms", Retain: time.Hour}, "timeout after 7ms id 8f")
		s.dies(signalbox.Job{ID: "none", Kind: "sms"}, "")
		for n := range 2 {
			s.dies(signalbox.Job{ID: fmt.Sprint("n", n), Kind: "email"}, "no such address: 17")
		}
		s.dies(signalbox.Job{ID: "lost", Kind: "email"}, "no such address: 18")
		record, err := s.rdb.HGet(t.Context(), s.keys+"jobs", "lost").Result()
		s.must(err)
		s.must(s.rdb.HDel(t.Context(), s.keys+"jobs", "lost").Err())

		got, err := s.ins.DeadByError(t.Context(), s.Name())
		s.must(err)
		want := []string{`3 email "timeout after <*> id <*>" t2`, `2 email "no such address: <*>" n1`, `1 sms "" none`, `1 sms "timeout after <*> id <*>" sms`}
		if texts := groupsOf(got); !slices.Equal(texts, want) || got.Dead != 8 || got.Looked != 8 || got.Unreadable != 1 {
			t.Errorf("got %d of %d, %d unreadable, %q; want %q", got.Looked, got.Dead, got.Unreadable, texts, want)
		}
		for _, g := range got.Groups {
			last := s.one(g.Example, signalbox.StateDead)
			if !g.Last.Equal(last.EndedAt) || g.First.After(g.Last) || g.Count == 1 && !g.First.Equal(g.Last) {
				t.Errorf("%+v; the last died at %v", g, last.EndedAt)
			}
			f := g.Filter
			f.NewerThan = time.Hour
			if p, err := s.ins.DoAll(t.Context(), s.Name(), f, inspect.Retry{}, inspect.Bulk{DryRun: true}); err != nil || p.Matched < g.Count {
				t.Errorf("%+v names %d jobs, %v", g, p.Matched, err)
			}
		}
		if first := s.one("t0", signalbox.StateDead).EndedAt; !got.Groups[0].First.Equal(first) {
			t.Errorf("the first of a group died at %v, want %v", got.Groups[0].First, first)
		}
		if f := got.Groups[0].Filter; f.Kind != "email" || f.Error != "timeout after" || f.State != signalbox.StateDead {
			t.Errorf("%+v", f)
		}
		if text := fmt.Sprint(got); strings.Contains(text, "SECRET") || strings.Contains(text, "STACK") {
			t.Error(text)
		}
		s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", "lost", record).Err())
	})
}

// Of more dead jobs than are looked at, it is those that died last, also beside many with a time of their own.
func TestDeadByErrorIsBounded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		for n := range 6 {
			s.dies(signalbox.Job{ID: fmt.Sprint("own", n), Kind: "own", Retain: time.Hour + time.Duration(n)*time.Minute}, fmt.Sprint("own ", strings.Repeat("x", n)))
			s.dies(signalbox.Job{ID: fmt.Sprint("job", n), Kind: "job"}, fmt.Sprint("job ", strings.Repeat("x", n)))
		}
		for most, want := range map[int]string{
			1: "job5", 2: "job5 own5", 3: "job4 job5 own5", 4: "job4 job5 own4 own5", 11: "job0 job1 job2 job3 job4 job5 own1 own2 own3 own4 own5",
			12: "job0 job1 job2 job3 job4 job5 own0 own1 own2 own3 own4 own5", 1000: "job0 job1 job2 job3 job4 job5 own0 own1 own2 own3 own4 own5",
		} {
			got, err := inspect.DeadByErrorOf(s.ins, t.Context(), s.Name(), most)
			s.must(err)
			var ids []string
			for _, g := range got.Groups {
				ids = append(ids, g.Example)
			}
			slices.Sort(ids)
			if strings.Join(ids, " ") != want || got.Looked != int64(len(ids)) || got.Dead != 12 {
				t.Errorf("%d at most: %v of %d, want %s", most, ids, got.Dead, want)
			}
		}
	})
}
