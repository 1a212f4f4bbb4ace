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

local held_back, _, _, begins = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return other_layout(held_back, protocol)
end
check_keys()
local now = clock()
local steady, seen = limits_clock(now)
local sessions, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
local before = ''
if field == 'group' then
  before = redis.call('HGET', LIMITS, ARGV[fixed + 1]) or ''
elseif field ~= '' then
  before = redis.call('HGET', SETTINGS, field) or ''
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
    limit_queue(limits_of(value), sessions, steady)
  end
end
if seen and redis.call('ZCARD', RATES) > 0 then
  redis.call('HSET', STATS, 'clock', seen)
end
local keys = {}
for i = fixed + 1, #ARGV do
  keys[#keys + 1] = ARGV[i]
end
local turns = limit_groups(keys, limits_of_groups(redis.call('HGET', SETTINGS, 'group_limits'), steady))
local due = #keys > 0 and put_on(keys, now)
if changed and seed ~= '1' then
  send('p' .. channel, 'look')
end
if changed and field == 'max_length' then
  send(string.format('p%s', SETTINGS), 'room') -- as tell_room does
end
if (turns or due) and held_back == '' then
  wake_one(IDLE)
end
return {'ok', changed and (field == 'group' or before ~= '' or not none) and 1 or 0}
