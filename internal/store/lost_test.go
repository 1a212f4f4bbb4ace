package store

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A scenario is a sequence of calls. It records what the callers learn, except what differs when a reply is lost on the way.
type scenario func(r *rig, now time.Time, note func(format string, args ...any))

var scenarios = map[string]scenario{
	"Jobs":    everyTransition,
	"Cron":    ticks,
	"Crashes": crashes,
	"Chunks":  chunks,
	"Close":   closing,
	"Sweep":   sweeping,
}

func everyTransition(r *rig, _ time.Time, note func(string, ...any)) {
	r.open()
	note("new %v", r.put("a", "b", "c", "d", "e", "f", "g", "b"))
	note("new %v", r.enqueued(r.item("h", When{}, signalbox.PriorityHigh), r.item("due", When{After: time.Hour}, 0), r.item("a", When{}, 0)))
	got := r.claim(7)
	note("claimed %v", ids(got))
	stale := settlement(got[6], Dead)
	stale.Token--
	var all []Settlement
	for i, o := range outcomes {
		s := settlement(got[i], o)
		s.Delay = 2 * time.Hour
		all = append(all, s)
	}
	var err error
	all[1].Record, err = got[1].Failed(1, "boom")
	r.must(err)
	reply := r.call(ClaimRequest{Settle: append(all, stale), Want: 2})
	note("refused %v, claimed %v", reply.Refused, ids(reply.Deliveries))
	r.renewed()
	for _, o := range outcomes { // each one alone
		r.put("x")
		for _, d := range r.claim(1) {
			note("%s of %s, refused %v", o, d.Job.ID, r.settle(settlement(d, o)))
		}
	}
}

func ticks(r *rig, now time.Time, note func(string, ...any)) {
	for i, at := range []time.Duration{-20 * time.Millisecond, -10 * time.Millisecond, -10 * time.Millisecond, -20 * time.Millisecond, time.Hour} {
		r.producer.Next()
		tick := now.Add(at)
		fates, err := r.Cron().EnqueueTicks(bg, r.producer, []Item{r.item(fmt.Sprint("t", i), When{At: tick, Entry: "entry"}, 0)}, Reckoning{})
		r.must(err)
		note("tick %d: %c", i, fates.Of(0))
	}
}

func crashes(r *rig, _ time.Time, note func(string, ...any)) {
	r.put("a", "b")
	for i := range CrashLimit + 2 {
		r.session = fmt.Sprint("crash", i)
		r.open()
		note("claimed %v", ids(r.claim(5)))
		r.expire()
		r.reclaim(r.session)
	}
}

func chunks(r *rig, _ time.Time, note func(string, ...any)) {
	r.open()
	r.put(numbered("j", 700)...)
	note("claimed %v", ids(r.claim(MaxBatch)))
	r.expire()
	for r.reclaim(r.session).Left > 0 {
	}
	r.session = "s2"
	r.open()
	note("claimed %v", ids(r.claim(MaxBatch)))
}

func closing(r *rig, _ time.Time, note func(string, ...any)) {
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	for range 2 {
		left, err := r.Sessions().Close(bg, r.session, false, r.lane)
		r.must(err)
		note("left %d", left)
		r.settle(settlement(d, Completed))
	}
	left, err := r.Sessions().Close(bg, r.session, false, r.lane)
	r.must(err)
	note("left %d", left)
}

func sweeping(r *rig, _ time.Time, _ func(string, ...any)) {
	r.open()
	r.bury(Dead, "a", "b")
	r.bury(Cancelled, "c", "d")
	r.age(r.keys.Dead, "a", 31*24*time.Hour)
	r.age(r.keys.Cancelled, "c", 31*24*time.Hour)
	r.sweep()
}

// TestLostReplies lets call k through and cuts its reply, for every k of every scenario. The client repeats the call, and the result is
// the same as if nothing had been lost. It does the same with a call that is lost itself.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, s := range []*scripts.Script{scripts.Enqueue, scripts.Claim, scripts.Renew, scripts.Reclaim, scripts.Close, scripts.Sweep} {
		if err := s.Lua().Load(bg, rdb).Err(); err != nil {
			t.Fatal(err) // so that each call is one command
		}
	}
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := play(t, run, nil)
			if want.calls == 0 {
				t.Fatal("the scenario makes no calls")
			}
			for k := 1; k <= want.calls; k++ {
				for what, cut := range map[string]cutter{
					"reply": (*redistest.Proxy).CutReply, "request": (*redistest.Proxy).CutRequest,
				} {
					what = fmt.Sprintf("the %s of call %d is lost", what, k)
					got := play(t, run, func(p *redistest.Proxy, calls match) <-chan struct{} { return cut(p, calls, k) })
					if !got.fired {
						if got.calls >= k {
							t.Errorf("%s: it was not", what)
						}
						continue
					}
					for _, d := range differences(want.state, got.state) {
						t.Errorf("%s: the end differs in %s", what, d)
					}
					equal(t, what, got.notes, want.notes)
				}
			}
		})
	}
}

type (
	match  = func(cmd []string) bool
	cutter = func(p *redistest.Proxy, calls match, k int) <-chan struct{}
)

// A performance is the result of a scenario.
type performance struct {
	notes []string
	state map[string]string
	calls int
	fired bool // a call was cut
}

// play runs a scenario through a proxy, on its own queue.
func play(t *testing.T, run scenario, cut func(p *redistest.Proxy, calls match) <-chan struct{}) (p performance) {
	t.Helper()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	r := newQueue(t, proxy.Client())
	r.producer, r.lane = &Lane{key: r.keys.Lane("producer")}, &Lane{key: r.keys.Lane("worker")}
	calls := redistest.Command("EVALSHA")
	var fired <-chan struct{}
	if cut != nil {
		fired = cut(proxy, calls)
	}
	now, err := r.Now(bg)
	r.must(err)
	run(r, now, func(format string, args ...any) { p.notes = append(p.notes, fmt.Sprintf(format, args...)) })
	select {
	case <-fired:
		p.fired = true
	default:
	}
	p.calls = proxy.Count(calls)
	p.state = r.normalised(now)
	return p
}

// normalised returns dump without the parts that depend on the time of day and on the speed of the test. Times become minutes since the
// start. Tokens become their ranks.
func (r *rig) normalised(start time.Time) map[string]string {
	r.t.Helper()
	s, err := check.Read(bg, r.Site())
	r.must(err)
	out := r.dump()
	minutes := func(us int64) string {
		return fmt.Sprintf("%+d min", time.UnixMicro(us).Sub(start).Round(time.Minute)/time.Minute)
	}
	scores := func(zs []redis.Z) string {
		m := map[string]string{}
		for _, z := range zs {
			m[z.Member.(string)] = minutes(int64(z.Score))
		}
		return fmt.Sprint(m)
	}
	for name, zs := range map[string][]redis.Z{"due": s.Due, "dead": s.Ended[signalbox.StateDead], "cancelled": s.Ended[signalbox.StateCancelled], "sessions": s.Sessions} {
		if _, ok := out[name]; ok {
			out[name] = scores(zs)
		}
	}
	if len(s.Jobs) > 0 {
		jobs := map[string]string{}
		for id, record := range s.Jobs {
			b := []byte(record)
			jobs[id] = fmt.Sprintf("%x %s %s %s", b[:3], minutes(int64(binary.BigEndian.Uint64(b[4:]))),
				minutes(int64(binary.BigEndian.Uint64(b[12:]))), hex.EncodeToString(b[20:]))
		}
		out["jobs"] = fmt.Sprint(jobs)
	}
	if last := r.rdb.HGet(bg, r.keys.History, "last").Val(); last != "" {
		_, out["history"], _ = strings.Cut(last, " ") // the counters; the names of the other fields are times
	}
	if cron := r.rdb.HGetAll(bg, r.keys.Cron).Val(); len(cron) > 0 {
		for entry, tick := range cron {
			us, err := strconv.ParseInt(tick, 10, 64)
			r.must(err)
			cron[entry] = fmt.Sprint(us - start.UnixMicro())
		}
		out["cron"] = fmt.Sprint(cron)
	}

	// A number that is larger than any count, and isn't one of the times above, is a token.
	tokens := map[int64]bool{}
	texts := map[string][]string{}
	add := func(key string, words ...string) {
		texts[key] = words
		for _, w := range words {
			if n := facts.TokenOf(w); n > 1e12 {
				tokens[n] = true
			}
		}
	}
	for key := range out {
		if kind, id, _ := strings.Cut(key, ":"); kind == "inflight" {
			var words []string
			for _, job := range slices.Sorted(maps.Keys(s.Inflight[id])) {
				words = append(words, job, s.Inflight[id][job])
			}
			add(key, words...)
		} else if kind == "lane" {
			add(key, strings.Split(r.rdb.Get(bg, r.keys.Prefix+key).Val(), " ")...)
		} else if key == "fence" {
			add(key, s.Fence)
		}
	}
	ranks := map[string]string{}
	for i, token := range slices.Sorted(maps.Keys(tokens)) {
		ranks[fmt.Sprint(token)] = fmt.Sprint("#", i)
	}
	for key, words := range texts {
		for i, w := range words {
			digits, flags, _ := strings.Cut(w, " ")
			if rank, ok := ranks[digits]; ok {
				words[i] = rank + flags
			}
		}
		out[key] = fmt.Sprintf("%q", words)
	}
	return out
}
