-- include: forget

-- Drops jobs of a terminal state, at most most of them: those whose own time has come, and the oldest of the others while the jobs exceed
-- limits: their number, their bytes or their age. If no others are left, number and bytes drop those with a time of their own, in the order of
-- these times. bytes is the number of bytes that all have. Returns how many jobs were dropped.
local function trim(state, bytes, limits, now, most)
  local kept = redis.call('ZCARD', state.set)
  for dropped = 0, most - 1 do
    local oldest = redis.call('ZRANGE', state.set, 0, 0, 'WITHSCORES')
    local score = tonumber(oldest[2])
    local due = score and score < 0 and score + 4503599627370496 <= now
    if score and score < 0 and not due then -- a time of its own, which hasn't come: see retain
      local other = redis.call('ZRANGE', state.set, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
      if other[1] then
        oldest, score = other, tonumber(other[2])
      end
    end
    due = due or score and score >= 0 and score <= now - limits[3]
    if not score or not due and kept <= limits[1] and bytes <= limits[2] then
      return dropped
    end
    local size = redis.call('HSTRLEN', JOBS, oldest[1])
    redis.call('HDEL', JOBS, oldest[1]) -- permitted out of memory, and with it what follows
    bytes = forget(state, oldest[1], size)
    kept = kept - 1
  end
  return most
end
