-- Takes the locks of all keys, or none, and grants them one token. Run again with the same
-- value it gives the same answer, so a client may repeat it when the reply was lost.
-- It also confirms an offer: then the locks, or some, hold the value already.
--
-- KEYS     for each lock three: the lock; its record; its waiting line, a sorted set of the
--          channels and names of those who wait, by the time they came, µs
-- ARGV[1]  the attempt's random value
-- ARGV[2]  the locks' TTL, ms
-- ARGV[3]  the owner's name
-- ARGV[4]  "<channel> <owner>": where to tell that a held lock is free; empty: nowhere
--
-- Reply    {1, token}           granted
--          {0, i, ms, ours, at} the i-th lock is held by another for at most so long, -1: for
--                               ever; ours is 1 if that is a client of this library; at is
--                               when this call put the caller in line, µs, and 0 if it did not
-- Errors   WRONGTYPE   one of the keys holds another type
--          BADRECORD   the record is none
-- After an error nothing is written.
local value = ARGV[1]

-- The usual case first: one lock, which is free and not reserved. If it is not so, nothing has been written.
if #KEYS == 3 then
  local record = redis.pcall('GET', KEYS[2])
  local digits = type(record) == 'string' and string.match(record, '^(%d+) %S+ .*[^*]$') or record == false and '0'
  local last = digits and #digits <= 16 and tonumber(digits)
  -- An error is told below, if the lock is free: one that is held is so on a Redis that takes no writes too.
  local set = last and last < MAX_TOKEN and redis.pcall('SET', KEYS[1], value, 'NX', 'PX', ARGV[2])
  if set and set.ok then
    local token = decimal(math.max(last + 1, clock()))
    redis.call('SET', KEYS[2], token .. ' ' .. value .. ' ' .. ARGV[3], 'PX', RECORD_TTL)
    return {1, token}
  end
end

local now = clock()
local token, same = 0, true
local blocked, blocked_for, ours
local free = {}
for k = 1, #KEYS, 3 do
  local held = redis.pcall('GET', KEYS[k])
  if type(held) == 'table' then return held end
  local last, by, owner = read_record(KEYS[k + 1])
  if type(last) == 'table' then return last end
  if not blocked then
    if held and held ~= value then
      blocked, blocked_for, ours = k, -1, held == by and 1 or 0
    elseif not held and owner == '*' and by ~= value and now < last + RESERVED and last < now + RESERVED then
      blocked, blocked_for, ours = k, math.ceil((last + RESERVED - now) / 1000), 1
    end
  end
  token = math.max(token, last)
  same = same and held == value and by == value and owner ~= '*' and (k == 1 or token == last)
  free[k] = not held
end

if blocked then
  if blocked_for == -1 then blocked_for = redis.call('PTTL', KEYS[blocked]) end
  local at = 0
  if ARGV[4] ~= '' then
    -- What goes wrong here costs the waiter time, not the lock: it looks now and then.
    if redis.pcall('ZADD', KEYS[blocked + 2], 'NX', decimal(now), ARGV[4]) == 1 then at = now end
    redis.pcall('PEXPIRE', KEYS[blocked + 2], LINE_TTL)
  end
  return {0, (blocked + 2) / 3, blocked_for, ours, at}
end

if not same then token = math.max(token + 1, now) end
token = decimal(token)
for k = 1, #KEYS, 3 do
  if free[k] then
    redis.call('SET', KEYS[k], value, 'NX', 'PX', ARGV[2])
  else
    redis.call('PEXPIRE', KEYS[k], ARGV[2])
  end
  redis.call('SET', KEYS[k + 1], token .. ' ' .. value .. ' ' .. ARGV[3], 'PX', RECORD_TTL)
end
return {1, token}
