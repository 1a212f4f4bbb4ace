-- Takes back jobs of a session that expired, to the head of their ready lists, and counts a crash
-- for each; crash says for which suspects it doesn't. At two crashes a job becomes a suspect, and suspects_among says which suspects a session
-- may have together: so those that crashed for another's fault run apart from it, and complete. One with two crashes goes to the tail of
-- the suspects, so that those with more run first, and alone. At
-- the limit a job is dead. A job that was cancelled while it ran ends.
--
-- KEYS, ARGV: as named below; INFLIGHT is inflight:<session>
--       crash_limit: crashes at which a job is dead; last_error: bytes to append to the record of such a job,
--       keep_jobs, keep_bytes, keep_us: as in claim.lua,
--       room: most bytes of records to read; the first job may have more,
--       details: '1' to return the records of jobs that run again; channel: the session's,
--       ttl: how long the session lived from each renewal (us); hold: as in claim.lua, but never '0'; newest: the highest token that the session had,
--       then for each job, the newest delivery first: id, what the session's hash holds for it
-- Reply: {'ok', left, now, done, reclaimed, dead, lost, cancelled}: deliveries left in the session; the clock;
--        how many of the jobs, from the first, are done with: those that the hash doesn't hold so
--        any more changed nothing; ids of jobs that run again; id, token, record and span context of each
--        that is dead, one after the other (claim.lua gives no session two jobs that can die here);
--        likewise of those that run again, but for one whose record is larger than room. A span context is
--        of the delivery that was lost, or empty: one that an attempt before it left is dropped;
--        cancelled: likewise of those that were cancelled while they ran. They end so, without a crash
--        {'alive'}  the session was renewed; nothing was done
--        {'other'}  the queue's layout isn't one that the protocol knows; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', before the first write.

local INFLIGHT, SESSIONS, JOBS, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, RUNNING, UNIQUE = unpack(KEYS)
local fixed = 13 -- arguments before those of the jobs
local protocol, session, crash_limit, last_error, keep_jobs, keep_bytes, keep_us, room, details, channel, ttl, hold, newest = unpack(ARGV, 1, fixed)

-- include: clock, standing, denied_command, wake_one, retention, crash

local now = clock()
local expiry = redis.call('ZSCORE', SESSIONS, session)
if expiry and tonumber(expiry) > now then
  return {'alive'}
end
local held_back, _, maximum = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return {'other'}
end
-- When the process died, at the earliest and at the latest: it renewed its session, and claimed jobs, before that, and would have renewed it again.
hold = tonumber(hold)
local renewed = tonumber(expiry or now) - ttl
local earliest = math.max(renewed, tonumber(newest) or 0)
local latest = math.max(renewed + hold, earliest)
local ids = {}
for i = fixed + 1, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local held, notes = {}, {}
if #ids > 0 then
  held = redis.call('HMGET', INFLIGHT, unpack(ids))
  notes = redis.call('HMGET', NOTES, unpack(ids))
else
  redis.call('HLEN', INFLIGHT)
end
local noted = redis.call('HLEN', NOTES) > 0
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$'))) -- no job that isn't terminal has a larger record
local grown = 0 -- the largest record that was written
local drains = 'quiet:' .. (string.match(session, '@(.*)$') or '')
local drained = string.find(redis.call('HGET', SETTINGS, drains) or '', ' drains$') -- nobody has asked it to stop, and it is gone
redis.call('HLEN', JOBS)
redis.call('ZCARD', IDLE)
redis.call('ZCARD', DEAD)
redis.call('ZCARD', CANCELLED)
redis.call('ZCARD', COMPLETED)
redis.call('HLEN', CANCELS)
local counted = redis.call('HEXISTS', RUNNING, session) == 1
redis.call('ZCARD', LINED)
redis.call('ZCARD', TURNS)
redis.call('HLEN', GROUPS)
redis.call('HLEN', UNIQUE)
local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT}
for _, list in pairs(lists) do
  redis.call('LLEN', list)
end
local limits = retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
-- include: queue_length
local no_room = maximum and queue_length() >= maximum -- the queue has as many jobs as it may have, or more
-- It would count a crash each time it is tried again.
local denied = redis.acl_check_cmd and denied_command({
  {'HDEL', INFLIGHT, ''}, {'HSET', JOBS, '', ''}, {'LPUSH', HIGH, ''}, {'RPUSH', HIGH, ''}, {'HINCRBY', STATS, '', '1'},
  {'ZREM', IDLE, ''}, {'ZRANGE', IDLE, '0', '0'}, {'ZADD', DEAD, '0', ''},
  {'ZRANGE', DEAD, '0', '0'}, {'ZREM', SESSIONS, ''}, {'HSTRLEN', JOBS, ''}, {'HGET', JOBS, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which a reclaim needs')
end

-- include: note, finish, ready, is_marked, finish_marked, group_held

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', INFLIGHT, '')

local most = tonumber(room)
room = most
local done, crashed = 0, 0
local reclaimed, dead, lost, cancelled = {}, {}, {}, {}
local records, gone, missing, dropped, pushed = {}, {}, {}, {}, {}
local later = {} -- suspects with two crashes
local left_groups = {} -- the groups that jobs don't hold any more

local function tell(list, id, token, record, span)
  list[#list + 1] = id
  list[#list + 1] = token
  list[#list + 1] = record
  list[#list + 1] = span
end

local seen = {}
for i, id in ipairs(ids) do
  if held[i] == ARGV[fixed + 2 * i] and not seen[id] then
    local size = redis.call('HSTRLEN', JOBS, id)
    if size > room and #gone > 0 then
      break
    end
    room = room - size
    seen[id] = true
    gone[#gone + 1] = id
    local token = string.match(held[i], '^%d+') or '0'
    local of, span = string.match(notes[i] or '', '^(%d+) (.*)$')
    if of ~= token then
      span = ''
    end
    local record = redis.call('HGET', JOBS, id)
    local group = group_held(held[i])
    if is_marked(held[i]) then
      finish_marked(id, redis.call('HGET', CANCELS, id) or '', false, record)
      if record then
        tell(cancelled, id, token, record, span)
      end
      left_groups[#left_groups + 1] = group
    elseif not record then
      missing[#missing + 1] = id
      left_groups[#left_groups + 1] = group
    else
      local crashes
      local began = tonumber(token) or 0 -- a strange token may be no number
      record, crashes = crash(record, math.max(earliest - began, 0), math.max(latest - began, 0), hold)
      crashed = crashed + (crashes and 1 or 0)
      if crashes and crashes >= tonumber(crash_limit) then
        finish('dead', {id}, record .. last_error)
        tell(dead, id, token, record, span)
        left_groups[#left_groups + 1] = group
      else
        if crashes then
          records[#records + 1] = id
          records[#records + 1] = record
          grown = math.max(grown, #record)
        end
        local class = crashes and crashes >= 2 and 's' or string.sub(record, 2, 2)
        if crashes == 2 then
          table.insert(later, 1, id)
        else
          pushed[class] = pushed[class] or {}
          table.insert(pushed[class], id)
        end
        reclaimed[#reclaimed + 1] = id
        if details == '1' and size <= most then
          tell(lost, id, token, record, span)
        end
        if notes[i] and span == '' then
          dropped[#dropped + 1] = id
        end
      end
    end
  end
  done = i
end

if #records > 0 then
  redis.call('HSET', JOBS, unpack(records))
end
if largest and grown > largest then
  redis.call('HSET', STATS, 'largest', grown)
end
local woken = #later > 0 and ready(SUSPECT, later, false, held_back)
for class, members in pairs(pushed) do
  woken = ready(lists[class] or NORMAL, members, true, held_back) -- the oldest is pushed last, so that it stands first
end
if #missing > 0 then
  finish('completed', missing)
end
if crashed > 0 then
  note('crashed', crashed)
end
if #dropped > 0 then
  redis.call('HDEL', NOTES, unpack(dropped))
end
if #gone > 0 then
  redis.call('HDEL', INFLIGHT, unpack(gone))
end
if #left_groups > 0 then
  -- include: lines
  local g = lines()
  g.leave(left_groups)
  woken = g.save() and held_back == '' or woken
end
-- include: reclaim_unique
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
if counted and #gone > 0 and held_back == '' then
  woken = true -- a job that waits may run in the place of one that was cancelled or is dead
end
redis.call('ZREM', IDLE, 'p' .. channel, 's' .. channel) -- nobody may be there to hear
if woken then
  wake_one(IDLE)
end
if no_room then
  -- include: tell_room
  tell_room(maximum)
end
return {'ok', left, now, done, reclaimed, dead, lost, cancelled}
