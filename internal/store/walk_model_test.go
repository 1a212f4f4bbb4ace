package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A model is what a queue must have, as the walk knows it from its calls alone. The walk predicts with it what each call answers and changes. It
// adopts from Redis only what it can't know: the places that an enqueue gives in lines, and what became of jobs that somebody acted on or moved.
type model struct {
	jobs     map[string]*fact
	sessions map[string]bool    // whether each registered session is alive
	lanes    map[string]*answer // by the lane's key
	paused   bool
	trims    bool                        // the queue drops completed jobs beyond a number
	most     int                         // how many jobs that haven't ended the queue may have; 0: any number
	queue    signalbox.Limits            // of the queue
	groups   signalbox.Limits            // of groups without limits of their own
	own      map[string]signalbox.Limits // of groups, by key
	next     map[string]float64          // by key, "" for the queue: when the next job would start if jobs started evenly, in us
	stopped  map[string]bool             // groups that are paused, by key
	off      map[string]putOff           // by key: for the rate, as it was last noted
	awaits   map[string]putOff           // by key: for the end of the pause
	held     map[string]int64            // by key, "" for the queue: until when its jobs are held back, in us
	ahead    int64                       // by how much the clock of limits, which next and held go by, is ahead of Redis' clock, in us
	blur     float64                     // how much longer than its rate asks for a line may wait since Redis' clock went back, as that clock is noted each 100 ms; in us
	marks    map[string]int64            // by cron entry: its last tick, in us
	ticks    map[string][]string         // by cron entry: its newest jobs that were live when the last was put in, the newest first
}

// An answer is what the last call of a lane was answered.
type answer struct {
	seq     int64
	fates   string        // of an enqueue
	full    Length        // what it said of a queue that is full
	granted []facts.Grant // by a claim
	forgot  bool          // a claim found that Redis had forgotten one
}

// A fact is what the model knows of one job.
type fact struct {
	where   string // "ready", "lined", "due", "running", or a terminal state
	key     string // of its group
	class   byte
	crashes int
	// survived is how many deliveries in a row have ended by themselves since the last crash. ran is how long the job had run at the last crash that
	// counted, in milliseconds; 0 if that isn't known, or if a later one did not count.
	survived, ran int64
	us            int64         // when it is, or was, due
	own           time.Duration // how long its record says that it is kept
	end           int64         // its deadline in us, if it hasn't started; 0: it has none, or it has started
	life          time.Duration // how long after it is due the job expires if it hasn't started; 0: never, or it has started
	holds         bool          // its group
	yields        bool          // it leaves its serial group while it waits for a retry
	session       string        // in which it runs
	token         int64
	marked        bool // it was cancelled while it runs
}

// A putOff is what was noted of a job that was put off since the rate of its serial group allows none yet, or since that group is paused.
type putOff struct {
	id string
	us int64 // when it is due
}

func newModel() *model {
	return &model{
		jobs: make(map[string]*fact), sessions: make(map[string]bool), lanes: make(map[string]*answer), own: make(map[string]signalbox.Limits),
		next: make(map[string]float64), stopped: make(map[string]bool), held: make(map[string]int64), marks: make(map[string]int64), ticks: make(map[string][]string),
		off: make(map[string]putOff), awaits: make(map[string]putOff),
	}
}

// clone returns a copy. Answers and lists are replaced, never changed.
func (m *model) clone() *model {
	c := *m
	c.stopped, c.off, c.awaits = maps.Clone(m.stopped), maps.Clone(m.off), maps.Clone(m.awaits)
	c.sessions, c.lanes, c.own, c.next, c.held, c.marks, c.ticks = maps.Clone(m.sessions), maps.Clone(m.lanes), maps.Clone(m.own), maps.Clone(m.next), maps.Clone(m.held), maps.Clone(m.marks), maps.Clone(m.ticks)
	c.jobs = make(map[string]*fact, len(m.jobs))
	for id, f := range m.jobs {
		other := *f
		c.jobs[id] = &other
	}
	return &c
}

// waits returns the class of the list in which the job waits, or would.
func (f *fact) waits() string {
	if f.crashes >= SuspectAt {
		return "s"
	}
	return string(f.class)
}

// text says where a job is, as view does.
func (f *fact) text(id string) string {
	switch f.where {
	case "ready":
		return "ready " + f.waits()
	case "lined":
		return "lined " + f.member(id)
	case "due":
		class := f.waits()
		if f.key != "" && !f.holds {
			class = string(f.class - '0' + 'a')
		}
		return fmt.Sprintf("due %s %d", class, f.us)
	case "running":
		return fmt.Sprintf("running %s %d %v %s", f.session, f.token, f.marked, f.key)
	}
	return f.where
}

// member is that of the lines.
func (f *fact) member(id string) string {
	return fmt.Sprintf("%c%s\x01%016d%s", f.class, f.key, f.us, id)
}

func (f *fact) ended() bool {
	return f.where == string(Dead) || f.where == string(Cancelled) || f.where == string(Completed)
}

// end has a job end. deleted says that nothing is kept of it in any case.
func (m *model) end(id string, as Outcome, deleted bool) {
	f := m.jobs[id]
	if deleted || f.own == signalbox.RetainNone {
		delete(m.jobs, id)
		return
	}
	f.where, f.holds, f.marked = string(as), false, false
}

// settle does what a settlement of a session does. It reports whether the settlement is accepted.
func (m *model) settle(session string, s *Settlement, now int64) (accepted bool) {
	f := m.jobs[s.ID]
	if f == nil || f.where != "running" || f.session != session || f.token != s.Token {
		return false
	}
	switch {
	case f.marked:
		m.end(s.ID, Cancelled, false)
	case s.Outcome == Completed:
		m.end(s.ID, Completed, s.Keep == nil || !m.trims && f.own == 0)
	case s.Outcome == Dead || s.Outcome == Cancelled:
		m.end(s.ID, s.Outcome, false)
	case s.Outcome == Return:
		f.where = "ready"
	default:
		if s.Survived && f.crashes > 0 {
			if f.survived++; f.survived == SurvivedAt {
				f.crashes, f.survived, f.ran = 0, 0, 0
			}
		}
		f.where, f.us = "due", now+s.Delay.Microseconds()
		f.holds = f.key != "" && (f.key[0] == 's' && !f.yields || f.crashes >= SuspectAt)
	}
	return true
}

// promote has jobs wait whose time has come.
func (m *model) promote(now int64) {
	for _, f := range m.jobs {
		if f.where == "due" && f.us <= now {
			f.where = "ready"
			if f.key != "" && !f.holds {
				f.where = "lined"
			}
		}
	}
}

// walkTTL is how long the sessions of a walk's workers live from each renewal, as those believe who take their jobs back.
const walkTTL = 120 * time.Millisecond

// crash has a job crash. Its process died from earliest to latest.
func (f *fact) crash(earliest, latest int64) {
	apart := Apart(walkTTL).Microseconds()
	least, most := max(earliest-f.token, 0), max(latest-f.token, 0)
	f.survived = 0
	if ran := 1000 * f.ran; f.crashes >= SuspectAt && ran > 0 && (least >= ran || most < ran-apart) {
		f.ran = 0
		return
	}
	f.crashes, f.ran = f.crashes+1, max(most, apart)/1000
}

// takeBack does what a reclaim of the session does, which expired at a time. It returns the jobs that run again, those that are dead, and those that were cancelled.
func (m *model) takeBack(session string, expired int64) (again, dead, cancelled []string) {
	earliest := expired - walkTTL.Microseconds()
	latest := earliest + Apart(walkTTL).Microseconds()
	for _, f := range m.jobs {
		if f.where == "running" && f.session == session {
			earliest = max(earliest, f.token)
		}
	}
	latest = max(latest, earliest)
	for id, f := range m.jobs {
		if f.where != "running" || f.session != session {
			continue
		}
		if f.marked {
			m.end(id, Cancelled, false)
			cancelled = append(cancelled, id)
			continue
		}
		if f.crash(earliest, latest); f.crashes >= CrashLimit {
			m.end(id, Dead, false)
			dead = append(dead, id)
		} else {
			f.where = "ready"
			again = append(again, id)
		}
	}
	delete(m.sessions, session)
	slices.Sort(again)
	slices.Sort(dead)
	slices.Sort(cancelled)
	return again, dead, cancelled
}

// holders returns how many jobs hold a group, running how many run in the queue.
func (m *model) holders(key string) (n int) {
	for _, f := range m.jobs {
		if f.holds && f.key == key {
			n++
		}
	}
	return n
}

// runningOf returns how many jobs of a group run, excess by how many more hold it than may, since its limit was lowered.
func (m *model) runningOf(key string) (n int) {
	for _, f := range m.jobs {
		if f.where == "running" && f.key == key {
			n++
		}
	}
	return n
}

func (m *model) excess(key string) int {
	most := m.limits(key).Running
	if most == 0 || key[0] == 's' {
		return 0
	}
	return max(m.holders(key)-most, 0)
}

func (m *model) running() (n int) {
	for _, f := range m.jobs {
		if f.where == "running" {
			n++
		}
	}
	return n
}

// limits returns those of a group, or of the queue for "".
func (m *model) limits(key string) signalbox.Limits {
	if key == "" {
		return m.queue
	}
	own, l := m.own["g"+key[1:]], m.groups // own: also those of the serial group of that name
	if key == "g"+wire.Unstarted {         // that is of jobs without a group
		l = signalbox.Limits{}
	}
	if own.Running != 0 {
		l.Running = max(own.Running, 0)
	}
	if own.Rate.Jobs != 0 {
		l.Rate = own.Rate
	}
	l.Rate.Jobs = max(l.Rate.Jobs, 0)
	if key[0] == 's' {
		l.Running = 1
	}
	return l
}

// The clock of the server is known to this exactly when a call began, in us.
const walkSlack = 100

// early returns how long it is until a job of the group may start by its rate, and until it isn't held back, in us. It is negative if it has been so for that long.
func (m *model) early(key string, now int64) float64 {
	wait := m.unpaid(key, now)
	if until, held := m.held[key]; held {
		wait = max(wait, float64(until-now-m.ahead))
	}
	return wait
}

// unpaid returns how long it is until a job may start by the rate alone.
func (m *model) unpaid(key string, now int64) float64 {
	wait := math.Inf(-1)
	if r := m.limits(key).Rate; r.Jobs > 0 {
		step := float64(r.Per.Microseconds()) / float64(r.Jobs)
		wait = m.due(key, now) - step*float64(r.Burst-1)
	}
	return wait
}

// due returns how long it is until the next job would start if jobs started evenly.
func (m *model) due(key string, now int64) float64 {
	at, started := m.next[key]
	if !started {
		return 0
	}
	return max(at-float64(now+m.ahead), 0)
}

// longest returns how long that can be at most, by the rate of the group. ok is false if it has none.
func (m *model) longest(key string) (us float64, ok bool) {
	r := m.limits(key).Rate
	if r.Jobs == 0 {
		return 0, false
	}
	return math.Ceil(float64(r.Burst) * float64(r.Per.Microseconds()) / float64(r.Jobs)), true
}

// started notes that a job has started.
func (m *model) started(key string, now int64) {
	if r := m.limits(key).Rate; r.Jobs > 0 {
		m.next[key] = float64(now+m.ahead) + m.due(key, now) + float64(r.Per.Microseconds())/float64(r.Jobs)
	}
}

// late returns the jobs that wait for the rates of their serial groups, and when they are due. One that has been put off for something else since isn't one of them.
func (m *model) late() map[string]int64 {
	late := make(map[string]int64)
	for key, off := range m.off {
		if m.isPutOff(key, off) {
			late[off.id] = off.us
		}
	}
	return late
}

// isPutOff reports whether the job still waits for what it was put off for.
func (m *model) isPutOff(key string, off putOff) bool {
	f := m.jobs[off.id]
	return f != nil && f.where == "due" && f.holds && f.key == key && f.us == off.us
}

// line returns the jobs of a line in order.
func (m *model) line(class byte, key string) (ids []string) {
	for id, f := range m.jobs {
		if f.where == "lined" && f.class == class && f.key == key {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(m.jobs[a].member(a), m.jobs[b].member(b)) })
	return ids
}

// idle returns a job that a claim with a free slot should have got, and why; "" if there is none.
func (m *model) idle(now int64) string {
	if m.paused || m.early("", now) > -walkSlack || m.queue.Running > 0 && m.running() >= m.queue.Running {
		return ""
	}
	for id, f := range m.jobs {
		switch {
		case m.stopped[f.key]:
		case f.where == "ready" && f.crashes < SuspectAt && (f.key == "" || m.unpaid(f.key, now) <= -walkSlack && m.excess(f.key) == 0):
			return id + " is ready"
		case f.where == "lined" && m.early(f.key, now) <= -walkSlack-m.blur:
			if most := m.limits(f.key).Running; most == 0 || m.holders(f.key) < most {
				return fmt.Sprintf("%s waits in the line %c%s, which may go on", id, f.class, f.key)
			}
		}
	}
	return ""
}

// waiting reports whether a job is ready or waits in a line, overdue whether one is due.
func (m *model) waiting() bool {
	for _, f := range m.jobs {
		if f.where == "ready" || f.where == "lined" {
			return true
		}
	}
	return false
}

func (m *model) overdue(now int64) bool {
	for _, f := range m.jobs {
		if f.where == "due" && f.us <= now {
			return true
		}
	}
	return false
}

// expires returns when the job expires, in us, or 0 if it doesn't: it has started, it has ended, it is being moved, or it has no time to start.
func (f *fact) expires() int64 {
	if f.life == 0 && f.end == 0 || f.where != "lined" && f.where != "due" || f.us == wire.HeldUntil.UnixMicro() {
		return 0
	}
	if f.end > 0 {
		return f.end
	}
	return f.us + f.life.Microseconds()
}

// expire has all jobs end that haven't started in time. It returns them in the order in which that happens.
func (m *model) expire(now int64) []string {
	over, at := []string{}, make(map[string]int64)
	for id, f := range m.jobs {
		if us := f.expires(); us > 0 && us <= now {
			over, at[id] = append(over, id), us
		}
	}
	slices.SortFunc(over, func(a, b string) int { return cmp.Or(cmp.Compare(at[a], at[b]), strings.Compare(a, b)) })
	for _, id := range over {
		m.end(id, Dead, false)
	}
	return over
}

// upcoming returns when the next job expires, in us; 0: none does.
func (m *model) upcoming() (next int64) {
	for _, f := range m.jobs {
		if us := f.expires(); us > 0 && (next == 0 || us < next) {
			next = us
		}
	}
	return next
}

// room returns how many jobs may be put in.
func (m *model) room() int {
	if m.most == 0 {
		return math.MaxInt
	}
	return m.most - m.length()
}

// length returns how many jobs haven't ended.
func (m *model) length() (n int) {
	for _, f := range m.jobs {
		if !f.ended() {
			n++
		}
	}
	return n
}

// fate returns what an enqueue of a job must be answered in a queue that has room. before are the jobs that came before it in the call.
func (m *model) fate(it *Item, before map[string]Fate) Fate {
	if fate, ok := before[it.id]; ok {
		return fate
	}
	f := m.jobs[it.id]
	cautious := len(it.class) > 1 && it.class[1] == '!'
	switch {
	case f == nil:
		return PutIn
	case f.where == "due":
		return MetScheduled
	case !f.ended():
		return MetLive
	case cautious:
		return map[string]Fate{string(Dead): MetDead, string(Cancelled): MetCancelled, string(Completed): MetCompleted}[f.where]
	}
	return map[string]Fate{string(Dead): ReplacedDead, string(Cancelled): ReplacedCancelled, string(Completed): ReplacedCompleted}[f.where]
}

// tick returns what the next tick of a cron entry with a policy must be answered, and notes it. key is that of its job's group. A job that isn't in that group has an ID of the
// entry by another way: it followed the job that had the ID.
func (m *model) tick(entry string, how Overlap, id, key string) Fate {
	var live []string
	waits := false
	for _, other := range m.ticks[entry] {
		if f := m.jobs[other]; f != nil && !f.ended() {
			live = append(live, other)
			waits = waits || f.key != key || !f.holds && f.where != "running"
		}
	}
	if how == OverlapSkip && len(live) > 0 || how == OverlapQueue && waits {
		return Overlapped
	}
	live = append([]string{id}, live...)
	m.ticks[entry] = live[:min(len(live), 8)]
	return PutIn
}

// A view is what Redis has of a queue: where each job is, and the times of limits.
type view struct {
	jobs    map[string]string
	rates   map[string]float64
	expires map[string]int64 // when jobs expire, in us
}

// view reads the queue in one round trip.
func (w *walk) view() view {
	w.t.Helper()
	k := &w.keys
	p := w.rdb.Pipeline()
	lined, due, rates, expires := p.ZRange(bg, k.Lined, 0, -1), p.ZRangeWithScores(bg, k.Due, 0, -1), p.ZRangeWithScores(bg, k.Rates, 0, -1), p.ZRangeWithScores(bg, k.Expires, 0, -1)
	ready, ended, inflight := make(map[string]*redis.StringSliceCmd), make(map[signalbox.State]*redis.StringSliceCmd), make(map[string]*redis.MapStringStringCmd)
	for class, list := range k.Ready() {
		ready[class] = p.LRange(bg, list, 0, -1)
	}
	for _, state := range facts.EndedStates {
		ended[state] = p.ZRange(bg, k.Named[facts.EndedKey(state)], 0, -1)
	}
	for session := range w.m.sessions {
		inflight[session] = p.HGetAll(bg, k.Inflight(session))
	}
	_, err := p.Exec(bg)
	w.must(err)
	v := view{jobs: make(map[string]string), rates: make(map[string]float64), expires: make(map[string]int64)}
	enter := func(id, where string) {
		if was, there := v.jobs[id]; there {
			w.fail("job %s is in two places: %q and %q", id, was, where)
		}
		v.jobs[id] = where
	}
	for class, list := range ready {
		for _, id := range list.Val() {
			enter(id, "ready "+class)
		}
	}
	for _, member := range lined.Val() {
		_, _, id, ok := facts.ParseLine(member)
		if !ok {
			w.fail("%q is no member of the lines", member)
		}
		enter(id, "lined "+member)
	}
	for _, z := range due.Val() {
		member := z.Member.(string)
		enter(member[1:], fmt.Sprintf("due %s %d", member[:1], int64(z.Score)))
	}
	for state, list := range ended {
		for _, id := range list.Val() {
			enter(id, string(state))
		}
	}
	for session, all := range inflight {
		for id, value := range all.Val() {
			p := facts.Place{Kind: "running", Value: value}
			_, token, _ := p.Token()
			enter(id, fmt.Sprintf("running %s %d %v %s", session, token, p.Fields().Flagged(), p.Fields().Group))
		}
	}
	for _, z := range rates.Val() {
		v.rates[z.Member.(string)] = z.Score
	}
	for _, z := range expires.Val() {
		v.expires[z.Member.(string)] = int64(z.Score)
	}
	return v
}

// compare compares the queue with the model.
func (w *walk) compare() { w.t.Helper(); w.adopt(func(string) bool { return false }) }

// adopt compares the queue with the model, but for some jobs, of which it takes over what Redis has. It returns those of them that the queue hasn't.
func (w *walk) adopt(some func(id string) bool) (gone []string) {
	w.t.Helper()
	v := w.view()
	var take, wrong []string
	for id, f := range w.m.jobs {
		where, there := v.jobs[id]
		switch {
		case some(id) && there:
			take = append(take, id)
		case some(id):
			gone = append(gone, id)
		case !there && w.m.trims && f.where == string(Completed):
			delete(w.m.jobs, id) // the oldest are dropped
		case where != f.text(id):
			wrong = append(wrong, fmt.Sprintf("job %s is %q, and should be %q", id, where, f.text(id)))
		case v.expires[id] != f.expires():
			wrong = append(wrong, fmt.Sprintf("job %s, which is %q, expires at %d, and should at %d (0: never)", id, where, v.expires[id], f.expires()))
		}
	}
	for id, where := range v.jobs {
		if w.m.jobs[id] == nil && some(id) {
			take = append(take, id)
		} else if w.m.jobs[id] == nil {
			wrong = append(wrong, fmt.Sprintf("job %s is %q, and should not be there", id, where))
		}
	}
	for id := range v.expires {
		if _, there := v.jobs[id]; !there {
			wrong = append(wrong, fmt.Sprintf("job %s expires, and is nowhere", id))
		}
	}
	steady := float64(w.now.UnixMicro() + w.m.ahead)
	for name, at := range v.rates {
		key, held := strings.CutPrefix(name, "h")
		want := w.m.next[key]
		if held {
			want = float64(w.m.held[key])
		}
		if math.Abs(at-want) > 50 && max(at, want) > steady {
			wrong = append(wrong, fmt.Sprintf("the time of %q is %.0f, and should be %.0f", name, at, want))
		}
	}
	for key, until := range w.m.held {
		if _, there := v.rates["h"+key]; !there && float64(until) > steady {
			wrong = append(wrong, fmt.Sprintf("%q is not held back", key))
		}
	}
	for key, at := range w.m.next {
		if _, there := v.rates[key]; !there && at > steady {
			wrong = append(wrong, fmt.Sprintf("the rate of %q is not known", key))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		w.fail("%s", strings.Join(wrong, "\n"))
	}
	for _, id := range gone {
		delete(w.m.jobs, id)
	}
	w.read(v, take)
	return gone
}

// read takes over what Redis has of some jobs.
func (w *walk) read(v view, some []string) {
	w.t.Helper()
	if len(some) == 0 {
		return
	}
	records, err := w.rdb.HMGet(bg, w.keys.Jobs, some...).Result()
	w.must(err)
	for i, id := range some {
		record, _ := records[i].(string)
		if len(record) < 20 {
			w.fail("job %s is %q and has the record %q", id, v.jobs[id], record)
		}
		f := &fact{
			key: facts.GroupOf(record), class: record[1], crashes: int(record[2]), us: int64(binary.BigEndian.Uint64([]byte(record[12:20]))), own: wire.RetainOf([]byte(record)), life: wire.ExpiresOf([]byte(record)), end: endIn(record), yields: wire.YieldsOf([]byte(record)),
			survived: int64(wire.SurvivedOf([]byte(record))), ran: ranOf(record),
		}
		words := strings.SplitN(v.jobs[id], " ", 3)
		f.where = words[0]
		switch f.where {
		case "running":
			f.session = strings.Fields(v.jobs[id])[1]
			_, err = fmt.Sscanf(v.jobs[id], "running %s %d %t", &f.session, &f.token, &f.marked)
			w.must(err)
			f.holds = f.key != ""
		case "ready":
			f.holds = f.key != ""
		case "due":
			f.holds = f.key != "" && words[1] <= "9" || words[1] == "s" && f.key != ""
		}
		w.m.jobs[id] = f
		if v.jobs[id] != f.text(id) {
			w.fail("job %s is %q, and by its record it should be %q", id, v.jobs[id], f.text(id))
		}
	}
}

// ranOf returns how long the job had run at its last crash that counted, in milliseconds: the last 4 bytes of the record's extras, if they say it.
func ranOf(record string) int64 {
	if record[3]&32 == 0 {
		return 0
	}
	stop := 22 + int(binary.BigEndian.Uint16([]byte(record[20:22])))
	return int64(binary.BigEndian.Uint32([]byte(record[stop-4 : stop])))
}

// joins reports whether a session may have a suspect with that number of crashes beside those that it runs: see suspects_welcome.
func (m *model) joins(session string, crashes int) bool {
	light, none := 16, true
	for _, f := range m.jobs {
		if f.where == "running" && f.session == session && f.crashes >= SuspectAt {
			if none, light = false, light-1; f.crashes > SuspectAt {
				return false
			}
		}
	}
	return none || crashes == SuspectAt && light > 0
}
