-- include: digits

-- Drops windows of unique keys that are over, at most most of them. Returns how many there were.
local function drop_windows(now, most)
  local over = redis.call('ZRANGE', WINDOWS, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, most)
  if #over == 0 then
    return 0
  end
  local gone, values = {}, redis.call('HMGET', UNIQUE, unpack(over))
  for i = 1, #over do
    local till = values[i] and string.match(values[i], '^(%d+) ')
    if till and tonumber(till) <= now then
      gone[#gone + 1] = over[i]
    end
  end
  redis.call('ZREM', WINDOWS, unpack(over))
  if #gone > 0 then
    redis.call('HDEL', UNIQUE, unpack(gone))
  end
  return #over
end
