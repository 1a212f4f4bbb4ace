-- Changes the limits of the queue or of its groups, and gives turns to lines that may go on since.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: as named below
--       inflight: what the keys of sessions begin with; channel: the queue's control channel
--       field: 'limits' for the queue, 'group_limits' for groups without limits of their own, 'group' for one group, 'max_length' for the number of
--       jobs that haven't ended, '' to change nothing
--       value: the limits as limits_of reads them, or the number; '0 0 0 0' or '0' says that there is none; '' removes the limits of one group, which
--       then has those of all groups; seed: '1' to set it only if there
--       is none
--       then keys of groups, at most 500: what is known of their rates is fitted to the limits that they have now, and their lines are looked at; LIMITS has the limits of 'group' under the first
-- Reply: {'ok', changed}: 1 if the limits are others than before
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, SETTINGS, LINED, TURNS, GROUPS, RUNNING, LIMITS, RATES, PARKED = unpack(KEYS)
local first_session = 14 -- of KEYS
local fixed = 6 -- arguments before the groups
local protocol, inflight, channel, field, value, seed = unpack(ARGV, 1, fixed)

-- include: clock, digits, standing, session_keys, send, limits_of, limits_clock, group_limits, lines, begin, put_on, wake_one

local held_back, _, _, begins = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end
local now = clock()
local steady, seen = limits_clock(now)
local sessions, all = session_keys()
if not all then
  return {'again'}
end
local before = ''
if field == 'group' then
  before = redis.call('HGET', LIMITS, ARGV[fixed + 1]) or ''
elseif field ~= '' then
  before = redis.call('HGET', SETTINGS, field) or ''
end
redis.call('HLEN', JOBS)
redis.call('ZCARD', DUE)
redis.call('ZCARD', IDLE)
redis.call('ZCARD', LINED)
redis.call('ZCARD', TURNS)
redis.call('HLEN', GROUPS)
redis.call('HLEN', RUNNING)
redis.call('ZCARD', RATES)
redis.call('HLEN', LIMITS)
redis.call('ZCARD', PARKED)
for k = first_session, #KEYS do
  redis.call('HLEN', KEYS[k])
end

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', SETTINGS, '')
local none = value == '0 0 0 0' or value == '0' -- it keeps others from being seeded
local changed = field ~= '' and value ~= before and not (seed == '1' and before ~= '')
if changed then
  begin(SETTINGS, STATS, begins)
  if field == 'group' then
    redis.call('HDEL', LIMITS, ARGV[fixed + 1])
    if value ~= '' then
      redis.call('HSET', LIMITS, ARGV[fixed + 1], value)
    end
  else
    redis.call('HDEL', SETTINGS, field)
    if value ~= '' then
      redis.call('HSET', SETTINGS, field, value)
    end
  end
  if field == 'limits' then
    redis.call('DEL', RUNNING)
    local queue = limits_of(value)
    local bound = queue.bound(redis.call('ZSCORE', RATES, ''), steady)
    if not queue.rated then
      redis.call('ZREM', RATES, '')
    elseif bound then
      redis.call('ZADD', RATES, bound, '')
    end
    for session, k in pairs(sessions) do
      local n = redis.call('HLEN', KEYS[k])
      if n > 0 and queue.running < math.huge then
        redis.call('HSET', RUNNING, session, n)
      end
    end
  end
end
if seen and redis.call('ZCARD', RATES) > 0 then
  redis.call('HSET', STATS, 'clock', seen)
end
local g, keys, turns = lines(group_limits(redis.call('HGET', SETTINGS, 'group_limits'), steady)), {}, {}
for i = fixed + 1, #ARGV do
  keys[#keys + 1] = ARGV[i]
end
g.load(keys)
for _, key in ipairs(keys) do
  if not g.of(key).limits.rated then
    redis.call('ZREM', RATES, key)
  end
  for class = 0, 2 do
    local state = g.state(key, class)
    if string.sub(key, 1, 1) == 'g' and state == 'b' or state == 'w' then
      g.turn(key, tostring(class), turns)
      redis.call('ZREM', PARKED, class .. key)
    end
  end
end
if #turns > 0 then
  redis.call('ZADD', TURNS, unpack(turns))
end
g.save()
local due = #keys > 0 and put_on(keys, now)
if changed and seed ~= '1' then
  send('p' .. channel, 'look')
end
if changed and field == 'max_length' then
  send(string.format('p%s', SETTINGS), 'room') -- as tell_room does
end
if (#turns > 0 or due) and held_back == '' then
  wake_one(IDLE)
end
return {'ok', changed and (field == 'group' or before ~= '' or not none) and 1 or 0}
