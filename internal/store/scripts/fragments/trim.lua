-- include: forget

-- Drops the oldest jobs of a terminal state, at most most of them, while the jobs exceed limits: their number, their bytes or their
-- age. bytes is the number of bytes that they have. Returns how many jobs were dropped.
local function trim(state, bytes, limits, now, most)
  local kept = redis.call('ZCARD', state.set)
  for dropped = 0, most - 1 do
    local oldest = redis.call('ZRANGE', state.set, 0, 0, 'WITHSCORES')
    if not oldest[1] or (kept <= limits[1] and bytes <= limits[2]
        and tonumber(oldest[2]) > now - limits[3]) then
      return dropped
    end
    local size = redis.call('HSTRLEN', JOBS, oldest[1])
    redis.call('HDEL', JOBS, oldest[1]) -- permitted out of memory, and with it what follows
    bytes = forget(state, oldest[1], size)
    kept = kept - 1
  end
  return most
end
