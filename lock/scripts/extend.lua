-- Extends the locks if all of them are still the holder's. It never sets a lock: one that
-- is gone stays gone.
--
-- KEYS     for each lock two: the lock; its record, which lives on while the lock is in use
-- ARGV[1]  the holder's random value
-- ARGV[2]  the locks' TTL from now, ms
--
-- Reply    1 extended; 0 a lock is gone; -1 a lock is another's
-- Errors   WRONGTYPE   somebody put another type in a lock's place
for k = 1, #KEYS, 2 do
  local held = redis.pcall('GET', KEYS[k])
  if type(held) == 'table' then return held end
  if not held then return 0 end
  if held ~= ARGV[1] then return -1 end
end
for k = 1, #KEYS, 2 do
  redis.call('PEXPIRE', KEYS[k], ARGV[2])
  redis.call('PEXPIRE', KEYS[k + 1], RECORD_TTL)
end
return 1
