-- include: digits, count, trim

-- Keeps a job in a terminal state. Its id goes into the state's sorted set, scored by the time. own is what own_age returns for the job. If it
-- isn't nil, the score is the time when the job is to be dropped, less 2^52: a negative number until the year 2112. So these jobs stand before the
-- others, in the order in which they are dropped. The job's record stays in jobs; record replaces it, if there is one. Then drops the oldest jobs
-- beyond limits: at most 100, and at most 2 once a call has dropped 500 by these limits. So a call that ends many jobs takes no longer after the
-- limits were lowered. Returns how many were dropped.
local function retain(state, id, record, own, limits, now)
  redis.call('ZADD', state.set, digits(own and now + own - 4503599627370496 or now), id)
  if record then
    redis.call('HSET', JOBS, id, record)
  end
  local bytes = count(STATS, state.bytes, redis.call('HSTRLEN', JOBS, id))
  local before = limits.dropped or 0
  local dropped = trim(state, bytes, limits, now, before < 500 and 100 or 2)
  limits.dropped = before + dropped
  return dropped
end
