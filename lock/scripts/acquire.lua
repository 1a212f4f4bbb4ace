-- Takes the lock if nobody holds it and grants a token. Run again with the same value it
-- gives the same answer, so a client may repeat it when the reply was lost.
--
-- KEYS[1]  the lock: a string
-- KEYS[2]  the token counter: a string, the last token granted
-- ARGV[1]  the attempt's random value
-- ARGV[2]  the lock's TTL, ms
-- ARGV[3]  the counter's TTL, ms
--
-- Reply    {1, token}  granted
--          {0, ms}     held by another for at most so long; -1: for ever
-- Errors   WRONGTYPE   one of the keys holds another type
--          BADCOUNTER  the counter is no number below 2^53 - 1
-- After an error nothing is written.
local held = redis.pcall('GET', KEYS[1])
local last = redis.pcall('GET', KEYS[2])
if type(held) == 'table' then return held end
if type(last) == 'table' then return last end
local floor = 0
if last then
  if #last == 0 or #last > 16 or string.find(last, '%D') or tonumber(last) >= 9007199254740991 then
    return redis.error_reply('BADCOUNTER it is no number below 2^53 - 1')
  end
  floor = tonumber(last)
end
if held == ARGV[1] and last then
  return {1, last} -- nobody can have been granted a later one while we hold the lock
end
if held and held ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1])}
end

local now = redis.call('TIME')
-- Not tostring: it turns microseconds into 1.76e+15.
local token = string.format('%.0f', math.max(floor + 1, now[1] * 1000000 + now[2]))
if not held then
  redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
end
redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
return {1, token}
