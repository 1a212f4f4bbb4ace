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
-- ARGV[5]  until when this may run, by the server's clock, µs; 0: whenever. A call that comes later changes
--          nothing: its caller has given it up
--
-- Reply    {1, token}           granted; the token is the server's clock,
--          {1, token, now}      or is ahead of it
--          {0, i, ms, ours, at, now}
--                               the i-th lock is held by another for at most so long, -1: for
--                               ever; ours is 1 if that is a client of this library; at is
--                               when this call put the caller in line, µs, and 0 if it did not
--          {-1, now}            it came too late, or the value was granted before and that grant has ended
-- Errors   WRONGTYPE   one of the keys holds another type
--          BADRECORD   the record is none
-- After an error nothing is written.
local value = ARGV[1]
local now, stamp = clock()
if ARGV[5] ~= '0' and now > ARGV[5] + 0 then return {-1, now} end

-- The usual case first: one lock, which is free and not reserved. If it is not so, nothing has been written.
if #KEYS == 3 then
  local record = redis.pcall('GET', KEYS[2])
  local digits -- of the last token, unless the record names the value or is a reservation
  if record == false then
    digits = '0'
  elseif type(record) == 'string' and not string.find(record, value, 1, true) then
    digits = string.match(record, '^(%d+) %S+ .*[^*]$')
  end
  local last = digits and #digits <= 16 and digits + 0
  -- An error is told below, if the lock is free: one that is held is so on a Redis that takes no writes too.
  local set = last and last < MAX_TOKEN and redis.pcall('SET', KEYS[1], value, 'NX', 'PX', ARGV[2])
  if set and set.ok then
    local ahead = last >= now
    local token = ahead and decimal(last + 1) or stamp
    redis.call('SET', KEYS[2], token .. ' ' .. value .. ' ' .. ARGV[3], 'PX', RECORD_TTL)
    -- The process need not be told any more: others of it who wait are, by the one who has the lock now.
    if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[3], ARGV[4]) end
    if ahead then return {1, token, now} end
    return {1, token}
  end
end

local token, same = 0, true
local blocked, blocked_for, ours
local free, ended = {}, false
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
  -- A value is granted once. A copy of a call that comes after the end of its grant is nobody's.
  ended = ended or not held and by == value and owner ~= '*'
end

if blocked then
  if blocked_for == -1 then blocked_for = redis.call('PTTL', KEYS[blocked]) end
  local at = 0
  if ARGV[4] ~= '' then
    -- What goes wrong here costs the waiter time, not the lock: it looks now and then.
    if redis.pcall('ZADD', KEYS[blocked + 2], 'NX', decimal(now), ARGV[4]) == 1 then at = now end
    redis.pcall('PEXPIRE', KEYS[blocked + 2], LINE_TTL)
  end
  return {0, math.floor(blocked / 3) + 1, blocked_for, ours, at, now}
end
if ended then return {-1, now} end

if not same then token = math.max(token + 1, now) end
for k = 1, #KEYS, 3 do
  if free[k] then
    redis.call('SET', KEYS[k], value, 'NX', 'PX', ARGV[2])
  else
    redis.call('PEXPIRE', KEYS[k], ARGV[2])
  end
  redis.call('SET', KEYS[k + 1], decimal(token) .. ' ' .. value .. ' ' .. ARGV[3], 'PX', RECORD_TTL)
  if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[k + 2], ARGV[4]) end
end
if token == now then return {1, decimal(token)} end
return {1, decimal(token), now}
