-- include: wake_one, note, ready

-- A step of enqueue.lua: writes the jobs that are put in. Redis refuses the first write if it is out of memory. A job's ID is written
-- before its record: workers skip an ID without a record.
local woken = false
for class, list in pairs(ready_now) do
  if #list > 0 then
    woken = ready(lists[class], list, false, held_back)
  end
end
if lined then
  -- include: put_in_line
end
if #due > 0 then
  redis.call('ZADD', DUE, unpack(due))
  local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  woken = woken or not earliest[2] or tonumber(head[2]) < tonumber(earliest[2])
end
if expires then
  redis.call('ZADD', EXPIRES, unpack(expires))
  woken = woken or seen[redis.call('ZRANGE', EXPIRES, 0, 0)[1]] ~= nil -- somebody must know the time
end
if replaced then
  -- include: forget
  for _, old in ipairs(replaced) do
    local id, state, bytes = unpack(old)
    forget(state, id, bytes)
    redis.call('HDEL', NOTES, id)
  end
end
if keys_taken then
  -- include: put_unique
end
redis.call('HSET', JOBS, unpack(records))
if woken then
  wake_one(IDLE, nil, idlers)
end
anew = note('enqueued', fresh) == fresh -- these are the first jobs: the queue is new, or was removed
if not largest and redis.call('HLEN', JOBS) > fresh then
  longest = math.max(longest, 1049598) -- another program put the other records in: they may have any size up to the largest allowed
end
if not largest or longest > largest then
  redis.call('HSET', STATS, 'largest', digits(longest)) -- claims use it to limit their replies
end
