package model

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var (
	runs  = flag.Int("outbox.runs", 0, "how many random runs each case of the model gets; 0: what fits in a few seconds")
	from  = flag.Uint64("outbox.seed", 1, "the first run's seed")
	trail = flag.Bool("outbox.trail", false, "print the steps of the first run that is broken")
)

// simulate makes one random run, and returns the world after it.
func simulate(seed uint64, r rules, f faults, tracing bool) *world {
	w := newWorld(seed, r, f, tracing)
	steps := 200 + w.rng.IntN(400)
	for i := 0; i < steps && w.broken == ""; i++ {
		if r.reshard && i == steps/3 {
			w.shards = 2
		}
		w.step()
	}
	w.finish()
	return w
}

func (w *world) step() {
	switch k := w.rng.IntN(100); {
	case k < 60:
		w.relayStep(w.relays[w.rng.IntN(len(w.relays))])
	case k < 72:
		w.write()
	case k < 86:
		if len(w.air) > 0 {
			w.run(w.rng.IntN(len(w.air)))
		}
	case k < 91:
		s := w.slots[w.rng.IntN(len(w.slots))]
		if s.down == 0 && len(s.jobs) > 0 {
			i := w.rng.IntN(len(s.jobs))
			s.write(w.now, func(st *state) { st.jobs = slices.Delete(st.jobs, i, i+1) })
		}
	case k < 96:
		w.tick()
	case k < 98:
		w.redisFault(w.slots[w.rng.IntN(len(w.slots))])
	default:
		if w.databaseBack && w.rng.IntN(4) == 0 {
			w.databaseFault(w.rng.IntN(len(w.dbs)))
		}
	}
}

func (w *world) tick() {
	w.now++
	for _, s := range w.slots {
		if s.down > 0 {
			s.down--
		}
	}
}

func (w *world) redisFault(s *redis) {
	if s.down > 0 {
		return
	}
	if w.lanesExpire && w.rng.IntN(3) == 0 {
		i := w.rng.IntN(len(s.lanes))
		s.write(w.now, func(st *state) { st.lanes[i] = lane{} })
	}
	back := 0
	if w.redisBack && len(s.history) > 0 && w.rng.IntN(2) == 0 {
		for back < len(s.history) {
			at := s.from
			if back > 0 {
				at = s.history[len(s.history)-back].from
			}
			if !w.redisBeyond && at < w.now-window || w.rng.IntN(6) == 0 {
				break
			}
			back++
			if at < w.now-window {
				s.beyond = true
			}
		}
	}
	if back > 0 {
		w.say("redis goes back by %d writes", back)
		s.state = s.history[len(s.history)-back]
		s.history = s.history[:len(s.history)-back]
		s.rolled = true
	}
	if w.outage && w.rng.IntN(2) == 0 {
		s.down = w.rng.IntN(3 * window)
	}
}

func (w *world) databaseFault(db int) {
	s := w.dbs[db]
	if len(s.history) == 0 {
		return
	}
	back := 1 + w.rng.IntN(min(len(s.history), 6))
	w.say("database %d goes back by %d commits", db, back)
	s.database = s.history[len(s.history)-back]
	s.history = s.history[:len(s.history)-back]
	s.rolled = true
	s.epoch++
	clear(s.locked)
	clear(s.grouped)
}

// finish lets everybody go on without faults, and checks what came of it.
func (w *world) finish() {
	w.calm = true
	quiet := 0
	for i := 0; w.broken == "" && quiet < 60; i++ {
		if i > 6000 {
			w.violate("nothing comes to an end: %s", w.left())
			return
		}
		if i%20 == 0 {
			w.tick()
		}
		for _, s := range w.slots {
			if i%7 == 0 && s.down == 0 && len(s.jobs) > 0 {
				s.write(w.now, func(st *state) { st.jobs = slices.Clone(st.jobs[1:]) })
			}
		}
		w.write()
		if len(w.air) > 0 {
			w.run(w.rng.IntN(len(w.air)))
		}
		w.relayStep(w.relays[i%len(w.relays)])
		if quiet++; w.left() != "" {
			quiet = 0
		}
	}
	if w.broken == "" {
		w.check()
	}
}

// left says what still has to be done, "" if nothing.
func (w *world) left() string {
	var b strings.Builder
	for i, s := range w.dbs {
		for _, r := range s.rows {
			if r.batch == 0 && !r.dead && !(w.keyset && r.pos <= s.shards[r.shard].seen) {
				fmt.Fprintf(&b, "row %d waits; ", r.id)
			}
		}
		for _, x := range s.batches {
			if !x.sent {
				fmt.Fprintf(&b, "batch %v of database %d is not sent; ", x.name, i)
			}
		}
		if !w.noIdleLook {
			for n := range s.shards {
				if lane := w.slots[w.slotOf(n)].lanes[w.laneOf(i, n)].mark; lane != s.shards[w.seqOf(n)].lane {
					fmt.Fprintf(&b, "lane %d of database %d is %v; ", n, i, lane)
				}
			}
		}
	}
	if len(w.air)+len(w.open) > 0 {
		fmt.Fprintf(&b, "%d calls in the air, %d transactions open", len(w.air), len(w.open))
	}
	return b.String()
}

// check checks what must be so when all is quiet.
func (w *world) check() {
	known := map[int]bool{}
	rolled, beyond, lossy := false, false, false
	for _, s := range w.slots {
		for _, e := range s.log {
			known[e.row] = true
		}
		rolled, beyond = rolled || s.rolled, beyond || s.beyond
	}
	for i, s := range w.dbs {
		lossy = lossy || s.rolled
		for _, id := range s.ledger {
			row := s.row(id)
			switch {
			case row != nil && row.dead && !w.poisoned[id] && !w.burns:
				w.violate("row %d of database %d is dead, and nothing is wrong with it", id, i)
			case known[id] && row != nil && row.dead && !lossy && !rolled:
				w.violate("row %d of database %d is dead, and was put in", id, i)
			case known[id], (w.poisoned[id] || w.burns) && row != nil && row.dead:
			case beyond && w.alarms["beyond"]+w.alarms["fork"] > 0: // the message of a fork says that too
			case w.poisoned[id]:
				w.violate("row %d of database %d is neither put in nor dead", id, i)
			default:
				w.violate("row %d of database %d is lost", id, i)
			}
		}
	}
	if w.alarms["doubled"] > 0 && w.alarms["database"]+w.alarms["fork"]+w.alarms["unburnt"] == 0 {
		w.violate("rows were put in twice, and nobody said so")
	}
	if w.replica {
		return // looks that are wrong give false alarms, and nothing worse
	}
	if !lossy && w.alarms["database"] > 0 {
		w.violate("a false alarm: the database did not go back")
	}
	if !(lossy && rolled) && w.alarms["fork"] > 0 {
		w.violate("a false alarm: not both went back")
	}
	if !rolled && w.alarms["unburnt"] > 0 {
		w.violate("a false alarm: no burnt batch came back")
	}
	if !beyond && !w.lanesExpire && w.alarms["beyond"] > 0 && !lossy {
		w.violate("a false alarm: Redis did not lose more than the window")
	}
	if !rolled && w.alarms["healed"] > 0 && !lossy {
		w.violate("a false alarm: Redis did not go back")
	}
}

// A scenario is a set of faults.
var scenarios = []struct {
	name string
	faults
}{
	{"crashes", faults{outage: true}},
	{"crashes, two queues", faults{outage: true, slots: 2}},
	{"crashes, two databases", faults{outage: true, databases: 2}},
	{"crashes, room", faults{room: 3}},
	{"crashes, poison", faults{poison: true}},
	{"crashes, burns", faults{burns: true, poison: true}},
	{"crashes, two versions", faults{poison: true, versions: true, burns: true}},
	{"a copy of the database", faults{databases: 2, copied: true, outage: true}},
	{"looks at a replica", faults{replica: true, outage: true}},
	{"redis back", faults{redisBack: true, outage: true}},
	{"redis back, poison", faults{redisBack: true, outage: true, poison: true}},
	{"redis back, burns", faults{redisBack: true, outage: true, burns: true}},
	{"redis back, room", faults{redisBack: true, room: 3}},
	{"redis back, two queues, two databases", faults{redisBack: true, outage: true, slots: 2, databases: 2}},
	{"redis beyond", faults{redisBack: true, redisBeyond: true, outage: true}},
	{"database back", faults{databaseBack: true, outage: true}},
	{"database back, room, poison", faults{databaseBack: true, room: 3, poison: true}},
	{"both back", faults{databaseBack: true, redisBack: true, outage: true}},
	{"both back, beyond, two queues, two databases, poison", faults{databaseBack: true, redisBack: true, redisBeyond: true, outage: true, slots: 2, databases: 2, poison: true}},
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	n := 200
	if *runs > 0 {
		n = *runs
	}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			bad := 0
			alarms := map[string]int{}
			rows := 0
			for seed := *from; seed < *from+uint64(n); seed++ {
				w := simulate(seed, rules{}, sc.faults, false)
				for k, v := range w.alarms {
					alarms[k] += v
				}
				rows += len(w.committed)
				if w.broken != "" {
					if bad++; bad <= 3 {
						t.Errorf("run %d: %s", seed, w.broken)
					}
					if bad == 1 && *trail {
						t.Log("\n" + strings.Join(simulate(seed, rules{}, sc.faults, true).trace, "\n"))
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d runs are broken", bad, n)
			}
			t.Logf("%d rows, alarms %v", rows, alarms)
		})
	}
}
