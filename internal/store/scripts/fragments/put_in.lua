-- include: wake_one, note, ready

-- A step of enqueue.lua: writes the jobs that go in. The first write is one that Redis refuses when it is out of memory. The
-- record of a job comes after its id: workers pass over an id without a record.
local woken = false
for class, list in pairs(ready_now) do
  if #list > 0 then
    woken = ready(lists[class], list, false, held_back)
  end
end
if #due > 0 then
  redis.call('ZADD', DUE, unpack(due))
  local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  woken = woken or not earliest[2] or tonumber(head[2]) < tonumber(earliest[2])
end
if replaced then
  -- include: forget
  for _, old in ipairs(replaced) do
    local id, state, bytes = unpack(old)
    forget(state, id, bytes)
    redis.call('HDEL', NOTES, id)
  end
end
redis.call('HSET', JOBS, unpack(records))
if woken then
  wake_one(IDLE)
end
note('enqueued', fresh)
if not largest and redis.call('HLEN', JOBS) > fresh then
  longest = math.max(longest, 1049598) -- another program put the others in: they may be as large as any
end
if not largest or longest > largest then
  redis.call('HSET', STATS, 'largest', digits(longest)) -- claims bound their replies by it
end
