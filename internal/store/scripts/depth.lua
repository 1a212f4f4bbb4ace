-- Counts the queue's jobs by state, and finds the one that has been waiting longest. It writes
-- nothing.
--
-- KEYS: 1 jobs, 2 due, 3 dead, 4 cancelled, 5 ready:high, 6 ready:normal, 7 ready:low,
--       8 ready:suspect, then inflight:<session> of each session
-- Reply: {'ok', time in us, ready, due, running, dead, cancelled, since}
--        since: the time (us) from which on the longest waiting of the first jobs in the ready
--        lists, and of those in due, could run; -1 if there is none
-- Errors: those of Redis.

local now = clock()

-- The time that a record was last due at, or nil.
local function due_at(record)
  if not record or not has_header(record) then
    return nil
  end
  local us = 0
  for i = 12, 19 do
    us = us * 256 + string.byte(record, i)
  end
  return us
end

local ready, since = 0, -1
local function waiting(us)
  if us and us <= now and (since < 0 or us < since) then
    since = us
  end
end
for k = 5, 8 do
  ready = ready + redis.call('LLEN', KEYS[k])
  local id = redis.call('LINDEX', KEYS[k], 0)
  if id then
    waiting(due_at(redis.call('HGET', KEYS[1], id)))
  end
end
local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
waiting(tonumber(head[2]))
local running = 0
for k = 9, #KEYS do
  running = running + redis.call('HLEN', KEYS[k])
end
return {'ok', now, ready, redis.call('ZCARD', KEYS[2]), running,
  redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]), since}
