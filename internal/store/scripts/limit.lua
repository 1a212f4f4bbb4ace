-- Changes the limits of the queue or of its groups, and gives turns to lines that may go on since.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: as named below
--       protocol: the newest layout that the caller knows
--       inflight: what the keys of sessions begin with; channel: the queue's control channel
--       field: 'limits' for the queue, 'group_limits' for groups without limits of their own, 'group' for one group, 'max_length' for the number of
--       jobs that haven't ended, '' to change nothing
--       value: the limits as limits_of reads them, or the number; '' removes it: one group
--       then has those of all groups; verb: what is done with what is remembered of the setting: see decide. Of one group 'set'; 'tell' to set what a Config says
--       of it, unless that was applied before; 'carry' to note only that it was; and 'reset' to set what was applied last; by: 'worker' or 'operator', a space and a
--       name; of: with 'tell' of a group, the digest of all that this Config says of single groups: another one may count by now
--       then keys of groups, at most 500: what is known of their rates is fitted to the limits that they have now, and their lines are looked at; LIMITS has
--       the limits of 'group' under the first
-- Reply: {'ok', changed}
--        changed: 1 if the limits are others than before; if there is a field, followed by what told_reply returns behind it
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, SETTINGS, LINED, TURNS, GROUPS, RUNNING, LIMITS, RATES, PARKED = unpack(KEYS)
local first_session = 14 -- of KEYS
local fixed = 8 -- arguments before the groups
local protocol, inflight, channel, field, value, verb, by, of = unpack(ARGV, 1, fixed)

local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local now = clock()
local steady, seen = limits_clock(now)
local sessions, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
local before, m, writes = '', nil, nil
local group = field == 'group' and string.sub(ARGV[fixed + 1], 2)
if group then
  before = redis.call('HGET', LIMITS, 'g' .. group) or ''
  m = group_memory(redis.call('HGET', LIMITS, 'o' .. group))
  value, writes = decide_group(m, verb, value, by, now, verb ~= 'tell' or redis.call('HGET', SETTINGS, 'limits_of') == of)
elseif field ~= '' then
  before = redis.call('HGET', SETTINGS, field) or ''
  m = memory_of(redis.call('HGET', SETTINGS, 'of ' .. field))
  value, writes = decide(m, verb, value, by, now)
end
value = value or before

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', SETTINGS, '')
local changed = m and value ~= before
if writes then
  begin(SETTINGS, STATS, begins)
  begins = false
  if not group then
    redis.call('HSET', SETTINGS, 'of ' .. field, memory_text(m))
  elseif value == '' and m.config == '' then
    redis.call('HDEL', LIMITS, 'o' .. group) -- a queue without limits costs nothing
  else
    redis.call('HSET', LIMITS, 'o' .. group, group_memory_text(m))
  end
end
if changed then
  begin(SETTINGS, STATS, begins)
  if not (group and verb == 'tell') then -- of those there can be ten thousand; which Config counts is among the changes
    log_change(by, group and 'limits of ' .. group or field, before, value, now)
  end
  if group then
    redis.call('HDEL', LIMITS, 'g' .. group)
    if value ~= '' then
      redis.call('HSET', LIMITS, 'g' .. group, value)
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
if changed then
  send('p' .. channel, 'look')
end
if changed and field == 'max_length' then
  send(string.format('p%s', SETTINGS), 'room') -- as tell_room does
end
if (turns or due) and withheld == '' then
  wake_one(IDLE)
end
if m then
  return {'ok', unpack(told_reply(value, m, before))}
end
return {'ok', changed and 1 or 0}
