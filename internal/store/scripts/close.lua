-- Ends a session whose deliveries are all settled. The session may have got a wake-up that it can't use any more. So, if jobs wait,
-- wakes another worker, which claims a ready job or sets its timer for a job that is due later. Takes statistics along.
--
-- KEYS: as named below, INFLIGHT is inflight:<session>; LANE is the lane of the batches of times; then the worker's other lanes, which
--       end with the session. LANE expires by itself: it knows the batch if the call is made again
-- ARGV: as named below
--       session: its ID; channel: the session's
--       worker: '', or the name of the worker if the worker ends as well: then the settings no longer have it as quiet
--       seq, waited, ran: a batch of times of deliveries: its number in LANE, and how many of them waited and ran how long, see sample
-- Reply: the number of deliveries left; the session ends only if it is 0
-- Errors: those of Redis, before the first write.

local LANE, INFLIGHT, SESSIONS, DUE, IDLE, STATS, HISTORY, HIGH, NORMAL, LOW, SUSPECT, SETTINGS, TURNS, RUNNING, PARKED, EXPIRES = unpack(KEYS)
local session, channel, worker, seq, waited, ran = unpack(ARGV)
local first_lane = 17 -- of KEYS

local left = redis.call('HLEN', INFLIGHT)
local waiting = redis.call('ZCARD', DUE) + redis.call('ZCARD', TURNS) + redis.call('ZCARD', PARKED) + redis.call('ZCARD', EXPIRES)
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  waiting = waiting + redis.call('LLEN', list)
end
redis.call('ZCARD', IDLE)
redis.call('HLEN', SETTINGS)
redis.call('ZCARD', SESSIONS)
redis.call('HLEN', RUNNING)
-- All writes that follow are permitted when Redis is out of memory.
if left == 0 then
  redis.call('ZREM', SESSIONS, session)
  redis.call('HDEL', RUNNING, session)
  redis.call('ZREM', IDLE, 'p' .. channel, 's' .. channel)
  if worker ~= '' then
    redis.call('HDEL', SETTINGS, 'quiet:' .. worker)
  end
end
sample(LANE, STATS, HISTORY, clock(), seq, waited, ran)
if left == 0 then
  for k = first_lane, #KEYS do
    redis.call('DEL', KEYS[k])
  end
end
if waiting > 0 then
  wake_one(IDLE)
end
return left
