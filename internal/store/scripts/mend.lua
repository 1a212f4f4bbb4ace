-- Repairs what is wrong with one job, or with the queue, if it is still so.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: protocol: the newest layout that the caller knows
--       inflight, channels, search: as in examine.lua
--       id, digest: the job, and the first text of what facts_of must return for it. '' and '' for steps about the queue
--       then for each step: verb: a function of steps_of; a, b: its parameters, '' for those that it hasn't
-- Reply: {'ok', time in us, done}
--        done: how many steps were done; 0 if the digest is another one, or what a step is for isn't so any more
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, FENCE, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, RUNNING, PARKED, UNIQUE, WINDOWS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES = unpack(KEYS)
local first_session = 29 -- of KEYS
local fixed = 6 -- arguments before the steps
local protocol, inflight, channels, search, id, digest = unpack(ARGV, 1, fixed)

local withheld, _, maximum = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
local now = clock()
local sessions, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
-- A user who lacks one of these rights would leave a job between two places.
local denied = redis.acl_check_cmd and denied_command({
  {'ZREM', SESSIONS, ''}, {'ZADD', SESSIONS, '0', ''}, {'LREM', HIGH, '1', ''}, {'RPUSH', HIGH, ''}, {'LPUSH', HIGH, ''},
  {'HSET', CANCELS, '', ''}, {'HDEL', NOTES, ''}, {'HINCRBY', STATS, '', '1'}, {'SET', FENCE, ''}, {'ZRANGE', IDLE, '0', '0'},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which a repair needs')
end
check_keys()
local repair = new_repair(id, now, withheld, channels, first_session, sessions)
local facts = facts_of(id, first_session, inflight, search == '1')
local full = full_at(maximum)
if digest ~= '' and digest ~= facts[1] then
  return {'ok', now, 0}
end

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('ZREM', SESSIONS, '')

local steps, done = steps_of(repair), 0
for i = fixed + 1, #ARGV, 3 do
  local verb, a, b = unpack(ARGV, i, i + 2)
  done = done + (steps[verb](a, b) and 1 or 0)
end
if repair.groups then
  wake_for(repair, repair.groups.save())
end
if repair.woken then
  wake_one(IDLE)
end
tell_room(full)
return {'ok', now, done}
