-- Ends a session whose deliveries are all settled, and passes on a wake-up token that its
-- worker may have taken, for a job that is ready or that another worker has to set its timer for.
--
-- KEYS: as named below, INFLIGHT is inflight:<session>; then the worker's lanes
-- ARGV: as named below
-- Reply: the number of deliveries left; the session ends only at 0
-- Errors: those of Redis, before the first write.

local INFLIGHT, SESSIONS, DUE, WAKE, HIGH, NORMAL, LOW, SUSPECT = unpack(KEYS)
local session = unpack(ARGV)
local first_lane = 9 -- of KEYS

-- include: wake_one

local left = redis.call('HLEN', INFLIGHT)
local waiting = redis.call('ZCARD', DUE)
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  waiting = waiting + redis.call('LLEN', list)
end
redis.call('LLEN', WAKE)
redis.call('ZCARD', SESSIONS)
-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', INFLIGHT, '')
if left == 0 then
  redis.call('ZREM', SESSIONS, session)
  for k = first_lane, #KEYS do
    redis.call('DEL', KEYS[k])
  end
end
if waiting > 0 then
  wake_one(WAKE)
end
return left
