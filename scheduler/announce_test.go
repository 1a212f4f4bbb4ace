package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

func heard(t *testing.T, f *fakeServer, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := f.heard(); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

// TestAnnounce: a process describes its entries when it begins with them, and says once a minute that it has them. It describes those
// again that Redis lacks.
func TestAnnounce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "a", "@daily", "q")
		p.cron(t, "b", "@daily", "q")
		time.Sleep(30 * time.Second)
		if got := strings.Join(f.heard(), " "); strings.ReplaceAll(got, " announce", "") != "announce a b" { // in one call or two
			t.Errorf("heard %q", got)
		}
		p.cron(t, "c", "@daily", "q")
		time.Sleep(5 * time.Second)
		heard(t, f, "announce c")
		time.Sleep(store.NoticeEvery)
		heard(t, f, "remind a b c")
		f.set(func() { f.lacks["b"] = true })
		time.Sleep(store.NoticeEvery)
		heard(t, f, "remind a b c", "announce b")
		time.Sleep(store.NoticeEvery)
		heard(t, f, "remind a b c")
		want(t, p, "level=", 0)
	})
}

// TestAnnounceInParts: a call has a bounded number of entries, and of bytes.
func TestAnnounceInParts(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		many, large := newFakeServer(), newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"many": many, "large": large})
		for i := range 2*store.MaxNotices + 1 {
			p.cron(t, fmt.Sprint("e", i), "@daily", "many")
		}
		for i := range 3 {
			if err := p.Cron(fmt.Sprint("l", i), "@daily", text(strings.Repeat("x", bytesPerCall/2)), Queue("large")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		for name, f := range map[string]*fakeServer{"many": many, "large": large} {
			entries, most := 0, 0
			for _, told := range f.heard() {
				n := strings.Count(told, " ")
				entries, most = entries+n, max(most, n)
			}
			switch {
			case name == "many" && (entries != 2*store.MaxNotices+1 || most > store.MaxNotices):
				t.Errorf("%d entries were announced, up to %d in a call", entries, most)
			case name == "large" && (entries != 3 || most != 1):
				t.Errorf("%d large entries were announced, up to %d in a call", entries, most)
			}
		}
	})
}

// TestAnnounceFails: if entries can't be described, the log says so once, they are described later, and ticks go on meanwhile.
func TestAnnounceFails(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.noted = replyError("WRONGTYPE Operation against a key holding the wrong kind of value") // set before the process begins
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(2*time.Minute + time.Second/2)
		gapless(t, f.ticks(), 120)
		want(t, p, "could not be described", 1)
		want(t, p, "level=", 1)
		f.set(func() { f.noted = errors.New("connection refused") })
		time.Sleep(time.Minute)
		f.set(func() { f.noted = nil })
		time.Sleep(noticeAgain + time.Second)
		heard(t, f, "announce e", "remind e") // a round was due meanwhile
		f.set(func() { f.noted = errors.New("connection refused") })
		time.Sleep(2 * time.Minute)
		want(t, p, "could not be described", 1)
		f.set(func() { f.noted = nil })
		time.Sleep(noticeAgain + time.Second)
		heard(t, f, "remind e")
	})
}

// TestAnnounceTimesOut: that the calls about entries get no reply is in the log, also if they failed in another way before.
func TestAnnounceTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.noted = errors.New("connection refused") // set before the process begins
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(time.Minute)
		want(t, p, "could not be described", 0)
		f.set(func() { f.noted = context.DeadlineExceeded })
		time.Sleep(time.Minute)
		want(t, p, "could not be described", 1)
	})
}

// TestAnnounceFailsBesideReminders: while one entry can't be described, the process goes on to say that it has the others.
func TestAnnounceFailsBesideReminders(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "a", "@daily", "q")
		time.Sleep(10 * time.Second)
		heard(t, f, "announce a")
		f.set(func() { f.indescribable = "bad" })
		p.cron(t, "bad", "@daily", "q")
		time.Sleep(3*store.NoticeEvery + 10*time.Second)
		heard(t, f, "remind a bad", "remind a bad", "remind a bad")
		want(t, p, "could not be described", 1)
		f.set(func() { f.indescribable = "" })
		time.Sleep(2 * noticeAgain)
		heard(t, f, "announce bad")
	})
}

// TestPausedTicks: while an entry is paused its ticks pass, in each process. One process counts each of them. They don't count as
// missed, also not for a process that starts later.
func TestPausedTicks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		config, _ := traced(t)
		reader := measured(t, &config)
		var ps []*process
		start := func(ctx context.Context) {
			p := startFakeWith(t, ctx, map[string]*fakeServer{"q": f}, time.Now, config)
			p.cron(t, "e", "@every 1s", "q")
			p.cron(t, "other", "@every 1s", "q")
			ps = append(ps, p)
		}
		first, stop := context.WithCancel(ctx)
		start(first)
		start(ctx)
		time.Sleep(10*time.Second + time.Second/2)
		f.set(func() { f.paused["e"] = true })
		time.Sleep(20 * time.Second)
		stop()
		time.Sleep(20 * time.Second)
		start(ctx)
		time.Sleep(20 * time.Second)
		f.set(func() { f.paused["e"] = false })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		ticks := f.of("e")
		if len(ticks) != 20 || ticks[10].Sub(ticks[9]) != 61*time.Second {
			t.Errorf("ticks: %v", ticks)
		}
		gapless(t, f.of("other"), 80)
		if got := reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome"); got["paused"] != 60 || got["missed"] != 0 || got["fired"] != 100 {
			t.Errorf("counted %v", got)
		}
		paused, resumed := 0, 0
		for _, p := range ps {
			want(t, p, "level=WARN", 0)
			paused += strings.Count(p.log.String(), "the entry is paused;")
			resumed += strings.Count(p.log.String(), "the entry is paused no more")
			if n := strings.Count(p.log.String(), "the entry is paused;"); n > 1 {
				t.Errorf("a process says %d times that the entry is paused", n)
			}
		}
		if paused == 0 || resumed == 0 {
			t.Errorf("%d processes say that the entry is paused, and %d that it is so no more", paused, resumed)
		}
	})
}

// TestPauseOnRedis: three schedulers run an entry, which is paused and resumed. Meanwhile one of them ends and another begins. No job
// is enqueued between the pause and the end of the pause, and the ticks in between are not made up for.
func TestPauseOnRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	q := checked(t, rdb)
	start := func() (stop func()) {
		s := newScheduler(t, rdb)
		if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
		stop = run(t, s)
		t.Cleanup(stop)
		return stop
	}
	last := func() time.Time {
		t.Helper()
		us, err := rdb.HGet(ctx, "signalbox:{default:"+q.Name()+"}:cron", "e").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		return time.UnixMicro(us)
	}
	passes := func(n int) {
		t.Helper()
		for range n {
			before := last()
			redistest.Eventually(t, func() bool { return last().After(before) }, "a tick passes after %v", before)
		}
	}
	verdict := func(got store.Verdict, err error) {
		t.Helper()
		if got != store.EntryChanged || err != nil {
			t.Fatal(got, err)
		}
	}
	now := func() time.Time {
		t.Helper()
		now, err := q.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	stop := start()
	start()
	start()
	passes(1)
	verdict(q.Cron().PauseEntry(ctx, "e"))
	paused := now()
	passes(1)
	stop()
	start()
	passes(2)
	passed, resumed := last(), now()
	verdict(q.Cron().ResumeEntry(ctx, "e"))
	passes(2)
	before, after := 0, 0
	for _, job := range claimAll(t, q) {
		switch {
		case !job.EnqueuedAt.After(paused): // the clock of the embedded Redis stands still for some ms: both may be at one time
			before++
		case job.EnqueuedAt.Before(resumed) || !job.ScheduledAt.After(passed):
			t.Errorf("the tick %v was enqueued at %v; the entry was paused at %v and resumed at %v", job.ScheduledAt, job.EnqueuedAt, paused, resumed)
		default:
			after++
		}
	}
	if before == 0 || after == 0 {
		t.Errorf("%d jobs before the pause, %d after it", before, after)
	}
}

// TestEntriesAreDescribed: Redis has what the entry says, its options included. Where a codec binds the arguments to the job, the job
// is left out.
func TestEntriesAreDescribed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, sealed := range []bool{false, true} {
		q := checked(t, rdb)
		s, err := New(rdb, Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if sealed {
			s.codec = &boundCodec{}
		}
		for name, opts := range map[string][]CronOption{"plain": nil, "berlin": {In(berlin), MaxAttempts(3), Header("tenant", "acme"), Retain(time.Hour), Serial("a")}} {
			if err := s.Cron(name, "0 9 * * *", note{7}, append(opts, Queue(q.Name()))...); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Cron("zoned", "CRON_TZ=Asia/Tokyo @daily", note{}, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
		stop := run(t, s)
		var entries []store.Entry
		redistest.Eventually(t, func() bool {
			entries, err = q.Cron().Entries(ctx, []string{"berlin", "plain", "zoned"})
			return err == nil && len(entries) == 3
		}, "the entries are described")
		stop()
		for i, want := range []store.Entry{
			{Name: "berlin", Kind: "note", Spec: "0 9 * * *", Zone: "Europe/Berlin", Missed: "default"},
			{Name: "plain", Kind: "note", Spec: "0 9 * * *", Zone: "UTC", Missed: "default"},
			{Name: "zoned", Kind: "note", Spec: "CRON_TZ=Asia/Tokyo @daily", Zone: "Asia/Tokyo", Missed: "default"},
		} {
			if want.Seen = entries[i].Seen; entries[i] != want {
				t.Errorf("got %+v, want %+v", entries[i], want)
			}
		}
		known, err := q.Cron().RunEntry(ctx, "berlin", "now")
		if sealed {
			if !errors.Is(err, store.ErrSealed) {
				t.Errorf("known %v, %v", known, err)
			}
			continue
		}
		if !known || err != nil {
			t.Fatalf("known %v, %v", known, err)
		}
		jobs := claimAll(t, q)
		if len(jobs) != 1 || string(jobs[0].Payload) != `{"N":7}` || jobs[0].MaxAttempts != 3 || jobs[0].Headers["tenant"] != "acme" || jobs[0].Effect != "" || jobs[0].Retain != time.Hour || jobs[0].Group != "a" || !jobs[0].Serial {
			t.Errorf("jobs %+v", jobs)
		}
	}
}
