package model

import (
	"slices"
)

// The places where a relay stands. Between any two it may be stopped for long, or die.
const (
	idle     = iota
	locked   // it holds the shard's row, and has written nothing
	sending  // the batch is committed
	waiting  // for the script's answer
	answered // it has the answer
	asked    // it has read the shard's row, and asks for the lane
	synced   // the lane is what it must be: it may purge
	doubting // the lane isn't what it must be: it will look again with the lock
	looking  // it holds the shard's row, and asks for the lane
	deciding // it holds the shard's row, and knows the lane
	early    // a variant: it has read the rows, and waits for the lock
)

type relay struct {
	me, db, pc int
	epoch      int // of the database when its transaction began
	asleep     int // steps

	shard  int
	batch  batch
	rows   []row
	expect mark
	call   int
	sends  int
	answer answer
	read   shardRow
	lane   mark
	picked []int // by a variant, before it had the lock
	sure   int   // when the lane was seen as it must be
}

func (w *world) relayStep(r *relay) {
	if r.asleep > 0 {
		r.asleep--
		return
	}
	if !w.calm {
		switch w.rng.IntN(40) {
		case 0:
			w.say("relay %d dies at %d", r.me, r.pc)
			w.unlock(r)
			r.pc = idle
			return
		case 1, 2:
			r.asleep = 1 << w.rng.IntN(7) // up to 64 of its steps: longer than everything else takes
			return
		}
	}
	s := w.dbs[r.db]
	if (r.pc == locked || r.pc == looking || r.pc == deciding) && r.epoch != s.epoch {
		r.pc = idle // its connection is gone
		return
	}
	switch r.pc {
	case idle:
		w.begin(r, s)
	case locked:
		w.pick(r, s)
	case early:
		if w.lock(r, s) {
			r.pc = locked
		}
	case sending:
		w.send(r)
	case waiting:
		if w.rng.IntN(4) == 0 { // no answer came
			if r.sends < 3 {
				r.pc = sending
			} else {
				r.pc = idle
				if w.triesOfTransport {
					s.commit(func(d *database) {
						if b := d.batch(r.shard, r.batch.name); b != nil {
							b.tries += 2
						}
					})
				}
			}
		}
	case answered:
		w.settle(r, s)
	case asked:
		w.ask(r)
	case synced:
		w.purge(r, s)
	case doubting:
		if w.lock(r, s) {
			r.pc = looking
			if w.lookOnce {
				r.pc = deciding
			}
		}
	case looking:
		if w.slots[w.slotOf(r.shard)].down > 0 {
			w.unlock(r)
			r.pc = idle
			return
		}
		r.lane = w.laneNow(r)
		r.pc = deciding
	case deciding:
		w.decide(r, s)
	}
}

func (w *world) laneNow(r *relay) mark {
	s := w.slots[w.slotOf(r.shard)]
	if n := len(s.history); w.replica && !w.calm && n > 0 && w.rng.IntN(3) == 0 {
		return s.history[n-1-w.rng.IntN(min(n, 8))].lanes[w.laneOf(r.db, r.shard)].mark
	}
	return s.lanes[w.laneOf(r.db, r.shard)].mark
}

func (w *world) lock(r *relay, s *server) bool {
	if s.locked[r.shard] != 0 {
		return false
	}
	s.locked[r.shard], r.epoch = r.me, s.epoch
	return true
}

func (w *world) unlock(r *relay) {
	s := w.dbs[r.db]
	if s.locked[r.shard] == r.me {
		s.locked[r.shard] = 0
	}
}

// free reports whether the relay can run a short transaction on its shard now.
func (w *world) free(r *relay, s *server) bool { return s.locked[r.shard] == 0 }

func (w *world) begin(r *relay, s *server) {
	r.shard, r.picked = w.rng.IntN(shards), nil
	if w.rng.IntN(3) == 0 {
		if w.noIdleLook && s.unsent(r.shard) == nil {
			return
		}
		r.read, r.pc = s.shards[w.seqOf(r.shard)], asked
		return
	}
	if w.pickUnlocked || w.pickOldSnapshot {
		r.picked, r.epoch, r.pc = w.choose(&s.database, r.shard), s.epoch, locked
		if w.pickOldSnapshot {
			r.pc = early
		}
		return
	}
	if w.lock(r, s) {
		r.pc = locked
	}
}

// choose returns the rows of the next batch: at most two, in the order of their positions.
func (w *world) choose(d *database, shard int) (ids []int) {
	rows := slices.Clone(d.rows)
	slices.SortFunc(rows, func(a, b row) int {
		if w.pickByID {
			return a.id*7919%31 - b.id*7919%31
		}
		return a.pos - b.pos
	})
	most := 2
	if slot := w.slots[w.slotOf(shard)]; w.room > 0 && !w.scriptRefuses {
		if room := w.room - len(slot.jobs); room <= 0 || w.rng.IntN(3) > 0 { // as the last answer said; others may have taken it since
			most = min(most, room)
		}
	}
	if most <= 0 {
		return nil
	}
	for _, r := range rows {
		if r.shard != shard || r.batch != 0 || r.dead || w.keyset && r.pos <= d.shards[shard].seen {
			continue
		}
		if r.alone {
			if len(ids) == 0 {
				ids = append(ids, r.id)
			}
			break
		}
		if ids = append(ids, r.id); len(ids) == most {
			break
		}
	}
	return ids
}

// pick is the rest of the first transaction.
func (w *world) pick(r *relay, s *server) {
	defer w.unlock(r)
	r.pc = idle
	if b := s.unsent(r.shard); b == nil {
		ids := r.picked
		if ids == nil {
			ids = w.choose(&s.database, r.shard)
		}
		if len(ids) == 0 {
			return
		}
		sr := s.shards[w.seqOf(r.shard)]
		name := mark{sr.seq + 1, w.next()}
		change := func(d *database) {
			d.shards[w.seqOf(r.shard)].seq = name.seq
			for _, id := range ids {
				if row := d.row(id); row != nil {
					row.batch = name.seq
					d.shards[r.shard].seen = max(d.shards[r.shard].seen, row.pos)
				}
			}
			d.batches = append(d.batches, batch{shard: r.shard, name: name, rows: ids, tries: 1})
		}
		w.say("relay %d db %d shard %d: batch %v of %v", r.me, r.db, r.shard, name, ids)
		r.batch = batch{shard: r.shard, name: name, rows: ids}
		r.rows = r.rows[:0:0]
		for _, id := range ids {
			if row := s.row(id); row != nil {
				r.rows = append(r.rows, *row)
			}
		}
		r.expect = sr.lane
		if !w.calm && w.rng.IntN(12) == 0 { // the commit's result is unknown
			if w.rng.IntN(2) == 0 {
				s.commit(change)
			}
			if w.sendUncertain {
				r.pc, r.sends = sending, 0
			}
			return
		}
		s.commit(change)
		r.pc, r.sends = sending, 0
		return
	}
	b := *s.unsent(r.shard)
	if w.sendAnyUnsent {
		for _, o := range s.batches {
			if o.shard == r.shard && !o.sent && w.rng.IntN(2) == 0 {
				b = o
			}
		}
	}
	s.commit(func(d *database) {
		n := d.batch(r.shard, b.name)
		n.tries++
		if w.burns && n.tries > 3 && !n.again && !n.void && w.rng.IntN(3) == 0 || w.triesOfTransport && n.tries > 4 && !n.again {
			n.void = true
		}
		if w.recompose && n.tries > 1 { // what waits now goes with it
			n.rows = slices.Clone(n.rows)
			for _, id := range w.choose(d, r.shard) {
				d.row(id).batch = n.name.seq
				n.rows = append(n.rows, id)
			}
		}
		b = *n
	})
	r.batch, r.rows = b, nil
	for _, id := range b.rows {
		if row := s.row(id); row != nil {
			r.rows = append(r.rows, *row)
		}
	}
	r.expect = s.shards[w.seqOf(r.shard)].lane
	r.pc, r.sends = sending, 0
}

func (w *world) send(r *relay) {
	r.sends++
	r.call = w.next()
	c := call{
		relay: r.me, number: r.call, slot: w.slotOf(r.shard), lane: w.laneOf(r.db, r.shard), shard: r.shard, expect: r.expect, name: r.batch.name,
		rows: r.rows, void: r.batch.void, again: r.batch.again,
	}
	w.air = append(w.air, c)
	r.pc = waiting
}

// settle does what follows from the script's answer: the second transaction, as a rule.
func (w *world) settle(r *relay, s *server) {
	switch a := r.answer; a.kind {
	case "other":
		if w.staleIsSent && a.lane.seq >= r.batch.name.seq {
			r.answer.lane = r.batch.name
			w.second(r, s)
			return
		}
		r.pc = doubting
	case "full":
		w.crowded(r, s)
	case "error":
		w.refused(r, s)
	default:
		w.second(r, s)
	}
}

// refused is what follows when the script refuses a batch for what is in it. Nothing was put in by this call.
func (w *world) refused(r *relay, s *server) {
	if !w.free(r, s) {
		return
	}
	r.pc = idle
	b := s.batch(r.shard, r.batch.name)
	if b == nil || b.sent || b.tries < 2 {
		return
	}
	s.commit(func(d *database) {
		b := d.batch(r.shard, r.batch.name)
		if w.dropPoison { // a variant: the rows that are refused leave the batch, which keeps its name
			var rest []int
			for _, id := range b.rows {
				if row := d.row(id); row != nil && !row.poison {
					rest = append(rest, id)
				} else if row != nil {
					row.dead = true
				}
			}
			b.rows = rest
			return
		}
		b.void = true
	})
}

// crowded is what follows when the queue has no room for the whole batch. Nothing was put in by this call.
func (w *world) crowded(r *relay, s *server) {
	if !w.free(r, s) {
		return
	}
	r.pc = idle
	if b := s.batch(r.shard, r.batch.name); b != nil && !b.sent && r.answer.room > 0 { // else it waits
		s.commit(func(d *database) { d.batch(r.shard, r.batch.name).void = true })
	}
}

// second is the second transaction.
func (w *world) second(r *relay, s *server) {
	if !w.free(r, s) {
		return // it waits
	}
	r.pc = idle
	name, lane, outcomes := r.batch.name, r.answer.lane, r.answer.outcomes
	b := s.batch(r.shard, name)
	if w.secondAnyBatch {
		b = s.unsent(r.shard)
	}
	if w.secondAnyNonce {
		b = nil
		for i := range s.batches {
			if o := &s.batches[i]; o.shard == r.shard && o.name.seq == name.seq {
				b = o
			}
		}
	}
	if low := s.unsent(r.shard); b != nil && !b.sent && low.name != b.name && !w.secondAnyOrder {
		r.pc = doubting // Redis went back, and came here again by late calls: one that looks with the lock decides
		return
	}
	if b == nil || b.sent {
		if w.secondSetsLane {
			s.commit(func(d *database) { d.shards[w.seqOf(r.shard)].lane = name })
		}
		return
	}
	found := b.name
	w.say("relay %d db %d shard %d: %v is sent, %q", r.me, r.db, r.shard, name, outcomes)
	s.commit(func(d *database) {
		b := d.batch(r.shard, found)
		b.sent, b.sentAt, b.name = true, w.now, lane
		d.shards[w.seqOf(r.shard)].lane = lane
		var in []int
		for i, id := range b.rows {
			o := byte('1')
			if i < len(outcomes) && !w.noOutcomes {
				o = outcomes[i]
			}
			row := d.row(id)
			switch {
			case row == nil:
			case o == 'n':
				row.batch = 0
			case o == 'v' && len(b.rows) == 1:
				row.dead = true
			case o == 'v':
				row.batch, row.alone = 0, true
			default:
				in = append(in, id)
			}
		}
		b.rows, b.void = in, b.void && w.burntOvertaken
		if lane == w.burnt(found) && lane != found && !w.burntOvertaken {
			// Behind the rows of a burnt batch only those may go that come after them: so the batches above it are picked anew. Calls for them fail, as
			// they expect the batch.
			d.batches = slices.DeleteFunc(d.batches, func(o batch) bool {
				if o.shard != r.shard || o.sent || o.name.seq < lane.seq {
					return false
				}
				d.free(o.rows)
				return true
			})
		}
		if w.purgeAtOnce {
			w.drop(d, r.shard, w.now+1)
		}
	})
}

// ask compares the lane with the shard's row, without the lock.
func (w *world) ask(r *relay) {
	if w.slots[w.slotOf(r.shard)].down > 0 {
		r.pc, r.sure = idle, w.now-window
		if w.purgeByClock {
			r.pc, r.sure = synced, w.now
		}
		return
	}
	r.lane = w.laneNow(r)
	r.pc = doubting
	if r.lane == r.read.lane {
		r.pc, r.sure = synced, w.now
	}
}

// purge deletes what was sent a window before the lane was last seen as it must be.
func (w *world) purge(r *relay, s *server) {
	if !w.free(r, s) {
		return
	}
	r.pc = idle
	if s.shards[w.seqOf(r.shard)].lane != r.lane && !w.purgeUnchecked && !w.purgeByClock {
		return // what it read before isn't what the lane was compared with
	}
	at := r.sure
	if w.purgeByClock {
		at = w.now
	}
	s.commit(func(d *database) { w.drop(d, r.shard, at-window) })
}

// drop deletes the batches of a prefix that were sent before at.
func (w *world) drop(d *database, shard, at int) {
	slices.SortFunc(d.batches, func(a, b batch) int { return a.name.seq - b.name.seq })
	stop := false
	d.batches = slices.DeleteFunc(d.batches, func(b batch) bool {
		if b.shard != shard || stop {
			return false
		}
		if !b.sent || b.sentAt >= at {
			stop = true
			return false
		}
		d.shards[w.seqOf(shard)].floor = b.name
		d.rows = slices.DeleteFunc(d.rows, func(x row) bool { return slices.Contains(b.rows, x.id) })
		return true
	})
}

// decide says what a lane means that isn't as it must be, and does what follows. It holds the shard's row.
func (w *world) decide(r *relay, s *server) {
	defer w.unlock(r)
	r.pc = idle
	sr, l := s.shards[w.seqOf(r.shard)], r.lane
	low := s.unsent(r.shard)
	if l == sr.lane || low != nil && (l == low.name || l == w.burnt(low.name)) {
		return // the next one to send it gets "done"
	}
	twin := s.batch(r.shard, w.burnt(l))
	known := s.batch(r.shard, l)
	if (known != nil && !known.sent || twin != nil && !twin.sent) && !w.jumpIsAlarm {
		// Redis forgot batches, and late calls brought them back, one behind the other: so those below are in.
		w.say("relay %d db %d shard %d: lane %v, what is below is in", r.me, r.db, r.shard, l)
		s.commit(func(d *database) {
			for i := range d.batches {
				if b := &d.batches[i]; b.shard == r.shard && b.name.seq < l.seq && !b.sent {
					b.sent, b.sentAt = true, w.now
					if n := &d.shards[w.seqOf(r.shard)]; n.lane.seq < b.name.seq && !w.jumpKeepsLane {
						n.lane = b.name
					}
				}
			}
		})
		return
	}
	what := ""
	switch {
	case known != nil && known.sent, l == sr.floor:
		what = "healed"
	case twin != nil && twin.sent && l.nonce < 0:
		what = "healed" // Redis went back, and then a late call burnt the batch
	case twin != nil && twin.sent:
		what = "unburnt" // the other way round
	case l.seq <= sr.floor.seq:
		what = "beyond"
	case l.seq > sr.lane.seq:
		what = "database"
	default:
		what = "fork"
	}
	if !w.lossUnsaid || what == "healed" {
		w.alarms[what]++
	}
	w.say("relay %d db %d shard %d: lane %v, should be %v, floor %v: %s", r.me, r.db, r.shard, l, sr.lane, sr.floor, what)
	s.commit(func(d *database) {
		n := &d.shards[w.seqOf(r.shard)]
		n.lane, n.seq = l, max(n.seq, l.seq)
		d.batches = slices.DeleteFunc(d.batches, func(b batch) bool {
			again := b.name.seq <= l.seq && (!b.sent || what == "fork")
			if twin != nil && twin.sent && l.nonce < 0 { // its rows go first, so those above it wait again, too
				again = b.name.seq >= l.seq
			}
			if b.shard != r.shard || !again {
				return false
			}
			d.free(b.rows)
			return true
		})
		for i := range d.batches {
			if b := &d.batches[i]; b.shard == r.shard && b.name.seq > l.seq {
				b.again = b.again || b.sent
				b.sent = false
			}
		}
	})
}
