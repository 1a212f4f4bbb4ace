-- Makes a client the one that reports the queue's depths, or lets it stay the one.
--
-- KEYS, ARGV: as named below
--       ttl: for how long the client is the one from now (ms); 0 to give that up
-- Reply: 1 if the client is the one, else 0
-- Errors: those of Redis, before the first write.

local REPORTER = unpack(KEYS)
local client, ttl = unpack(ARGV)

local reporter = redis.call('GET', REPORTER)
if reporter and reporter ~= client then
  return 0
end
-- When Redis is out of memory it still permits this, and with it the next.
redis.call('DEL', REPORTER)
if ttl == '0' then
  return 0
end
redis.call('SET', REPORTER, client, 'PX', ttl)
return 1
