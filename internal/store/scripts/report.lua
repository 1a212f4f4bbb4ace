-- Makes a client the one that reports the queue's depths, or lets it stay the one.
--
-- KEYS: as named below
-- ARGV: 1 client, 2 how long it is the one from now (ms); 0 to give that up
-- Reply: 1 if the client is the one, else 0
-- Errors: those of Redis, before the first write.

local REPORTER = unpack(KEYS)
local reporter = redis.call('GET', REPORTER)
if reporter and reporter ~= ARGV[1] then
  return 0
end
-- When Redis is out of memory it still permits this, and with it the next.
redis.call('DEL', REPORTER)
if ARGV[2] == '0' then
  return 0
end
redis.call('SET', REPORTER, ARGV[1], 'PX', ARGV[2])
return 1
