-- Repairs what is wrong with one job, or with the queue, if it is still so.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: protocol; inflight, channels, search: as in examine.lua
--       id, digest: the job, and the first text of what facts_of must return for it. '' and '' for steps about the queue
--       then for each step: a verb and two values, as fragments/mend_step.lua has them
-- Reply: {'ok', time in us, n}: how many steps were done; 0 if the digest is another one, or what a step is for isn't so any more
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, FENCE, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, RUNNING, PARKED, UNIQUE, WINDOWS, EXPIRES = unpack(KEYS)
local first_session = 25 -- of KEYS
local fixed = 6 -- arguments before the steps
local protocol, inflight, channels, search, id, digest = unpack(ARGV, 1, fixed)

local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT}

-- include: clock, digits, standing, denied_command, session_keys, facts_of, wake_one, ready, count, forget, key_fault, recount

local held_back, _, maximum = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end
local now = clock()
local sessions, all = session_keys()
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
local terminal
-- include: terminal_states
redis.call('ZCARD', IDLE)
redis.call('ZCARD', LINED)
redis.call('ZCARD', TURNS)
redis.call('HLEN', GROUPS)
redis.call('HLEN', UNIQUE)
redis.call('ZCARD', WINDOWS)
redis.call('ZCARD', EXPIRES)
redis.call('ZCARD', PARKED)
redis.call('HLEN', RUNNING)
local largest, fence = redis.call('HGET', STATS, 'largest'), redis.call('GET', FENCE)
for k = first_session, #KEYS do
  redis.call('HLEN', KEYS[k])
end
for _, list in pairs(lists) do
  redis.call('LLEN', list)
end
local facts = facts_of(id)
-- include: queue_length
local no_room = maximum and queue_length() >= maximum -- the queue has as many jobs as it may have, or more
if digest ~= '' and digest ~= facts[1] then
  return {'ok', now, 0}
end

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('ZREM', SESSIONS, '')

local done, woken = 0, false
local g -- groups, once a step needs them
for i = fixed + 1, #ARGV, 3 do
  local verb, a, b = unpack(ARGV, i, i + 2)
  local did = true
  -- include: mend_step
  done = done + (did and 1 or 0)
end
if g then
  woken = g.save() and held_back == '' or woken
end
if woken then
  wake_one(IDLE)
end
if no_room then
  -- include: tell_room
  tell_room(maximum)
end
return {'ok', now, done}
