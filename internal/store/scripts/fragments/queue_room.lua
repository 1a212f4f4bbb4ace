-- A step of claim.lua: leaves of what is wanted what the queue's limits allow.
local others, mine = 0, redis.call('HLEN', INFLIGHT)
if queue.running < math.huge then
  local counts = redis.call('HGETALL', RUNNING)
  for i = 1, #counts, 2 do
    if counts[i] ~= session then
      others = others + (tonumber(counts[i + 1]) or 0)
    end
  end
end
local bound = queue.bound(queue_at, steady)
if bound then
  queue_at = bound
  redis.call('ZADD', RATES, bound, '')
end
if queue_held > 0 then
  spare, pause = 0, queue_held
else
  spare, pause = queue.allowed(queue_at, steady)
end
spare = math.max(math.min(spare, queue.running - others - mine), 0)
want = math.min(want, spare)
