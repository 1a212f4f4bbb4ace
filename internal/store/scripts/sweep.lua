-- Drops terminal jobs that have been kept long enough, at most 500 of each kind a call.
--
-- KEYS: as named below
-- ARGV: 1 protocol, 2 how long they are kept (us)
-- Reply: the number of jobs dropped: none if the queue's layout is newer than the protocol
-- Errors: those of Redis, before the first write.

local JOBS, STATS, DEAD, CANCELLED, SETTINGS = unpack(KEYS)
local held_back = standing(SETTINGS, ARGV[1])
if held_back ~= '' and held_back ~= 'paused' then
  return 0
end
local before = digits(clock() - ARGV[2])
redis.call('HLEN', JOBS)
redis.call('HLEN', STATS)
local old = {}
for _, list in ipairs({DEAD, CANCELLED}) do
  old[list] = redis.call('ZRANGEBYSCORE', list, '-inf', before, 'LIMIT', 0, 500)
end
local dropped = 0
for list, field in pairs({[DEAD] = 'dead_bytes', [CANCELLED] = 'cancelled_bytes'}) do
  local bytes = 0
  for _, id in ipairs(old[list]) do
    bytes = bytes + redis.call('HSTRLEN', JOBS, id)
    redis.call('HDEL', JOBS, id)
    redis.call('ZREM', list, id)
  end
  if #old[list] > 0 then
    count(STATS, field, -bytes)
  end
  dropped = dropped + #old[list]
end
return dropped
