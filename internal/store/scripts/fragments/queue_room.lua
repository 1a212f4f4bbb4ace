-- A step of claim.lua: leaves of what is wanted what the queue's limits allow.
local others, mine = 0, redis.call('HLEN', INFLIGHT)
if queue.running < math.huge then
  local counts = redis.call('HGETALL', RUNNING)
  for i = 1, #counts, 2 do
    if counts[i] ~= session then
      others = others + (tonumber(counts[i + 1]) or 0)
    end
  end
  if others > 0 and others + mine + want > queue.running then
    -- No more jobs run than those that wait nowhere and haven't ended. If the numbers say more, they are wrong: a worker of an older release doesn't know them.
    -- include: queue_length
    local runs = queue_length() - redis.call('ZCARD', LINED) - redis.call('ZCARD', DUE)
    for _, list in pairs(lists) do
      runs = runs - redis.call('LLEN', list)
    end
    if runs < others + mine then
      others = math.max(runs - mine, 0)
      local names, gone = {}, {}
      for i = 1, #counts, 2 do
        names[#names + 1] = counts[i]
      end
      local registered = redis.call('ZMSCORE', SESSIONS, unpack(names))
      for i = 1, #names do
        if not registered[i] then
          gone[#gone + 1] = names[i]
        end
      end
      if #gone > 0 then
        redis.call('HDEL', RUNNING, unpack(gone))
      end
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
