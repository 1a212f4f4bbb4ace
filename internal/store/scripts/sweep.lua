-- Drops terminal jobs that have been kept long enough, at most 500 of each kind a call.
--
-- KEYS: 1 jobs, 2 stats, 3 dead, 4 cancelled
-- ARGV: 1 how long they are kept (us)
-- Reply: the number of jobs dropped
-- Errors: those of Redis, before the first write.

local before = digits(clock() - ARGV[1])
redis.call('HLEN', KEYS[1])
redis.call('HLEN', KEYS[2])
local old = {}
for k = 3, 4 do
  old[k] = redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', before, 'LIMIT', 0, 500)
end
local dropped = 0
for k, field in pairs({[3] = 'dead_bytes', [4] = 'cancelled_bytes'}) do
  local bytes = 0
  for _, id in ipairs(old[k]) do
    bytes = bytes + redis.call('HSTRLEN', KEYS[1], id)
    redis.call('HDEL', KEYS[1], id)
    redis.call('ZREM', KEYS[k], id)
  end
  if #old[k] > 0 then
    count(KEYS[2], field, -bytes)
  end
  dropped = dropped + #old[k]
end
return dropped
