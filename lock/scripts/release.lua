-- Deletes the lock if it is still the holder's.
--
-- A client may repeat it when the reply was lost, and then finds the lock gone. That its
-- token is still the last one granted shows that nobody has had the lock since and
-- that the server has kept its memory.
--
-- KEYS[1]  the lock
-- KEYS[2]  the token counter
-- ARGV[1]  the holder's random value
-- ARGV[2]  the holder's token; empty if it never learned it
--
-- Reply    1 released, now or before; 0 the lock is gone or another's
-- Errors   WRONGTYPE   somebody put another type in the lock's place
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  return held
end
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
if not held and redis.pcall('GET', KEYS[2]) == ARGV[2] then
  return 1
end
return 0
