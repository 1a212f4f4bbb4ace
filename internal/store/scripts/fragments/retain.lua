-- include: digits, count, trim

-- Keeps a terminal job: its record, which is replaced if there is another, stays in jobs, its id
-- in the sorted set, scored by the time; then drops the oldest beyond limits, at most 100 a call.
local function retain(set, field, jobs, stats, limits, now, id, record)
  redis.call('ZADD', set, digits(now), id)
  if record then
    redis.call('HSET', jobs, id, record)
  end
  local bytes = count(stats, field, redis.call('HSTRLEN', jobs, id))
  trim(set, bytes, field, jobs, stats, limits, now, 100)
end
