-- Makes a client the queue's reporter, the one client that reports the depths, or extends that time.
--
-- KEYS, ARGV: as named below
--       client: its name
--       ttl: how long the client is the reporter from now (ms); 0 to end that
-- Reply: 1 if the client is the reporter, else 0
-- Errors: those of Redis, before the first write.

local REPORTER = unpack(KEYS)
local client, ttl = unpack(ARGV)

local reporter = redis.call('GET', REPORTER)
if reporter and reporter ~= client then
  return 0
end
-- When Redis is out of memory it still permits this write, and then the next.
redis.call('DEL', REPORTER)
if ttl == '0' then
  return 0
end
redis.call('SET', REPORTER, client, 'PX', ttl)
return 1
