package inspect_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

var errCut = errors.New("the connection was cut")

// A cutOff is a client of which one call of a script fails: it isn't made, or its reply is lost.
type cutOff struct {
	redis.UniversalClient
	sha  string
	left atomic.Int64 // calls until that one, with it
	lost bool
}

func newCutOff(rdb redis.UniversalClient, script string, n int64, lost bool) *cutOff {
	sum := sha1.Sum([]byte(scripts.Sources()[script]))
	c := &cutOff{UniversalClient: rdb, sha: hex.EncodeToString(sum[:]), lost: lost}
	c.left.Store(n)
	return c
}

func (c *cutOff) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if sha != c.sha || c.left.Add(-1) != 0 {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	if c.lost {
		c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errCut)
	return cmd
}

// A call of DoAll one of whose calls of Redis fails, or loses its reply, counts what it knows to be done, and nothing else is done. The next one does the
// others. So each job is acted on once.
func TestDoAllIsCutOff(t *testing.T) {
	t.Parallel()
	shared := redistest.Start(t).Client()
	const n = 450
	for _, c := range []struct {
		action inspect.Action
		script string
		want   signalbox.State
		total  func(looks.Totals) int64
	}{
		{inspect.Retry{}, "act", signalbox.StateReady, func(t looks.Totals) int64 { return t.Revived }},
		{inspect.Reschedule{At: time.Now().Add(time.Hour)}, "act", signalbox.StateScheduled, func(t looks.Totals) int64 { return t.Revived }},
		{inspect.Edit{MaxAttempts: 7, Run: true}, "act", signalbox.StateReady, func(t looks.Totals) int64 { return t.Revived }},
		{inspect.Delete{}, "act", "", func(t looks.Totals) int64 { return t.Deleted }},
		{inspect.Move{}, "put", "", func(t looks.Totals) int64 { return t.Deleted }},
	} {
		for _, at := range []int64{1, 2, 3, 5, 9} {
			for _, lost := range []bool{false, true} {
				t.Run(fmt.Sprintf("%T/call=%d/lost=%v", c.action, at, lost), func(t *testing.T) {
					t.Parallel()
					s := newStage(t, shared)
					s.puts("warm") // the scripts are known to the server
					_, err := s.ins.Do(t.Context(), s.Name(), "warm", inspect.Delete{})
					s.must(err)
					before := c.total(s.totals())
					for first := 0; first < n; first += 150 {
						s.puts(numbered("j", n)[first : first+150]...)
						s.end(store.Dead, "boom", s.claim(150)...)
					}
					to := s.beside()
					action, moves := c.action, false
					if _, moves = action.(inspect.Move); moves {
						action = inspect.Move{To: to.Name()}
						s.puts("first")
						_, err := s.ins.Do(t.Context(), s.Name(), "first", action)
						s.must(err)
						_, err = to.ins.Do(t.Context(), to.Name(), "first", inspect.Delete{})
						s.must(err)
						before++
					}
					f := inspect.Filter{State: signalbox.StateDead}
					flaky := inspector(t, newCutOff(s.rdb, c.script, at, lost), s.namespace)
					var last inspect.BulkCounts
					p, err := flaky.DoAll(t.Context(), s.Name(), f, action, inspect.Bulk{Progress: func(now inspect.BulkCounts) { last = now }})
					if err != nil && (!errors.Is(err, errCut) || !strings.Contains(err.Error(), "of dead jobs of queue "+s.Name())) {
						t.Fatalf("%+v, %v", p, err)
					}
					if last != p {
						t.Errorf("it reported %+v at the end, and returned %+v", last, p)
					}
					if p.Moved != 0 || p.Failed != 0 || p.Done > p.Matched || err == nil && p.Done != n {
						t.Errorf("got %+v, %v", p, err)
					}
					did := c.total(s.totals()) - before
					if !moves && (did < p.Done || !lost && did != p.Done || lost && err != nil && did == p.Done) {
						t.Errorf("%d jobs are done, it says %+v, lost %v", did, p, lost)
					}
					again, err := s.ins.DoAll(t.Context(), s.Name(), f, action, inspect.Bulk{})
					if err != nil || again.Moved != 0 || again.Failed != 0 || !moves && did+again.Done != n {
						t.Errorf("again: %+v, %v; %d were done before", again, err, did)
					}
					if got := c.total(s.totals()) - before; got != n {
						t.Errorf("%d jobs were acted on in all, want %d", got, n)
					}
					q, err := s.ins.Queue(t.Context(), s.Name())
					s.must(err)
					left := map[signalbox.State]int64{signalbox.StateReady: q.Ready, signalbox.StateScheduled: q.Scheduled, signalbox.StateDead: q.Dead}
					for state, number := range left {
						if want := map[bool]int64{true: n}[state == c.want]; number != want {
							t.Errorf("%d jobs are %s, want %d", number, state, want)
						}
					}
					if q, err = s.ins.Queue(t.Context(), to.Name()); err != nil || q.Dead != map[bool]int64{true: n}[moves] || q.Scheduled != 0 {
						t.Errorf("in the other queue: %+v, %v", q, err)
					}
				})
			}
		}
	}
}

// totals returns what the queue has counted.
func (s *stage) totals() looks.Totals {
	s.t.Helper()
	counts, err := s.Looks().Counts(s.t.Context())
	s.must(err)
	return counts.Total
}

// A listing that fails in the midst ends DoAll with an error. What it counts as done is done, and nothing else.
func TestDoAllWithoutItsListing(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	const n = 450
	for first := 0; first < n; first += 150 {
		s.puts(numbered("j", n)[first : first+150]...)
		s.end(store.Dead, "boom", s.claim(150)...)
	}
	before := s.totals().Deleted
	f := inspect.Filter{State: signalbox.StateDead}
	s.list(f) // the scripts are known to the server
	failed := 0
	for at := int64(1); at < 40; at++ {
		flaky := inspector(t, newCutOff(s.rdb, "page", at, false), s.namespace)
		p, err := flaky.DoAll(t.Context(), s.Name(), f, inspect.Delete{}, inspect.Bulk{})
		if did := s.totals().Deleted - before; did != p.Done {
			t.Fatalf("%d jobs are deleted, it says %+v", did, p)
		}
		before += p.Done
		if err == nil {
			break
		}
		if failed++; !errors.Is(err, errCut) {
			t.Fatalf("call %d: %v", at, err)
		}
	}
	if q, err := s.ins.Queue(t.Context(), s.Name()); err != nil || q.Dead != 0 || failed == 0 {
		t.Errorf("%+v, %v; %d calls failed", q, err, failed)
	}
}

// An import one of whose calls fails, or loses its reply, counts what it knows to be in. The queue stays paused. The next import puts in the others.
func TestImportIsCutOff(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	const n = 450
	s.puts(numbered("j", n)...)
	file := s.exported()
	for at := int64(1); at <= 3; at++ {
		for _, lost := range []bool{false, true} {
			to := s.beside()
			_, err := s.ins.Pause(t.Context(), to.Name())
			s.must(err)
			var last inspect.Imported
			flaky := inspector(t, newCutOff(s.rdb, "put", at, lost), s.namespace)
			done, err := flaky.Import(t.Context(), to.Name(), strings.NewReader(file), inspect.Importing{Settings: true, Progress: func(now inspect.Imported) { last = now }})
			if !errors.Is(err, errCut) || errors.Is(err, inspect.ErrFile) || !strings.Contains(err.Error(), to.Name()) {
				t.Fatalf("call %d: %v", at, err)
			}
			q, err := s.ins.Queue(t.Context(), to.Name())
			s.must(err)
			in := q.Ready + q.Scheduled
			if last != done || done.There != 0 || done.Bad != 0 || done.Done != 200*(at-1) || !lost && in != done.Done || lost && in <= done.Done || done.Jobs > n {
				t.Errorf("call %d, lost %v: %+v, reported %+v; %d are in", at, lost, done, last, in)
			}
			if !q.Paused {
				t.Errorf("call %d: the queue is resumed", at)
			}
			done = to.imports(file, inspect.Importing{Settings: true})
			if want := (inspect.Imported{Jobs: n, Done: n - in, There: in}); done != want {
				t.Errorf("call %d again: %+v, want %+v", at, done, want)
			}
			if q, err = s.ins.Queue(t.Context(), to.Name()); err != nil || q.Paused || q.Ready+q.Scheduled != n {
				t.Errorf("call %d again: %+v, %v", at, q, err)
			}
		}
	}
}

// A file whose reader fails: what was read whole is put in, what wasn't is no job, and the error is the reader's. Readers may give any number of bytes at a time.
func TestImportFromReaders(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	const n = 250
	s.puts(numbered("j", n)...)
	file := s.exported()
	rows := strings.SplitAfter(file, "\n")
	upTo := func(lines int, more string) string { return strings.Join(rows[:lines], "") + more }
	errRead := errors.New("the disk is gone")
	broken := func(text string) io.Reader { return io.MultiReader(strings.NewReader(text), iotest.ErrReader(errRead)) }
	for name, c := range map[string]struct {
		r    io.Reader
		done int64
		want error
	}{
		"before the first line":  {broken(""), 0, errRead},
		"in the first line":      {broken(rows[0][:10]), 0, errRead},
		"behind the first line":  {broken(rows[0]), 0, errRead},
		"in a line":              {broken(upTo(11, rows[11][:40])), 10, errRead},
		"behind a line":          {broken(upTo(11, "")), 10, errRead},
		"a line without its end": {broken(upTo(11, strings.TrimSuffix(rows[11], "\n"))), 10, errRead},
		"behind 200 jobs":        {broken(upTo(201, "")), 200, errRead},
		"behind 200 jobs more":   {broken(upTo(221, "x")), 220, errRead},
		"behind the last line":   {broken(file), n, errRead},
		"the last line is cut":   {strings.NewReader(upTo(len(rows)-2, `{"en`)), n, inspect.ErrFile},
		"a byte at a time":       {iotest.OneByteReader(strings.NewReader(file)), n, nil},
		"halves":                 {iotest.HalfReader(strings.NewReader(file)), n, nil},
		"data with the end":      {iotest.DataErrReader(strings.NewReader(file)), n, nil},
		"no end of the last":     {strings.NewReader(strings.TrimSuffix(file, "\n")), n, nil},
		"empty lines":            {strings.NewReader(strings.ReplaceAll(file, "\n", "\r\n\n")), n, nil},
	} {
		to := s.beside()
		_, err := s.ins.Pause(t.Context(), to.Name())
		s.must(err)
		done, err := s.ins.Import(t.Context(), to.Name(), c.r, inspect.Importing{Settings: true})
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) || c.want == errRead && errors.Is(err, inspect.ErrFile) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
		q, err := s.ins.Queue(t.Context(), to.Name())
		s.must(err)
		if done.Done != c.done || done.Jobs != c.done || q.Ready+q.Scheduled != c.done || q.Paused != (c.want != nil) {
			t.Errorf("%s: %+v; %d are in, paused %v; want %d", name, done, q.Ready+q.Scheduled, q.Paused, c.done)
		}
	}
}
