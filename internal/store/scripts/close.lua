-- Ends a session whose deliveries are all settled, and passes on a wake-up token that its
-- worker may have taken, for a job that is ready or that another worker has to set its timer for.
--
-- KEYS: 1 inflight:<session>, 2 sessions, 3 wake, 4 ready:high, 5 ready:normal, 6 ready:low,
--       7 ready:suspect, 8 due, then the worker's lanes
-- ARGV: 1 session
-- Reply: the number of deliveries left; the session ends only at 0
-- Errors: those of Redis, before the first write.

local left = redis.call('HLEN', KEYS[1])
local waiting = redis.call('ZCARD', KEYS[8])
for k = 4, 7 do
  waiting = waiting + redis.call('LLEN', KEYS[k])
end
redis.call('LLEN', KEYS[3])
redis.call('ZCARD', KEYS[2])
-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', KEYS[1], '')
if left == 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  for k = 9, #KEYS do
    redis.call('DEL', KEYS[k])
  end
end
if waiting > 0 then
  wake_one(KEYS[3])
end
return left
