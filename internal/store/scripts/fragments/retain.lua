-- include: digits, count, trim

-- Keeps a job in a terminal state. Its id goes into the state's sorted set, scored by the time. Its record stays in jobs; record
-- replaces it, if there is one. Then drops the oldest jobs beyond limits, at most 100 in one call. Returns how many.
local function retain(state, id, record, limits, now)
  redis.call('ZADD', state.set, digits(now), id)
  if record then
    redis.call('HSET', JOBS, id, record)
  end
  local bytes = count(STATS, state.bytes, redis.call('HSTRLEN', JOBS, id))
  return trim(state, bytes, limits, now, 100)
end
