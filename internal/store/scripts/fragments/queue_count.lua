-- A step of claim.lua: notes what the call has started, and what the session runs.
spare = spare - #ids
if queue.rated and #ids > 0 then
  queue_at = queue.started(queue_at, steady, #ids)
  redis.call('ZADD', RATES, queue_at, '')
  if spare <= 0 then
    pause = select(2, queue.allowed(queue_at, steady))
  end
end
if queue.running < math.huge then
  local mine = redis.call('HLEN', INFLIGHT)
  if mine > 0 then
    redis.call('HSET', RUNNING, session, mine)
  else
    redis.call('HDEL', RUNNING, session)
  end
end
