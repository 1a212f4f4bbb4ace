-- Settles a batch of deliveries, then claims ready jobs for a session.
--
-- KEYS, ARGV: as named below; INFLIGHT is inflight:<session>. A queue is plain if none of the keys from LINED to FLOWS exists, no job of a group is due, and
-- the settings have neither limits nor a maximum length. Then these keys aren't looked at further.
--       protocol: the newest layout that the caller knows; seq: number of the call in its lane; session: its ID; want: how many jobs are wanted;
--       apart: '0' if no suspect may be among them, else for how long a suspect that runs keeps others out of the session (us),
--       keep_jobs, keep_bytes, keep_us: how many terminal jobs of each state are kept, how many bytes of them, and for how
--       long (us), unless the settings say so,
--       answered: number of a call of this lane that was answered, for the same session, less than an hour ago; 0 for none
--       completed: number c of completed deliveries; notes: number m of notes,
--       room: most bytes of records to return; the first job may have more,
--       address: where the session waits for wake-ups, '' if it doesn't; leaving: '1' if it needs no more of them,
--       worker: name of the worker, whose field 'quiet:<worker>' of the settings counts,
--       then c times: id: of the job; token: of the delivery, in decimal digits,
--       then m times: id, token, and span: the span context of a delivery that runs on or will run again, as NOTES keeps it,
--       then for each other delivery: id, token, outcome, class, delay (us), record or ''
--       to keep the one that is there. For 'completed' it is what is appended to the record, and the job is kept if the settings
--       or its record say so; or '' to delete the job
--       outcome: 'retry' and 'delay' (run again after the delay), 'return' (run again at once, before others), 'dead', 'cancelled', 'completed'
--       class: '0', '1', '2' or 's' (suspect); of 'retry' and 'delay' a 'g' stands behind it if the job has crashed before, and its handler was called and returned
-- Reply: {'ok', time in us, refused, alive, first token, more, next, expired, ids, records, spans, known, withheld, slots, cut_short, overruled, late}; of a
--        queue that isn't plain a call gets at most 160 jobs
--        refused: positions, from 1, of deliveries that were superseded: nothing was changed for them
--        alive: 0 if the session is unknown, over, or can't be trusted, then nothing is claimed
--        more: 1 if ready jobs remain that the call, had it wanted more or more bytes, could have had
--        next: us until a job is due, the session may take another suspect that waits, or the first session expires, -1 for never, not counting those in
--        expired; expired: up to 8 sessions to reclaim
--        ids: of the jobs that were claimed, '' where a job of a call that is made again is gone; records: in the order of ids, whose tokens count up from
--        the first; spans: the span contexts of the last notes of the ids, as far as there are any, or empty
--        known: the number of the lane's last call that Redis had before this one came, 0 if none
--        withheld: why nothing was claimed: 'paused', 'quiet', 'stop', or the queue's layout if it isn't one that the protocol knows (then next and expired
--        are for others, and told to nobody); '' if it wasn't; slots: how many each worker is to have, '' if that isn't set
--        cut_short: 1 if the call stopped before it had looked for more: it got all that it wanted, or as much as one may. If cut_short and more are 0, the
--        session is registered to be woken
--        overruled: positions of deliveries whose jobs ended cancelled, though another outcome was asked for: they were cancelled while they ran
--        late: only if there is any: of each job that the call ended since it hadn't started in time its id, and its record as it was, or '' of one that
--        there was no room for
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors: those of Redis, 'ERR signalbox: ...', and 'LAYOUT n signalbox: ...' as in enqueue.lua for a session that is unknown, if the layout is older; before
--         the first write.

local LANE, INFLIGHT, SESSIONS, FENCE, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, RUNNING, LIMITS, RATES, PARKED, UNIQUE, WINDOWS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local fixed = 15 -- arguments before those of the deliveries
local protocol, seq, session, want, apart, keep_jobs, keep_bytes, keep_us, answered, completed, notes, room, address, leaving, worker = unpack(ARGV, 1, fixed)
seq, want, apart, room, answered, notes = tonumber(seq), tonumber(want), tonumber(apart), tonumber(room), tonumber(answered), tonumber(notes)

local now = clock()
local lseq, lfirst, llast, lrefused, loverruled = string.match(redis.call('GET', LANE) or '', '^(%d+) (%d+) (%d+) ([%d,]*) ?([%d,]*)$')
lseq = tonumber(lseq)
if lseq and seq < lseq then
  return {'stale'}
end

-- Every key is read before the first write, so that one of the wrong type changes nothing.
local withheld, slots, of_queue, of_groups, most = read_settings(SETTINGS, STATS, protocol, worker)
local foreign, quiet = tonumber(withheld) ~= nil, withheld == 'quiet' or withheld == 'stop'
local expiry = redis.call('ZSCORE', SESSIONS, session)
if not expiry and (tonumber(withheld) or 999) < tonumber(protocol) then
  return other_layout(withheld, protocol)
end
-- Redis has lost a call that was answered, in a failover: it may count jobs as running here that
-- were settled then. Nobody would ever take them back from a session that lives. So it ends.
-- If the reply to that is lost, the call that is made again says so, too: the lane has 2 as the first token, which is none.
local forgot = answered > 0 and (not lseq or lseq < answered) or lseq == seq and lfirst == '2'
local alive = expiry and tonumber(expiry) > now and not forgot
local fence = last_token()
if not fence then
  return redis.error_reply('ERR signalbox: the fence key holds no token: set it to the server\'s time in microseconds, or higher if it was higher')
end
local batch = new_batch(ARGV, fixed + 1, tonumber(completed), notes)
local kept = redis.call('HLEN', JOBS)
local promotable = redis.call('ZRANGEBYSCORE', DUE, '-inf', digits(now), 'LIMIT', 0, foreign and 0 or 500)
local closer = needs_closer_look(of_queue, of_groups, most, promotable) -- then what look_closer returns
redis.call('ZCARD', IDLE)
-- No job that isn't terminal has a larger record, if that is known.
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
local terminal = redis.call('ZCARD', DEAD) + redis.call('ZCARD', CANCELLED)
if closer or batch.others <= #ARGV or not largest or largest > 4096 then -- else nobody asks how many they are
  terminal = terminal + redis.call('ZCARD', COMPLETED)
end
local ends = new_ends(now, notes > 0, keep_jobs, keep_bytes, keep_us)
local maximum = most and tonumber((string.match(most, '^[1-9]%d*$'))) -- how many jobs the queue may have that haven't ended
local full = maximum and kept - terminal >= maximum and maximum or nil -- as full_at returns it
local groups, queue
if closer then
  closer = look_closer(of_queue, of_groups, now, foreign and 0 or 100)
  groups, queue = closer.groups, closer.queue
  want = math.min(want, 160)
end
local ready = new_ready(withheld)

local first, ids, bodies, cut_short = 1, {}, {}, want == 0
local crowded, reopens = false, 0 -- suspects were left that another call could have; us until a suspect that runs keeps others out no more
local again = lseq == seq
if again then
  redis.call('HDEL', INFLIGHT, '') -- permitted out of memory, as in settle: ZADD may follow
  batch.refused, batch.overruled = positions(lrefused), positions(loverruled)
  first = tonumber(lfirst)
  ids, bodies = granted_before(first, tonumber(llast))
  cut_short = #ids >= want
else
  local asked, drawn, behind = want, 0, false -- behind: more jobs may have expired
  settle(batch, ready, ends, groups, promotable)
  if closer then
    groups.leave(batch.left)
    promotable = promote_lined(promotable, groups)
  end
  if #promotable > 0 then
    promote(promotable, ready)
  end
  if closer then
    behind = expire_late(closer.over, ends, groups)
    if behind then
      want = math.min(want, 100) -- those that are drawn may have expired as well
    end
    leave_keys_and_flows(batch, ends)
    save_groups_and_flows(closer, ready, ends)
  end
  if alive and withheld == '' then
    if closer then
      unpark(groups, now, closer.steady)
    end
    if queue then
      want = queue_room(queue, session, want)
    end
    -- No record is read before its size is known to be within bounds.
    local draw = new_draw(want, room, large(want, largest, room), ready.lengths, seq)
    if apart > 0 and want > 0 and ready.lengths[SUSPECT] > 0 then
      reopens = draw_suspects(draw, apart, now)
      ready.suspects = ready.suspects or #draw.popped > 0
    end
    draw_class(draw, groups, '0', HIGH, closer and closer.steady)
    draw_class(draw, groups, '1', NORMAL, closer and closer.steady)
    draw_class(draw, groups, '2', LOW, closer and closer.steady)
    drawn = #draw.popped
    cut_short = draw.cut_short or behind or drawn == asked
    if drawn > 0 then
      first = math.max(fence + 1, now)
      ids, bodies = grant(draw, ready, ends, closer, first)
    end
    crowded = draw.crowded
    cut_short = closer and save_groups_and_flows(closer, ready, ends) or cut_short -- a line that was blocked may go on
  end
  if queue then
    queue_count(queue, session, #ids)
    cut_short = cut_short or asked > want and drawn == want and queue.spare > 0 -- ids were drawn that are no jobs
  end
  if closer and closer.seen then
    redis.call('HSET', STATS, 'clock', closer.seen)
  end
  if largest and ready.grown > largest then
    redis.call('HSET', STATS, 'largest', ready.grown)
  elseif largest and kept == terminal and large(want, largest, room) then
    redis.call('HSET', STATS, 'largest', 4096) -- the large ones are gone
  end
  redis.call('SET', LANE, digits(seq) .. ' ' .. digits(forgot and 2 or first) .. ' ' .. digits(first + #ids - 1) .. ' ' .. table.concat(batch.refused, ',')
    .. (batch.overruled[1] and ' ' .. table.concat(batch.overruled, ',') or ''), 'PX', 3600000)
end

-- A session that can use no wake-up passes on the one that it may have got: for a job that is ready, or for the one whose time
-- is next: to run, or to expire.
local away = foreign or quiet or leaving == '1'
if leaving == '1' and alive and not foreign and withheld ~= 'stop' and worker ~= '' then
  redis.call('HSET', SETTINGS, 'quiet:' .. worker, 'stop ' .. digits(now) .. ' drains') -- so that tools don't count on it
end
local was_idle = away and address ~= ''
if was_idle then
  redis.call('ZREM', IDLE, address)
end
local pause = queue and queue.pause or 0 -- us until the queue's rate allows a job
local more, wake, expires = 0, false, was_idle and closer and redis.call('ZCARD', EXPIRES) > 0
local ahead = ready.lengths[HIGH] + ready.lengths[NORMAL] + ready.lengths[LOW] + (closer and redis.call('ZCARD', TURNS) or 0)
if queue and queue.spare <= 0 then
  pause = ahead > 0 and pause or 0
  ahead, crowded, ready.suspects = 0, false, false -- nobody may start one
end
if foreign then
  wake = true -- whatever it is for: this call can't know
elseif withheld == 'paused' then
  wake = expires -- resuming has all workers look, but jobs expire meanwhile
elseif (again or not alive or cut_short or quiet) and ahead > 0 or crowded then
  more, wake = quiet and 0 or 1, true
else
  -- For a session that may take a suspect, or one that sets its timer.
  wake = ready.suspects and ready.lengths[SUSPECT] > 0 or was_idle and (expires or redis.call('ZCARD', DUE) > 0 or pause > 0 or closer and redis.call('ZCARD', PARKED) > 0)
end
if wake then
  wake_one(IDLE, address)
end
-- Nothing is left, and the session waits for what comes: it is registered before another call can enqueue it.
if address ~= '' and alive and not away and not cut_short and more == 0 then
  redis.call('ZADD', IDLE, digits(now), address)
end

local following, expired = -1, {}
if not foreign then
  following, expired = upcoming(DUE, SESSIONS, now, PARKED, EXPIRES, withheld == '', closer and closer.steady or now, not closer)
  if pause > 0 and (following < 0 or pause < following) then
    following = pause
  end
  if reopens > 0 and not cut_short and ready.lengths[SUSPECT] > 0 and (following < 0 or reopens < following) then
    following = reopens
  end
end
if full then
  tell_room(full) -- else its chapter isn't needed
end
local spans = {}
if ends.noted and #ids > 0 then
  spans = redis.call('HMGET', NOTES, unpack(ids))
  for i = 1, #ids do
    spans[i] = spans[i] and string.match(spans[i], '^%d+ (.*)$') or false
  end
end
return {'ok', now, batch.refused, alive and 1 or 0, first, more, following, expired, ids, bodies, spans, lseq or 0,
  withheld, slots, cut_short and 1 or 0, batch.overruled, ends.late}
