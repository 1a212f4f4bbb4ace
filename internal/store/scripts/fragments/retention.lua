-- What a queue keeps of its dead jobs, and of its cancelled ones, which count apart: {most jobs, most bytes, how long in us}.
-- The queue's settings say it, or else limits, a list of the same.
local function retention(settings, limits)
  local set = redis.call('HMGET', settings, 'keep_jobs', 'keep_bytes', 'keep_us')
  for i = 1, 3 do
    local known = set[i] and #set[i] <= 15 and string.find(set[i], '^[1-9]%d*$')
    set[i] = known and tonumber(set[i]) or limits[i]
  end
  return set
end
