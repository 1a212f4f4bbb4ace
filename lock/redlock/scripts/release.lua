-- Gives the lock up on one of the N nodes of a Redlock if it is still the holder's. The record
-- stays: no token may be granted twice.
--
-- KEYS     1 the lock
-- ARGV[1]  the holder's random value
-- ARGV[2]  for how long the lock must be held on, ms
--
-- Reply    1 given up; 0 the lock is gone; -1 it is another's
-- Errors   WRONGTYPE   somebody put another type in the lock's place
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held ~= ARGV[1] then return held and -1 or 0 end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1])
end
return 1
