package main

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A meter is a hook of a client. It makes calls of scripts one after the other, and notes how much processor time the server took for each script. Unlike
// the times of the slow log, these don't count the time in which other processes have the processor.
type meter struct {
	stat  string            // the file with the time of the server's main thread
	names map[string]string // of scripts, by their SHA-1

	mu    sync.Mutex
	phase string
	took  map[[2]string][]time.Duration // by phase and script
}

// newMeter returns a meter of a server whose scripts are loaded, so that no call compiles one.
func newMeter(ctx context.Context, srv *server) (*meter, error) {
	info, err := srv.info(ctx, "server")
	if err != nil {
		return nil, err
	}
	pid := info["process_id"]
	m := &meter{stat: "/proc/" + pid + "/task/" + pid + "/schedstat", names: make(map[string]string), took: make(map[[2]string][]time.Duration)}
	for name, text := range scripts.Sources() {
		sum := sha1.Sum([]byte(text))
		m.names[hex.EncodeToString(sum[:])] = name
		if err := srv.rdb.ScriptLoad(ctx, text).Err(); err != nil {
			return nil, fmt.Errorf("script %s: %w", name, err)
		}
	}
	_, err = m.used()
	return m, err
}

// used returns how much processor time the server's main thread has used.
func (m *meter) used() (time.Duration, error) {
	text, err := os.ReadFile(m.stat)
	if err != nil {
		return 0, fmt.Errorf("-scale reads /proc, so it needs Linux: %w", err)
	}
	ns, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseInt(ns, 10, 64)
	return time.Duration(n), err
}

func (m *meter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if len(args) < 2 || !strings.HasPrefix(strings.ToUpper(cmd.Name()), "EVAL") {
			return next(ctx, cmd) // perhaps within a script's call, which makes a connection
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		before, err := m.used()
		if err != nil {
			return err
		}
		failed := next(ctx, cmd)
		after, err := m.used()
		k := [2]string{m.phase, m.names[fmt.Sprint(args[1])]}
		m.took[k] = append(m.took[k], after-before)
		return cmp.Or(failed, err)
	}
}

// The jobs' IDs begin with these words, in turn: by that they are found to be cancelled, deleted and moved.
var scaleParts = [10]string{"cancel", "delete", "move", "run", "run", "run", "run", "run", "run", "run"}

// Of more jobs than these no more are listed, acted on in each way, and looked at by the doctor and claimed at the end.
const (
	scaleListed = 200_000
	scaleActed  = 10_000
	scaleAll    = 50_000
)

// scaleOther is the queue that jobs are moved to.
const scaleOther = "other"

// A stage is a queue with n jobs in lines of groups, and what is done to it.
type stage struct {
	ctx     context.Context
	m       *meter
	name    string
	n       int
	lines   int
	most    int // jobs of a claim
	s       *scheduler.Scheduler
	ins     *inspect.Inspector
	q       *store.Queue
	lane    *store.Lane
	session string
	out     io.Writer
}

// scale puts n jobs into one line of a group, and then into n lines, works with both in all ways, and reports how much processor time each script
// took at most, and in the middle.
func scale(ctx context.Context, srv *server, n int, stdout, progress io.Writer) (err error) {
	m, err := newMeter(ctx, srv)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.addr, ReadTimeout: time.Minute})
	defer rdb.Close()
	rdb.AddHook(m)
	s, err := scheduler.New(rdb, scheduler.Config{Logger: silent})
	if err != nil {
		return err
	}
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		return err
	}
	for _, shape := range []struct {
		name  string
		lines int
	}{{"one line", 1}, {"a line each", n}} {
		if err := srv.flush(ctx); err != nil {
			return err
		}
		q := store.New(rdb, "", signalbox.DefaultQueue)
		st := &stage{ctx: ctx, m: m, name: shape.name, n: n, lines: shape.lines, most: max(min(store.MaxSpecial, n/20), 1), s: s, ins: ins, q: q, lane: q.NewLane(), session: store.NewID(), out: progress}
		if err := st.all(); err != nil {
			return fmt.Errorf("%s: %w", shape.name, err)
		}
	}
	return m.table(stdout)
}

// phase does something under a name.
func (st *stage) phase(name string, do func() error) error {
	st.m.mu.Lock()
	st.m.phase = st.name + ": " + name
	st.m.mu.Unlock()
	begin := time.Now()
	err := do()
	fmt.Fprintf(st.out, "%s, %s: %.1f s\n", st.name, name, time.Since(begin).Seconds())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// key returns the key of a line: 200 bytes.
func (st *stage) key(line int) string { return fmt.Sprintf("%0200d", line) }

func (st *stage) all() error {
	if _, _, err := st.q.Sessions().Open(st.ctx, st.session, 10*time.Hour); err != nil {
		return err
	}
	if _, err := st.s.Enqueue(st.ctx, payload, scheduler.Queue(scaleOther)); err != nil { // so that it is known
		return err
	}
	calls := max(min(st.n/20_000, 50), 1) // of a claim, in a phase
	queue := signalbox.DefaultQueue
	ready := inspect.Filter{State: signalbox.StateReady, Limit: scaleListed}
	filter := func(part string) inspect.Filter { f := ready; f.IDPrefix, f.Limit = part, scaleActed; return f }
	doAll := func(f inspect.Filter, a inspect.Action) func() error {
		return func() error {
			p, err := st.ins.DoAll(st.ctx, queue, f, a, inspect.Bulk{})
			if err == nil && (p.Done == 0 || p.Done != p.Matched) {
				err = fmt.Errorf("%+v", p)
			}
			return err
		}
	}
	limits := func(l signalbox.Limits) func() error {
		return func() error { return st.ins.SetGroupLimits(st.ctx, queue, l) }
	}
	for _, p := range []struct {
		name string
		do   func() error
	}{
		{"enqueue", st.enqueue},
		{"look", st.look},
		{"claim 10", func() error { return st.claims(10*calls, 10) }},
		{"claim 100", func() error { return st.claims(2*calls, 100) }},
		{"claim many", func() error { return st.claims(calls, st.most) }},
		{"retry, then claim many", func() error { return st.retries(calls) }},
		{"reclaim", st.reclaim},
		{"limit of 3", limits(signalbox.Limits{Running: 3})},
		{"limit of 3, claim many", func() error { return st.claims(calls, st.most) }},
		{"limit of one group", func() error { return st.ins.SetLimitsOf(st.ctx, queue, st.key(0), signalbox.Limits{Running: 5}) }},
		{"rate of 1 a second", limits(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Second}})},
		{"rate of 1 a second, claim many", func() error { return st.claims(calls, st.most) }},
		{"held back for 1 ms", func() error { return st.holdBack(calls) }},
		{"no limit", func() error {
			return errors.Join(limits(signalbox.Limits{})(), st.ins.SetLimitsOf(st.ctx, queue, st.key(0), signalbox.Limits{}))
		}},
		{"no limit, claim many", func() error { return st.claims(calls, st.most) }},
		{"list", func() error { return st.list(ready) }},
		{"cancel 10,000", doAll(filter("cancel"), inspect.Cancel{})},
		{"delete 10,000", doAll(filter("delete"), inspect.Delete{})},
		{"move 10,000", doAll(filter("move"), inspect.Move{To: scaleOther})},
		{"doctor", st.doctor},
		{"claim the rest", func() error { return st.claims(2*min(st.n, scaleAll)/st.most+10, st.most) }},
	} {
		if err := st.phase(p.name, p.do); err != nil {
			return err
		}
	}
	return st.empty()
}

// doctor looks at all that is there. It takes too long for very many jobs.
func (st *stage) doctor() error {
	if st.n > scaleAll {
		return nil
	}
	_, err := st.ins.Doctor(st.ctx, signalbox.DefaultQueue, inspect.Checkup{Pause: -1})
	return err
}

// empty fails if a job is left, unless there were too many to claim all.
func (st *stage) empty() error {
	if st.n > scaleAll {
		return nil
	}
	q, err := st.ins.Queue(st.ctx, signalbox.DefaultQueue)
	if err == nil && q.Ready+q.Running+q.Scheduled > 0 {
		err = fmt.Errorf("jobs are left: %d ready, %d running, %d scheduled", q.Ready, q.Running, q.Scheduled)
	}
	return err
}

func (st *stage) enqueue() error {
	items := func(yield func(scheduler.Item) bool) {
		for i := range st.n {
			id := fmt.Sprintf("%s-%09d", scaleParts[i%len(scaleParts)], i)
			if !yield(scheduler.Item{Args: payload, Options: []scheduler.EnqueueOption{scheduler.ID(id), scheduler.Group(st.key(i % st.lines))}}) {
				return
			}
		}
	}
	for i, r := range st.s.EnqueueSeq(st.ctx, items) {
		if r.Err != nil || !r.New {
			return fmt.Errorf("job %d: %+v", i, r)
		}
	}
	return nil
}

func (st *stage) look() error {
	for i := range 20 {
		if _, err := st.ins.Queue(st.ctx, signalbox.DefaultQueue); err != nil {
			return err
		}
		id := fmt.Sprintf("%s-%09d", scaleParts[0], i*st.n/20/len(scaleParts)*len(scaleParts))
		if _, err := st.ins.Job(st.ctx, signalbox.DefaultQueue, id); err != nil {
			return err
		}
	}
	return nil
}

func (st *stage) list(f inspect.Filter) error {
	for _, err := range st.ins.Jobs(st.ctx, signalbox.DefaultQueue, f) {
		if err != nil {
			return err
		}
	}
	return nil
}

// claim makes one claim.
func (st *stage) claim(session string, lane *store.Lane, want int, settle []store.Settlement) ([]store.Delivery, error) {
	lane.Next()
	reply, err := st.q.Sessions().Claim(st.ctx, lane, &store.ClaimRequest{Session: session, Settle: settle, Want: want})
	if err != nil {
		return nil, err
	}
	if !reply.Alive || len(reply.Refused) > 0 {
		return nil, fmt.Errorf("alive %v, refused %v", reply.Alive, reply.Refused)
	}
	return reply.Deliveries, nil
}

// settlements ends deliveries.
func settlements(deliveries []store.Delivery, outcome store.Outcome) []store.Settlement {
	settle := make([]store.Settlement, len(deliveries))
	for i, d := range deliveries {
		settle[i] = store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: outcome, Size: d.Size(), Delay: time.Millisecond}
	}
	return settle
}

// claims makes so many claims, each of which completes the jobs of the one before. It ends earlier when nothing is left.
func (st *stage) claims(calls, want int) error {
	var settle []store.Settlement
	for range calls {
		got, err := st.claim(st.session, st.lane, want, settle)
		if err != nil {
			return err
		}
		if len(got) == 0 && len(settle) == 0 {
			return nil
		}
		settle = settlements(got, store.Completed)
	}
	_, err := st.claim(st.session, st.lane, 0, settle)
	return err
}

// retries puts jobs off, so that they come into their lines again, and claims others.
func (st *stage) retries(calls int) error {
	for range calls {
		got, err := st.claim(st.session, st.lane, st.most, nil)
		for len(got) > 0 && err == nil {
			settle := settlements(got, store.Retry)
			fit := store.Fit(settle)
			_, err = st.claim(st.session, st.lane, 0, settle[:fit])
			got = got[fit:]
		}
		if err != nil {
			return err
		}
	}
	return st.claims(2*calls, st.most)
}

// reclaim takes back the jobs of a session that is over.
func (st *stage) reclaim() error {
	session, lane := store.NewID(), st.q.NewLane()
	if _, _, err := st.q.Sessions().Open(st.ctx, session, 10*time.Hour); err != nil {
		return err
	}
	if _, err := st.claim(session, lane, st.most, nil); err != nil {
		return err
	}
	if _, _, err := st.q.Sessions().Open(st.ctx, session, time.Millisecond); err != nil {
		return err
	}
	select {
	case <-time.After(20 * time.Millisecond):
	case <-st.ctx.Done():
		return st.ctx.Err()
	}
	for r := st.q.Sessions().Reclaim(session, false); ; {
		res, err := r.Next(st.ctx)
		if err != nil || res.Done {
			return err
		}
	}
}

func (st *stage) holdBack(calls int) error {
	for i := range calls {
		if _, err := st.ins.HoldBack(st.ctx, signalbox.DefaultQueue, st.key(i%st.lines), time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// table writes how long each script took in each phase, in the order of the phases' longest.
func (m *meter) table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "phase\tscript\tcalls\tmedian ms\tp99 ms\tlongest ms\t")
	byLongest := func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(slices.Max(m.took[b]), slices.Max(m.took[a])), slices.Compare(a[:], b[:]))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.took), byLongest) {
		ms := make([]float64, len(m.took[k]))
		for i, d := range m.took[k] {
			ms[i] = float64(d) / float64(time.Millisecond)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", k[0], k[1], len(ms), quantile(ms, 0.5), quantile(ms, 0.99), quantile(ms, 1))
	}
	return errors.Join(tw.Flush())
}
