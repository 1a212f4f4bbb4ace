-- Takes back jobs of a session that expired, to the head of their ready lists, and counts a crash
-- for each; crash says for which suspects it doesn't. At two crashes a job becomes a suspect, and suspects_among says which suspects a session
-- may have together: so those that crashed for another's fault run apart from it, and complete. One with two crashes goes to the tail of
-- the suspects, so that those with more run first, and alone. At
-- the limit a job is dead. A job that was cancelled while it ran ends.
--
-- KEYS, ARGV: as named below; INFLIGHT is inflight:<session>
--       protocol: the newest layout that the caller knows; session: its ID
--       crash_limit: crashes at which a job is dead; last_error: bytes to append to the record of such a job,
--       keep_jobs, keep_bytes, keep_us: as in claim.lua,
--       room: most bytes of records to read; the first job may have more,
--       details: '1' to return the records of jobs that run again; channel: the session's,
--       ttl: how long the session lived from each renewal (us); apart: as in claim.lua, but never '0'; newest: the highest token that the session had,
--       then for each job, the newest delivery first: its ID, and what the session's hash has for it
-- Reply: {'ok', left, now, done, reclaimed, dead, lost, cancelled}
--        left: deliveries left in the session; now: the clock (us)
--        done: how many of the jobs, from the first, are done with: those for which the hash has something else meanwhile changed nothing
--        reclaimed: IDs of jobs that run again
--        dead: ID, token, record and span context of each job that is dead, one after the other (claim.lua gives no session two jobs that can die here). A span
--        context is of the delivery that was lost, or empty: one that an attempt before it left is dropped
--        lost: likewise of those that run again, without one whose record is larger than room
--        cancelled: likewise of those that were cancelled while they ran. They end so, without a crash
--        {'alive'}  the session was renewed; nothing was done
--        {'other'}  the queue's layout isn't one that the protocol knows; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', before the first write.

local INFLIGHT, SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, RUNNING, UNIQUE, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local fixed = 13 -- arguments before those of the jobs
local protocol, session, crash_limit, last_error, keep_jobs, keep_bytes, keep_us, room, details, channel, ttl, apart, newest = unpack(ARGV, 1, fixed)

local now = clock()
local expiry = redis.call('ZSCORE', SESSIONS, session)
if expiry and tonumber(expiry) > now then
  return {'alive'}
end
local withheld, _, maximum = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return {'other'}
end
check_keys()
local death = death_of(tonumber(expiry or now), ttl, tonumber(newest) or 0, tonumber(apart), tonumber(crash_limit), last_error)
local ids = {}
for i = fixed + 1, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local deliveries, notes = {}, {}
if #ids > 0 then
  deliveries = redis.call('HMGET', INFLIGHT, unpack(ids))
  notes = redis.call('HMGET', NOTES, unpack(ids))
end
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$'))) -- no job that isn't terminal has a larger record
local drains = 'quiet:' .. (string.match(session, '@(.*)$') or '')
local drained = string.find(redis.call('HGET', SETTINGS, drains) or '', ' drains$') -- nobody has asked it to stop, and it is gone
local counted = redis.call('HEXISTS', RUNNING, session) == 1
local ends = new_ends(now, false, keep_jobs, keep_bytes, keep_us)
local full = full_at(maximum)
-- It would count a crash each time it is tried again.
local denied = redis.acl_check_cmd and denied_command({
  {'HDEL', INFLIGHT, ''}, {'HSET', JOBS, '', ''}, {'LPUSH', HIGH, ''}, {'RPUSH', HIGH, ''}, {'HINCRBY', STATS, '', '1'},
  {'ZREM', IDLE, ''}, {'ZRANGE', IDLE, '0', '0'}, {'ZADD', DEAD, '0', ''},
  {'ZRANGE', DEAD, '0', '0'}, {'ZREM', SESSIONS, ''}, {'HSTRLEN', JOBS, ''}, {'HGET', JOBS, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which a reclaim needs')
end

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', INFLIGHT, '')

room = tonumber(room)
local most, done, taken, seen, gone = room, 0, new_taken(), {}, {}
for i, id in ipairs(ids) do
  if deliveries[i] == ARGV[fixed + 2 * i] and not seen[id] then
    local size = redis.call('HSTRLEN', JOBS, id)
    if size > room and #gone > 0 then
      break
    end
    room = room - size
    seen[id] = true
    gone[#gone + 1] = id
    local token = delivery_fields(deliveries[i]) or '0'
    local span = span_of(notes[i], token)
    local record = redis.call('HGET', JOBS, id)
    if is_marked(deliveries[i]) then
      finish_marked(ends, id, redis.call('HGET', CANCELS, id) or '', false, record)
      if record then
        add_delivery(taken.cancelled, id, token, record, span)
      end
      note_left(taken, id, deliveries[i])
    elseif not record then
      taken.missing[#taken.missing + 1] = id
      note_left(taken, id, deliveries[i])
    else
      record = take_crashed(taken, ends, death, id, token, record, span)
      if not record then
        note_left(taken, id, deliveries[i])
      elseif details == '1' and size <= most then
        add_delivery(taken.lost, id, token, record, span)
      end
      if record and notes[i] and span == '' then
        taken.dropped[#taken.dropped + 1] = id
      end
    end
  end
  done = i
end

local woken = put_back(taken, ends, largest, withheld)
if #gone > 0 then
  redis.call('HDEL', INFLIGHT, unpack(gone))
end
if #taken.left > 0 then
  woken = leave_all(taken.left, ends, 'deleted') and withheld == '' or woken
end
if ends.linked then
  local acts = new_acts(now, withheld, ends)
  turn_flows(acts)
  end_acts(acts)
end
local left = redis.call('HLEN', INFLIGHT)
if left == 0 then
  redis.call('ZREM', SESSIONS, session)
  redis.call('HDEL', RUNNING, session)
  if drained then
    redis.call('HDEL', SETTINGS, drains)
  end
elseif counted then
  redis.call('HSET', RUNNING, session, left)
end
if counted and #gone > 0 and withheld == '' then
  woken = true -- a job that waits may run in the place of one that was cancelled or is dead
end
redis.call('ZREM', IDLE, 'p' .. channel, 's' .. channel) -- nobody may be there to hear
if woken then
  wake_one(IDLE)
end
tell_room(full)
return {'ok', left, now, done, taken.again, taken.dead, taken.lost, taken.cancelled}
