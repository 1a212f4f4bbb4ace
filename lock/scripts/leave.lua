-- Takes a process out of the waiting line of a lock. Nobody there waits any more.
--
-- KEYS     1 the waiting line
-- ARGV[1]  "<channel> <owner>", as in acquire.lua
--
-- Reply    1 it stood there; 0 it did not
local left = redis.pcall('ZREM', KEYS[1], ARGV[1])
return left == 1 and 1 or 0
