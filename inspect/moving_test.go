package inspect_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A job that moves from state to state is in exactly one of them at each look. It is never reported as missing, or as waiting while it
// runs.
func TestJobThatMoves(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts("a")
	ctx, stop := context.WithCancel(t.Context())
	looked := make(chan error, 1)
	states := make(map[signalbox.State]int)
	go func() {
		for ctx.Err() == nil {
			job, err := s.ins.Job(context.WithoutCancel(ctx), s.Name(), "a")
			if err == nil && (job.State == signalbox.StateRunning) != (job.Token > 0) {
				err = fmt.Errorf("%s with token %d", job.State, job.Token)
			}
			if err != nil {
				looked <- err
				return
			}
			states[job.State]++
		}
		looked <- nil
	}()
	for i := range 300 {
		got := s.claim(1)
		if i%10 == 0 { // then in another session
			s.end(store.Return, "", got...)
			s.session = store.NewSession(me)
			s.open()
			continue
		}
		s.end(store.Return, "", got...)
	}
	stop()
	if err := <-looked; err != nil {
		t.Error(err)
	}
	if states[signalbox.StateReady] == 0 || states[signalbox.StateRunning] == 0 {
		t.Errorf("it was seen as %v", states)
	}
}

// A look makes two calls. A session that opens and takes the job between them doesn't hide the job.
func TestJobIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStage(t, srv.Client())
	s.puts("a")
	rdb := srv.ClientWith(func(*redis.UniversalOptions) {})
	taken := false
	rdb.(*redis.Client).AddHook(after(func(cmd redis.Cmder) {
		if cmd.Name() == "zrange" && !taken {
			taken = true
			s.session = store.NewSession(me)
			s.open()
			s.claim(1)
		}
	}))
	if job, err := inspector(t, rdb, s.namespace).Job(t.Context(), s.Name(), "a"); err != nil || job.State != signalbox.StateRunning || !taken {
		t.Errorf("%+v, %v, taken: %v", job, err, taken)
	}
}

// after is a hook that is called after each command.
type after func(cmd redis.Cmder)

func (f after) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f(cmd)
		return err
	}
}

var deadJobs = flag.Int("inspect.jobs", 20_000, "dead jobs, and ready ones, of TestLongListings")

// A listing needs the same memory for any number of jobs, and so does a retry of all. No call blocks Redis for long. -inspect.jobs=1000000 -v prints the figures.
func TestLongListings(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	srv := redistest.New(t)
	rdb := srv.Client()
	s := newStage(t, rdb)
	s.must(rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "5000").Err())
	n := *deadJobs
	t.Cleanup(func() { // checking so many jobs takes too long
		if n > 100_000 {
			s.must(rdb.FlushAll(context.Background()).Err())
		}
	})
	s.must(s.ins.SetRetention(t.Context(), s.Name(), signalbox.Retention{Jobs: int64(n) + 1, Bytes: 1 << 40}))
	for done := 0; done < n; done += 500 {
		s.puts(numbered(fmt.Sprintf("d%05d-", done/500), 500)...)
		s.end(store.Dead, "broken pipe", s.claim(500)...)
	}
	for done := 0; done < n; done += 500 {
		s.puts(numbered(fmt.Sprintf("r%05d-", done/500), 500)...)
	}
	s.must(rdb.SlowLogReset(t.Context()).Err())
	s.must(rdb.ConfigResetStat(t.Context()).Err())
	for state, f := range map[string]inspect.Filter{
		"dead": {State: signalbox.StateDead}, "ready": {State: signalbox.StateReady}, "dead, by error": {State: signalbox.StateDead, Error: "nothing has it"},
		"dead, by ID": {State: signalbox.StateDead, IDPrefix: "d00001-"},
	} {
		base, most := heap(), uint64(0)
		seen, begin := 0, time.Now()
		for _, err := range s.ins.Jobs(t.Context(), s.Name(), f) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen%(n/10) == 0 {
				most = max(most, heap())
			}
		}
		took := time.Since(begin)
		want := n
		if f.Error != "" {
			want = 0
		} else if f.IDPrefix != "" {
			want = 500
		}
		if seen != want {
			t.Errorf("%s: %d of %d jobs", state, seen, want)
		}
		grown := max(int64(most)-int64(base), 0)
		t.Logf("%s: %d jobs in %v, the heap grew by %d KiB at most", state, seen, took.Round(time.Millisecond), grown>>10)
		if grown > 8<<20 {
			t.Errorf("%s: the heap grew by %d KiB", state, grown>>10)
		}
	}
	retried, reports, begin := inspect.Filter{State: signalbox.StateDead, Error: "broken pipe"}, 0, time.Now()
	base, most := heap(), uint64(0)
	done, err := s.ins.DoAll(t.Context(), s.Name(), retried, inspect.Retry{}, inspect.Bulk{Progress: func(p inspect.BulkCounts) {
		if reports++; p.Done >= int64(n/10) && most == 0 || p.Done == int64(n) {
			most = max(most, heap())
		}
	}})
	all := int64(n)
	if want := (inspect.BulkCounts{Seen: all, Matched: all, Done: all}); err != nil || done != want {
		t.Errorf("retried: %+v, %v; want %+v", done, err, want)
	}
	grown := max(int64(most)-int64(base), 0)
	t.Logf("retried: %d jobs in %v, with %d reports, the heap grew by %d KiB at most", done.Done, time.Since(begin).Round(time.Millisecond), reports, grown>>10)
	if grown > 8<<20 || reports < 2 {
		t.Errorf("retried: the heap grew by %d KiB, and there were %d reports", grown>>10, reports)
	}
	stats := rdb.InfoMap(t.Context(), "commandstats").Val()
	t.Logf("a call of a script took Redis, on average: %s", stats["Commandstats"]["cmdstat_evalsha"])
	slow, err := rdb.SlowLogGet(t.Context(), 10).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	t.Logf("%d calls took Redis more than 5 ms", len(slow))
	for _, call := range slow {
		t.Logf("%v: %s", call.Duration, strings.Join(call.Args[:min(len(call.Args), 2)], " "))
	}
}

// heap returns how many bytes of the heap are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
