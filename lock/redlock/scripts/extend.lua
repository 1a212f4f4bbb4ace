-- Extends the lock on one of the N nodes of a Redlock if it is still the holder's. It never
-- sets a lock, so it never counts one that it has set. The holder may ask acquire.lua to set the
-- lock where it is gone, once a majority has confirmed that it still has it: see again.go.
--
-- KEYS     1 the lock, 2 its record, which lives on while the lock is in use
-- ARGV[1]  the holder's random value
-- ARGV[2]  the lock's TTL from now, ms
--
-- Reply    1 extended; 0 the lock is gone; -1 it is another's
-- Errors   WRONGTYPE   somebody put another type in the lock's place
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
if held ~= ARGV[1] then return held and -1 or 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], RECORD_TTL)
return 1
