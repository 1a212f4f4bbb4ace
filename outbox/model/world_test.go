package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// window is W: how long sent batches are kept at least, in ticks of the database's clock.
const window = 6

// A mark names a batch. The zero mark is that of a lane that is missing.
type mark struct{ seq, nonce int }

// burnt returns what the lane shows if the batch was burnt. It differs from what it shows if the batch was put in.
func (w *world) burnt(m mark) mark {
	if w.burntAlike {
		return m
	}
	return mark{m.seq, -m.nonce}
}

// A row is a job that waits in the database. Its id is drawn at random in the code; here all ids differ.
type row struct {
	id, shard int
	group, n  int // its number in its group; group -1: none
	pos       int // drawn when it was inserted; rows are picked in this order
	batch     int // the sequence number of its batch; 0: none
	alone     bool
	dead      bool
	poison    bool
}

// A batch is a composition of rows that has got a sequence number and a nonce.
type batch struct {
	shard  int
	name   mark
	rows   []int // ids, in order; never changed in place
	void   bool  // it is to be burnt: sent without its rows
	again  bool  // it was sent before, and Redis forgot it
	tries  int
	sent   bool
	sentAt int
}

// A shardRow is the row that relays lock.
type shardRow struct {
	seq   int  // the last one that was given out
	lane  mark // what the lane in Redis must show
	floor mark // the last batch that was purged
	seen  int  // a keyset floor, for a variant
}

// A database is what one commit left. Commits copy it, so that a restored backup can bring an older one back.
type database struct {
	rows    []row
	batches []batch
	shards  []shardRow
	numbers []int // by group
	ledger  []int // ids of all rows that were committed, purged ones too
	pos     int
}

func (d *database) clone() database {
	c := *d
	c.rows, c.batches, c.shards = slices.Clone(d.rows), slices.Clone(d.batches), slices.Clone(d.shards)
	c.numbers, c.ledger = slices.Clone(d.numbers), slices.Clip(d.ledger)
	return c
}

func (d *database) row(id int) *row {
	for i := range d.rows {
		if d.rows[i].id == id {
			return &d.rows[i]
		}
	}
	return nil
}

func (d *database) batch(shard int, name mark) *batch {
	for i := range d.batches {
		if b := &d.batches[i]; b.shard == shard && b.name == name {
			return b
		}
	}
	return nil
}

// unsent returns the lowest batch of the shard that isn't sent, or nil.
func (d *database) unsent(shard int) *batch {
	var low *batch
	for i := range d.batches {
		if b := &d.batches[i]; b.shard == shard && !b.sent && (low == nil || b.name.seq < low.name.seq) {
			low = b
		}
	}
	return low
}

// free lets rows wait again.
func (d *database) free(ids []int) {
	for _, id := range ids {
		if row := d.row(id); row != nil {
			row.batch = 0
		}
	}
}

// A server is a database server: what it has now, what it had, and its locks.
type server struct {
	database
	history []database
	locked  []int // by shard: the relay, from 1
	grouped []bool
	epoch   int // changes when the server goes back: what was open has ended
	rolled  bool
}

const kept = 12 // states that a server can go back to

// commit runs change as one transaction.
func (s *server) commit(change func(*database)) {
	s.history = append(s.history, s.database)
	if len(s.history) > kept {
		s.history = s.history[1:]
	}
	s.database = s.clone()
	change(&s.database)
}

// A tx is a transaction of a writer that is still open.
type tx struct {
	db, epoch int
	rows      []row
	numbers   map[int]int
}

// A lane is the key of one shard in Redis.
type lane struct {
	mark
	outcomes string // '1' put in, '0' a record was there, 'n' no room, 'v' burnt
}

// An event is a job that was put in. Only those that Redis still knows are in its log.
type event struct{ row, db, group, n int }

// A state is what one write left in Redis.
type state struct {
	lanes []lane
	jobs  []int // rows whose job has a record
	log   []event
	at    int
	from  int // when what it wrote was first written: before that, if a late call wrote it again
}

// A redis is one slot: it is rolled back as a whole, and apart from other slots.
type redis struct {
	state
	history []state
	down    int // ticks until it is back
	rolled  bool
	beyond  bool // it lost more than the window
}

func (r *redis) write(now int, change func(*state)) {
	r.history = append(r.history, r.state)
	c := state{slices.Clone(r.lanes), slices.Clone(r.jobs), slices.Clip(r.log), now, now}
	change(&c)
	r.state = c
}

// A call is one run of the script that was sent, and may be run late, twice or never.
type call struct {
	relay, number int
	slot, lane    int
	shard         int
	expect, name  mark
	rows          []row
	void, again   bool
}

// An answer is what the script said.
type answer struct {
	kind     string // "applied", "done", "other", "full", "error"
	lane     mark
	outcomes string
	room     int // of "full": for how many jobs
}

// rules are the rules of the protocol that a variant leaves out.
type rules struct {
	lanesExpire, noLane, noNonce, noPrevious, sharedLane, oneSeqForQueues                                                                                   bool
	staleIsSent, secondAnyNonce, secondAnyBatch, secondSetsLane, noOutcomes, recompose                                                                      bool
	pickUnlocked, pickOldSnapshot, pickByID, keyset, sendUncertain, sendAnyUnsent                                                                           bool
	purgeAtOnce, purgeByClock, noIdleLook, lookOnce, lossUnsaid, resendHonoursRoom                                                                          bool
	reshard, bornOrder, triesOfTransport, dropPoison, scriptRefuses, purgeUnchecked, secondAnyOrder, jumpIsAlarm, burntAlike, burntOvertaken, jumpKeepsLane bool
	boundless                                                                                                                                               bool
}

// faults say what may happen in a run besides crashes, stops, losses and repeats of calls, which always may.
type faults struct {
	redisBack, redisBeyond, databaseBack, outage bool
	room                                         int // jobs that a slot may have; 0: no bound
	poison, burns                                bool
	versions                                     bool // only calls of relay 1 are refused for poison: it is of another version than the others
	copied                                       bool // the second database is a copy of the first, and goes by its name
	replica                                      bool // looks read a replica that may be behind
	databases, slots                             int
}

type world struct {
	rules
	faults
	rng     *rand.Rand
	now     int
	dbs     []*server
	slots   []*redis
	relays  []*relay
	open    []tx
	air     []call
	numbers int // ids, nonces and calls
	shards  int // per queue, known to the writers
	calm    bool

	committed, aborted map[int]bool
	poisoned           map[int]bool
	first              map[mark]int // when a batch was first put in
	alarms             map[string]int
	broken             string
	trace              []string
	tracing            bool
}

func (w *world) say(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%3d ", w.now)+fmt.Sprintf(format, args...))
	}
}

func (w *world) violate(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.say("VIOLATION %s", w.broken)
	}
}

func (w *world) next() int { w.numbers++; return w.numbers }

// Two shards a database: with one slot they are of one queue, with two of two queues.
const shards = 2

func (w *world) slotOf(shard int) int { return shard % len(w.slots) }

func (w *world) laneOf(db, shard int) int {
	if w.sharedLane || w.copied {
		db = 0
	}
	return db*shards + shard
}

// seqOf is the shard row that counts for a shard.
func (w *world) seqOf(shard int) int {
	if w.oneSeqForQueues {
		return 0
	}
	return shard
}

func newWorld(seed uint64, r rules, f faults, tracing bool) *world {
	w := &world{
		rules: r, faults: f, rng: rand.New(rand.NewPCG(seed, 14)), tracing: tracing, shards: 2, committed: map[int]bool{}, aborted: map[int]bool{},
		poisoned: map[int]bool{}, first: map[mark]int{}, alarms: map[string]int{},
	}
	if r.reshard {
		w.shards = 1
	}
	for range max(f.databases, 1) {
		s := &server{locked: make([]int, shards), grouped: make([]bool, 2), rolled: f.copied}
		s.shards, s.database.numbers = make([]shardRow, shards), make([]int, 2)
		w.dbs = append(w.dbs, s)
	}
	for range max(f.slots, 1) {
		s := &redis{}
		s.lanes = make([]lane, shards*len(w.dbs))
		w.slots = append(w.slots, s)
	}
	for i := range 3 {
		w.relays = append(w.relays, &relay{me: i + 1, db: i % len(w.dbs)})
	}
	return w
}

// write is a step of a writer: it begins, commits or rolls back.
func (w *world) write() {
	if len(w.open) > 0 && w.rng.IntN(2) == 0 {
		i := w.rng.IntN(len(w.open))
		t := w.open[i]
		w.open = slices.Delete(w.open, i, i+1)
		s := w.dbs[t.db]
		if t.epoch != s.epoch {
			return
		}
		for g := range t.numbers {
			s.grouped[g] = false
		}
		if w.rng.IntN(3) == 0 {
			for _, r := range t.rows {
				w.aborted[r.id] = true
			}
			w.say("rollback of rows %v", idsOf(t.rows))
			return
		}
		s.commit(func(d *database) {
			d.rows = append(d.rows, t.rows...)
			for g, n := range t.numbers {
				d.numbers[g] = n
			}
			for _, r := range t.rows {
				d.ledger = append(d.ledger, r.id)
				w.committed[r.id] = true
			}
		})
		w.say("commit of rows %v", idsOf(t.rows))
		return
	}
	if len(w.open) >= 2 || w.calm {
		return
	}
	db := w.rng.IntN(len(w.dbs))
	s := w.dbs[db]
	t := tx{db: db, epoch: s.epoch, numbers: map[int]int{}}
	group := w.rng.IntN(3) - 1
	if group >= 0 && s.grouped[group] {
		return // it would wait for the row of the group
	}
	for range 1 + w.rng.IntN(2) {
		r := row{id: w.next(), group: group}
		s.pos++
		r.pos = s.pos
		if w.bornOrder { // by the begin of the transaction, which may be before others that got the group's number first
			r.pos -= w.rng.IntN(4)
		}
		if group >= 0 {
			s.grouped[group] = true
			n, ok := t.numbers[group]
			if !ok {
				n = s.database.numbers[group]
			}
			t.numbers[group], r.n = n+1, n+1
			r.shard = group % w.shards
		} else {
			r.shard = w.rng.IntN(w.shards)
		}
		if w.poison && w.rng.IntN(6) == 0 {
			r.poison = true
			w.poisoned[r.id] = true
		}
		t.rows = append(t.rows, r)
	}
	w.open = append(w.open, t)
}

func idsOf(rows []row) (ids []int) {
	for _, r := range rows {
		ids = append(ids, r.id)
	}
	return ids
}

// run runs one call that is in the air, and answers its relay if that still waits.
func (w *world) run(i int) {
	c := w.air[i]
	s := w.slots[c.slot]
	if s.down > 0 {
		return
	}
	if w.calm || w.rng.IntN(3) > 0 {
		w.air = slices.Delete(w.air, i, i+1)
	}
	a := w.script(s, c)
	w.say("slot %d runs relay %d's %v expect %v rows %v void=%v again=%v: %+v", c.slot, c.relay, c.name, c.expect, idsOf(c.rows), c.void, c.again, a)
	r := w.relays[c.relay-1]
	if r.pc == waiting && r.call == c.number && (w.calm || w.rng.IntN(5) > 0) {
		r.answer, r.pc = a, answered
	}
}

// script is the script, as the code should have it.
func (w *world) script(s *redis, c call) answer {
	l := s.lanes[c.lane]
	same := l.mark == c.name || l.mark == w.burnt(c.name)
	fits := l.mark == c.expect && c.expect.seq < c.name.seq
	if w.noNonce {
		same, fits = l.seq == c.name.seq, l.seq == c.name.seq-1
	}
	if w.noPrevious {
		fits = l.seq == c.name.seq-1
	}
	if w.noLane {
		same, fits = false, true
	}
	switch {
	case same:
		return answer{kind: "done", lane: l.mark, outcomes: l.outcomes}
	case !fits:
		return answer{kind: "other", lane: l.mark}
	}
	if !c.void && (!w.versions || c.relay == 1) && slices.ContainsFunc(c.rows, func(r row) bool { return r.poison }) {
		return answer{kind: "error"}
	}
	if w.room > 0 && !w.scriptRefuses && !w.boundless && !c.void && !c.again {
		fresh := 0
		for _, r := range c.rows {
			if !slices.Contains(s.jobs, r.id) {
				fresh++
			}
		}
		if room := w.room - len(s.jobs); fresh > room {
			return answer{kind: "full", room: room}
		}
	}
	var out strings.Builder
	name := c.name
	if c.void {
		name = w.burnt(name)
	}
	s.write(w.now, func(st *state) {
		for _, r := range c.rows {
			switch {
			case c.void:
				out.WriteByte('v')
			case slices.Contains(st.jobs, r.id):
				out.WriteByte('0')
			case w.scriptRefuses && len(st.jobs) >= w.room && (!c.again || w.resendHonoursRoom):
				out.WriteByte('n')
			default:
				out.WriteByte('1')
				w.putIn(st, c, r)
			}
		}
		st.lanes[c.lane] = lane{name, out.String()}
		if first, ok := w.first[c.name]; ok {
			st.from = first
		} else {
			w.first[c.name] = w.now
		}
	})
	return answer{kind: "applied", lane: name, outcomes: out.String()}
}

// putIn puts a job in, and checks that this may be.
func (w *world) putIn(st *state, c call, r row) {
	db := w.relays[c.relay-1].db
	rolled := w.dbs[db].rolled
	if !w.committed[r.id] {
		w.violate("row %d was put in and never committed", r.id)
	}
	if slices.ContainsFunc(st.log, func(e event) bool { return e.row == r.id }) {
		w.alarms["doubled"]++
		if !rolled && !((w.burns || w.room > 0) && w.redisBack) { // see README.md: a call from before the burn, after Redis went back behind it
			w.violate("row %d was put in twice", r.id)
		}
	} else if !rolled && r.group >= 0 {
		for _, e := range st.log {
			if e.db == db && e.group == r.group && e.n > r.n {
				w.violate("row %d, number %d of group %d, came behind number %d", r.id, r.n, r.group, e.n)
			}
		}
	}
	if w.room > 0 && len(st.jobs) >= w.room && !c.again {
		w.violate("row %d was put into a full queue", r.id)
	}
	st.jobs = append(st.jobs, r.id)
	st.log = append(st.log, event{r.id, db, r.group, r.n})
}
