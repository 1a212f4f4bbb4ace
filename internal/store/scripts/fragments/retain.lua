-- include: digits, count, trim

-- Keeps a job in a terminal state: its record, which is replaced if there is another, stays in jobs, its id
-- in the sorted set, scored by the time; then drops the oldest beyond limits, at most 100 a call.
local function retain(state, id, record, limits, now)
  redis.call('ZADD', state.set, digits(now), id)
  if record then
    redis.call('HSET', JOBS, id, record)
  end
  local bytes = count(STATS, state.bytes, redis.call('HSTRLEN', JOBS, id))
  trim(state, bytes, limits, now, 100)
end
