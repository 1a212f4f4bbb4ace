-- Counts the queue's jobs by state, and finds the job that has waited longest. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- Reply: {'ok', time in us, ready, due, running, dead, cancelled, since, completed}
--        since: since when (us) the longest waiting job could run; -1 if there is none. It looks only at the first job of each
--        ready list and at the first of due
-- Errors: those of Redis.

local JOBS, DUE, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, COMPLETED = unpack(KEYS)
local first_session = 10 -- of KEYS

-- include: clock, has_header

local now = clock()

-- Returns the time at which a record was last due, or nil.
local function due_at(record)
  if not record or not has_header(record) then
    return nil
  end
  local us = 0
  for i = 13, 20 do
    us = us * 256 + string.byte(record, i)
  end
  return us
end

local in_lists, since = 0, -1
local function waiting(us)
  if us and us <= now and (since < 0 or us < since) then
    since = us
  end
end
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  in_lists = in_lists + redis.call('LLEN', list)
  local id = redis.call('LINDEX', list, 0)
  if id then
    waiting(due_at(redis.call('HGET', JOBS, id)))
  end
end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
waiting(tonumber(head[2]))
local running = 0
for k = first_session, #KEYS do
  running = running + redis.call('HLEN', KEYS[k])
end
local terminal
-- include: terminal_states
return {'ok', now, in_lists, redis.call('ZCARD', DUE), running,
  redis.call('ZCARD', terminal.dead.set), redis.call('ZCARD', terminal.cancelled.set), since,
  redis.call('ZCARD', terminal.completed.set)}
