-- include: count

-- Drops the oldest terminal jobs while there are too many, too many bytes of them or too old ones, and returns how many: at most
-- most. bytes is how many they have.
local function trim(set, bytes, field, jobs, stats, limits, now, most)
  local kept = redis.call('ZCARD', set)
  for dropped = 0, most - 1 do
    local oldest = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if not oldest[1] or (kept <= limits[1] and bytes <= limits[2]
        and tonumber(oldest[2]) > now - limits[3]) then
      return dropped
    end
    local size = redis.call('HSTRLEN', jobs, oldest[1])
    redis.call('HDEL', jobs, oldest[1]) -- permitted out of memory, and with it what follows
    redis.call('ZREM', set, oldest[1])
    bytes = count(stats, field, -size)
    kept = kept - 1
  end
  return most
end
