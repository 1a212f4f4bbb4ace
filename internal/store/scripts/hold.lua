-- Keeps the jobs of the queue or of one group from starting for a time, or ends that.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       group: key of the group, '' for the queue; hold: for how long (us), 0 to end what was set before
--       by: ID of the job whose handler asks for it, '' for an operator
--       channel: the queue's control channel
-- Reply: {'ok', until}
--        until: until when jobs are held back, by Redis' clock (us), 0 if they aren't
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local STATS, SETTINGS, LIMITS, RATES, PARKED = unpack(KEYS)
local protocol, group, hold, by, channel = unpack(ARGV)

local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local now = clock()
local steady, seen = limits_clock(now)
local before = tonumber(redis.call('ZSCORE', RATES, 'h' .. group) or 0)

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', SETTINGS, '')
local till = hold == '0' and 0 or steady + tonumber(hold)
if till == 0 then
  redis.call('ZREM', RATES, 'h' .. group)
  redis.call('HDEL', LIMITS, 'h' .. group)
  local moved = 0
  for class = 0, 2 do
    moved = moved + redis.call('ZADD', PARKED, 'XX', 'CH', digits(steady), class .. group)
  end
  if moved > 0 then -- else these lines would wait if Redis' clock is set back before anybody notes the time
    redis.call('HSET', STATS, 'clock', digits(steady) .. ' ' .. digits(steady - now))
  end
  send('p' .. channel, 'look')
elseif till > before then
  begin(SETTINGS, STATS, begins)
  redis.call('ZADD', RATES, digits(till), 'h' .. group)
  redis.call('HSET', LIMITS, 'h' .. group, by)
  if seen then
    redis.call('HSET', STATS, 'clock', seen)
  end
else
  till = before
end
return {'ok', till > 0 and till - (steady - now) or 0}
